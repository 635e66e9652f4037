import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from crate_mae import operators
from crate_mae.operators import (
    ISTA,
    MSSA,
    fold,
    ista,
    ista_folded,
    ista_listing,
    ista_overcomplete,
    lasso,
    mssa,
    mssa_listing,
    mssa_tied,
)

heads_and_width = st.tuples(st.integers(1, 5), st.integers(1, 6))
batch_and_tokens = st.tuples(st.integers(1, 3), st.integers(1, 30))
seeds = st.integers(0, 2**31)


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    tensor = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (tensor / math.sqrt(shape[-1])).to(dtype).requires_grad_()


def gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return list(torch.autograd.grad((output * weights).sum(), inputs, retain_graph=True))


def assert_same(one: Tensor, other: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for a, b in zip(gradients(one, inputs), gradients(other, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=40)
@given(heads_and_width, batch_and_tokens, seeds)
def test_fused_mssa_equals_the_listing(sizes: tuple[int, int], shape: tuple[int, int], seed: int) -> None:
    heads, p = sizes
    d = heads * p
    tokens, subspaces, output, bias = (draw(seed + i, *s) for i, s in enumerate([(*shape, d), (d, d), (d, d), (1, d)]))
    inputs = [tokens, subspaces, output, bias]
    assert_same(
        mssa(tokens, subspaces, output, bias[0], heads), mssa_listing(tokens, subspaces, output, bias[0], heads), inputs
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 24), batch_and_tokens, seeds)
def test_both_fast_forms_of_ista_equal_the_listing(d: int, shape: tuple[int, int], seed: int) -> None:
    tokens, dictionary = draw(seed, *shape, d), draw(seed + 1, d, d)
    inputs = [tokens, dictionary]
    listing = ista_listing(tokens, dictionary, 0.1, 0.5)
    assert_same(ista(tokens, dictionary, 0.1, 0.5), listing, inputs)
    assert_same(ista_folded(tokens, fold(dictionary, 0.1), 0.1, 0.5), listing, inputs)


def test_ista_folds_exactly_where_tokens_outnumber_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    folds = []
    monkeypatch.setattr(operators, "fold", lambda *arguments: folds.append(1) or fold(*arguments))
    for tokens, expected in [(8, 0), (9, 1)]:
        folds.clear()
        ista(torch.ones(1, tokens, 8), torch.eye(8), 0.1, 0.5)
        assert len(folds) == expected


def test_gradcheck_in_float64() -> None:
    d, heads = 6, 2
    tokens, subspaces, output, bias = (
        draw(i, *s, dtype=torch.float64) for i, s in enumerate([(2, 5, d), (d, d), (d, d), (1, d)])
    )
    assert torch.autograd.gradcheck(
        lambda *a: mssa(a[0], a[1], a[2], a[3][0], heads), (tokens, subspaces, output, bias)
    )
    assert torch.autograd.gradcheck(lambda *a: mssa_tied(*a, heads, 0.5), (tokens, subspaces))
    assert torch.autograd.gradcheck(lambda *a: ista(*a, 0.1, 0.1), (tokens, subspaces))
    assert torch.autograd.gradcheck(lambda *a: ista(*a, 0.1, 0.1), (tokens[:, :2].detach().requires_grad_(), subspaces))


def test_tied_mssa_is_the_equation_head_by_head() -> None:
    d, heads, n, epsilon = 8, 2, 5, 0.3
    p = d // heads
    tokens, subspaces = draw(0, n, d, dtype=torch.float64), draw(1, d, d, dtype=torch.float64)
    Z = tokens.T
    bases = [subspaces[k * p : (k + 1) * p].T for k in range(heads)]
    equation = torch.zeros_like(Z)
    for U in bases:
        W = U.T @ Z
        # The paper's softmax acts on columns: token j's weights over all tokens stand in column j.
        equation = equation + U @ (W @ torch.softmax(W.T @ W, dim=0))
    equation = p / (n * epsilon**2) * equation
    torch.testing.assert_close(mssa_tied(tokens, subspaces, heads, epsilon), equation.T)


@pytest.mark.parametrize("epsilon", [None, 0.4])
def test_padding_changes_nothing(epsilon: float | None) -> None:
    module = MSSA(8, 2, epsilon).double()  # in float32, processors differ by more than the tolerance
    torch.nn.init.normal_(module.subspaces)
    tokens = torch.randn(2, 6, 8, dtype=torch.float64)
    present = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    padded = module(tokens, present)
    torch.testing.assert_close(padded[0], module(tokens[:1])[0])
    torch.testing.assert_close(padded[1, :4], module(tokens[1:, :4])[0])
    maps = module.attention(tokens, present)
    assert (maps[1, :, :, 4:] == 0).all()
    torch.testing.assert_close(maps[1, :, :4, :4], module.attention(tokens[1:, :4])[0])


@pytest.mark.parametrize("epsilon", [None, 0.4])
def test_attention_maps_are_those_that_mix(epsilon: float | None) -> None:
    module = MSSA(8, 2, epsilon).double()
    torch.nn.init.normal_(module.subspaces)
    tokens = torch.randn(2, 6, 8, dtype=torch.float64)
    maps = module.attention(tokens)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 6, dtype=torch.float64))
    mixed = operators.merge(maps @ operators.project(tokens, module.subspaces, 2))
    expected = module.output(mixed) if epsilon is None else 4 / (6 * epsilon**2) * mixed @ module.subspaces
    torch.testing.assert_close(module(tokens), expected)


def test_a_single_head_has_no_output_map() -> None:
    assert MSSA(8, 1).output is None
    assert MSSA(8, 2).output is not None


