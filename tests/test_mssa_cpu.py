"""Attention of one matrix against autograd of the same formula, however it is divided."""

import math

import pytest
import torch
from torch import Tensor

from crate_mae import mssa_cpu
from crate_mae.mssa_cpu import SubspaceAttention, chunk_size, keeps_maps
from crate_mae.operators import attend, merge, mssa, project


def tokens_in_heads(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def formula(w: Tensor, scale: float) -> Tensor:
    return (scale * w @ w.mT).softmax(-1) @ w


@pytest.fixture(params=["maps kept", "maps made again"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    keeps = request.param == "maps kept"
    monkeypatch.setattr(mssa_cpu, "KEPT", 2**40 if keeps else 0)
    return keeps


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("maps", "expected"),
    [(1000, (5, 3)), (7, (2, 3)), (3, (1, 3)), (2, (1, 2)), (0.5, (1, 1))],
    ids=["all at once", "two images, a rest of one", "an image", "two heads, a rest of one", "less than a head"],
)
def test_value_and_gradient_are_the_formulas(
    maps: float, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, heads, n, p = 5, 3, 11, 4
    monkeypatch.setattr(mssa_cpu, "CHUNK", math.ceil(maps * n**2 / torch.get_num_threads()))
    assert chunk_size(images, heads, n) == expected
    side_by_side = tokens_in_heads(images, n, heads, p).requires_grad_()
    w = side_by_side.transpose(1, 2)
    weights = torch.linspace(-1, 1, w.numel(), dtype=w.dtype).view(w.shape)
    found, right = SubspaceAttention.apply(w, 0.7), formula(w, 0.7)
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
    one, other = (torch.autograd.grad((value * weights).sum(), side_by_side)[0] for value in (found, right))
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_what_is_kept_for_the_way_back(kept: bool) -> None:
    saved: list[tuple[int, ...]] = []
    w = tokens_in_heads(2, 3, 5, 4).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tuple(tensor.shape)) or tensor, lambda t: t
    ):
        SubspaceAttention.apply(w, 1.0)
    assert saved == [(2, 3, 5, 4)] + kept * [(2, 3, 5, 5)]
    assert keeps_maps(2, 3, 5) is kept


def test_heads_merge_without_a_copy() -> None:
    w = project(tokens_in_heads(2, 5, 12).requires_grad_(), tokens_in_heads(12, 12), 3)
    mixed = attend(w, 1.0)
    assert merge(mixed).data_ptr() == mixed.data_ptr()


def test_it_serves_training_on_a_cpu_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.dtype] = []
    apply = SubspaceAttention.apply
    monkeypatch.setattr(SubspaceAttention, "apply", lambda w, scale: used.append(w.dtype) or apply(w, scale))
    w = tokens_in_heads(2, 3, 5, 4)
    attend(w, 1.0)  # nobody goes back
    learned = w.clone().requires_grad_()
    with torch.no_grad():
        attend(learned, 1.0)
    attend(learned.bfloat16(), 1.0)
    attend(learned, 1.0, torch.tensor([[True] * 5, [True] * 3 + [False] * 2]))
    with monkeypatch.context() as small:
        small.setattr(mssa_cpu, "CHUNK", 24)
        attend(learned, 1.0)
    assert not used
    attend(learned, 1.0)
    attend(learned.float(), 1.0)
    assert used == [torch.float64, torch.float32]


def test_any_leading_dimensions() -> None:
    w = tokens_in_heads(2, 2, 3, 5, 4)
    for some in (w, w[0], w[0, 0]):
        learned = some.clone().requires_grad_()
        torch.testing.assert_close(attend(learned, 0.5), formula(some, 0.5), rtol=1e-12, atol=1e-12)


def test_gradients_of_single_images_by_torch_func() -> None:
    tokens, subspaces = tokens_in_heads(4, 5, 6), tokens_in_heads(6, 6)

    def loss(subspaces: Tensor, tokens: Tensor) -> Tensor:
        return mssa(tokens, subspaces, None, None, 2).square().sum()

    single = torch.func.vmap(torch.func.grad(loss), (None, 0))(subspaces, tokens)
    learned = subspaces.clone().requires_grad_()
    for one, image in zip(single, tokens, strict=True):
        torch.testing.assert_close(one, torch.autograd.grad(loss(learned, image), learned)[0])


@pytest.mark.parametrize("present", [None, torch.tensor([[True] * 5, [True] * 3 + [False] * 2])])
@pytest.mark.parametrize("trains", [True, False])
def test_under_autocast_attention_stays_in_float32(present: Tensor | None, trains: bool) -> None:
    rounded = tokens_in_heads(2, 3, 5, 4).bfloat16()
    exact = rounded.float().requires_grad_()
    expected = attend(exact, 0.5, present)
    w = rounded.clone().requires_grad_(trains)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(w, 0.5, present)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    if trains:
        gradient = torch.ones_like(found)
        theirs, ours = torch.autograd.grad(expected, exact, gradient), torch.autograd.grad(found, w, gradient)
        torch.testing.assert_close(ours[0], theirs[0].bfloat16())