def test_bases_are_the_paper_s() -> None:
    module = MSSA(6, 3)
    torch.nn.init.normal_(module.subspaces)
    tokens = torch.randn(1, 4, 6)
    w = operators.project(tokens, module.subspaces, 3)
    for k, U in enumerate(module.bases):
        torch.testing.assert_close(w[0, k], (U.T @ tokens[0].T).T)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(1, 20), st.floats(0.0, 2.0), st.floats(0.05, 1.0), seeds)
def test_ista_never_increases_the_lasso_from_a_feasible_start(
    d: int, n: int, lambda_: float, share: float, seed: int
) -> None:
    signal = draw(seed, n, d, dtype=torch.float64).detach().abs()
    dictionary = draw(seed + 1, d, d, dtype=torch.float64).detach()
    eta = share / float(torch.linalg.matrix_norm(dictionary, 2)) ** 2
    before = lasso(signal, signal, dictionary, lambda_)
    after = lasso(signal, ista(signal, dictionary, eta, lambda_), dictionary, lambda_)
    assert (after <= before + 1e-9).all()


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_a_relaxed_step_increases_the_lasso_no_more_than_the_average_of_its_ends(rho: float) -> None:
    generator = torch.Generator().manual_seed(1)
    dictionary = torch.randn(8, 8, generator=generator, dtype=torch.float64)
    start = torch.rand(50, 8, generator=generator, dtype=torch.float64)
    eta, lambda_ = 1 / torch.linalg.matrix_norm(dictionary, 2).item() ** 2, 0.3
    full = ista(start, dictionary, eta, lambda_)
    before, after, relaxed = (
        lasso(start, code, dictionary, lambda_) for code in (start, full, torch.lerp(start, full, rho))
    )
    assert (relaxed <= (1 - rho) * before + rho * after + 1e-12).all()
    assert (relaxed <= before + 1e-12).all()


def test_for_signed_tokens_the_lasso_can_rise() -> None:
    # D = I: y = z fits z exactly, but y >= 0 can't, so the step from the infeasible start must pay.
    signal = torch.tensor([[-1.0]])
    before = lasso(signal, signal, torch.eye(1), 0.1)
    after = lasso(signal, ista(signal, torch.eye(1), 0.1, 0.1), torch.eye(1), 0.1)
    assert before.item() == pytest.approx(0.1)
    assert after.item() == pytest.approx(0.5)


def test_ista_keeps_its_fold_only_while_the_dictionary_stays() -> None:
    module = ISTA(4, 0.1, 0.5)
    torch.nn.init.normal_(module.dictionary)
    tokens = torch.randn(2, 3, 4)
    with torch.no_grad():
        module(tokens)
        kept = module._fold_once()
        assert module._fold_once() is kept
        module.dictionary.data.mul_(2)  # moves no version counter
        torch.testing.assert_close(module(tokens), ista_listing(tokens, module.dictionary, 0.1, 0.5))
    module.double()
    with torch.no_grad():
        assert module(tokens.double()).dtype == torch.float64


def test_the_kept_fold_is_not_copied_along() -> None:
    module = ISTA(4, 0.1, 0.5)
    torch.nn.init.normal_(module.dictionary)
    with torch.no_grad():
        module(torch.randn(1, 2, 4))
    assert module._kept is not None
    assert copy.deepcopy(module)._kept is None


def test_a_compiler_can_follow_without_gradients() -> None:
    module = ISTA(4, 0.1, 0.5)
    torch.nn.init.normal_(module.dictionary)
    tokens = torch.randn(2, 3, 4)
    with torch.no_grad():
        exported = torch.export.export(module, (tokens,)).module()
        torch.testing.assert_close(exported(tokens), module(tokens))


def test_inference_mode_and_half_precision_work() -> None:
    with torch.inference_mode():
        module = ISTA(4, 0.1, 0.5)
        torch.nn.init.normal_(module.dictionary)
        tokens = torch.randn(2, 3, 4)
        torch.testing.assert_close(module(tokens), ista_listing(tokens, module.dictionary, 0.1, 0.5))


def test_under_autocast_folding_multiplies_in_bfloat16_and_keeps_its_gradient() -> None:
    dictionary = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) / 8
    weights = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    found = []
    for enabled in (False, True):
        learned = dictionary.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            folded = fold(learned, 0.1)
            (folded * weights).sum().backward()
        assert learned.grad is not None
        assert folded.dtype == learned.grad.dtype == torch.float32
        found.append((folded, learned.grad))
    for exact, rounded in zip(*found, strict=True):
        assert 1e-4 < ((exact - rounded).norm() / exact.norm()).item() < 1e-2


def test_overcomplete_ista_is_two_steps_from_zero_down_the_lasso() -> None:
    generator = torch.Generator().manual_seed(0)
    D = torch.randn(6, 15, generator=generator, dtype=torch.float64, requires_grad=True)
    z = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    eta, lambda_ = 1 / torch.linalg.matrix_norm(D.detach(), 2).item() ** 2, 0.2
    code, heights = torch.zeros(4, 15, dtype=torch.float64), []
    for _ in range(3):
        heights.append(lasso(z, code, D, lambda_))
        smooth = code.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(0.5 * (z - smooth @ D.T).square().sum(), smooth)
        last, code = code, torch.relu(code - eta * gradient - eta * lambda_)
    torch.testing.assert_close(ista_overcomplete(z, D, eta, lambda_), last)
    assert (heights[1] <= heights[0]).all()
    assert (heights[2] <= heights[1]).all()
    assert torch.autograd.gradcheck(lambda d: ista_overcomplete(z, d, eta, lambda_), (D,))
