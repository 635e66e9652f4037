"""Closed forms against autograd, brute force and each other, in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crate_mae.errors import UserError
from crate_mae.theory import rates


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def brute_force_logdet(gram, scale):
    eigenvalues = torch.linalg.eigvalsh(torch.eye(gram.shape[-1], dtype=gram.dtype) + scale * gram)
    return 0.5 * eigenvalues.log().sum()


def brute_force_compression(Z, U, epsilon):
    """eq:rc_def on the N x N side, one subspace at a time, by eigenvalues."""
    scale = U.shape[-1] / (Z.shape[-1] * epsilon**2)
    return sum(brute_force_logdet((u.T @ Z).T @ (u.T @ Z), scale) for u in U)


def close(a, b, rtol=1e-10):
    # relative to the largest entry; where unit norms make a rate constant its gradient is rounding about 0
    torch.testing.assert_close(a, b, rtol=rtol, atol=max(rtol * float(b.detach().abs().max()), 1e-13))


SHAPES = [(70, 45, 2, 37), (8, 5, 3, 2), (6, 20, 2, 3), (4, 3, 2, 6), (5, 1, 1, 5), (12, 9, 4, 3), (3, 7, 5, 1)]


@pytest.mark.parametrize(("d", "n", "k", "p"), SHAPES)
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_values_equal_brute_force_whatever_the_bases(d, n, k, p, epsilon):
    Z, U = draw(d, n), draw(k, d, p, seed=1)
    close(rates.coding_rate(Z, epsilon), brute_force_logdet(Z.T @ Z, d / (n * epsilon**2)))
    expected = brute_force_compression(Z, U, epsilon)
    close(rates.compression_rate(Z, U, epsilon), expected)
    close(rates.projected_compression_rate(rates.project(Z, U), epsilon), expected)


@pytest.mark.parametrize("unit_norm", [False, True])
@pytest.mark.parametrize(("d", "n", "k", "p"), SHAPES)
def test_gradients_equal_autograd(d, n, k, p, unit_norm):
    Z, U = draw(2, d, n).requires_grad_(), draw(k, d, p, seed=1)
    pairs = [
        (lambda z: rates.coding_rate(z, 0.3, unit_norm), rates.coding_rate_gradient(Z, 0.3, unit_norm)),
        (lambda z: rates.compression_rate(z, U, 0.3, unit_norm), rates.compression_rate_gradient(Z, U, 0.3, unit_norm)),
        (lambda z: rates.rate_reduction(z, U, 0.3, unit_norm), rates.rate_reduction_gradient(Z, U, 0.3, unit_norm)),
    ]
    for value, gradient in pairs:
        (expected,) = torch.autograd.grad(value(Z).sum(), Z)
        close(gradient.detach(), expected)
    W = rates.project(Z, U).detach().requires_grad_()
    value, gradient = rates.projected_compression_rate_and_gradient(W, 0.3, unit_norm)
    close(value, rates.projected_compression_rate(W, 0.3, unit_norm))
    (expected,) = torch.autograd.grad(rates.projected_compression_rate(W, 0.3, unit_norm).sum(), W)
    close(gradient.detach(), expected)


def test_the_gradient_is_the_papers_formula_on_the_token_side():
    Z, U = draw(12, 9), draw(4, 12, 3, seed=1)
    beta = 3 / (9 * 0.2**2)
    expected = torch.zeros_like(Z)
    for u in U:
        W = u.T @ Z
        expected += u @ W @ torch.linalg.inv(torch.eye(9, dtype=Z.dtype) / beta + W.T @ W)
    close(rates.compression_rate_gradient(Z, U, 0.2), expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.02, 5), st.integers(0, 99))
def test_smaller_side_equals_larger_side(p, n, epsilon, seed):
    W = draw(1, p, n, seed=seed)
    value, gradient = rates.projected_compression_rate_and_gradient(W, epsilon)
    scale = p / (n * epsilon**2)
    larger = W[0].T @ W[0] if p < n else W[0] @ W[0].T
    system = torch.eye(larger.shape[0], dtype=W.dtype) / scale + larger
    close(value, brute_force_logdet(larger, scale))
    expected = W[0] @ torch.linalg.inv(system) if p < n else torch.linalg.inv(system) @ W[0]
    torch.testing.assert_close(gradient[0], expected, rtol=1e-9, atol=1e-9)


def test_zero_and_repeated_tokens():
    U = draw(3, 6, 2, seed=1)
    zero = torch.zeros(6, 4, dtype=torch.float64)
    assert rates.coding_rate(zero, 0.1) == 0
    assert rates.compression_rate(zero, U, 0.1, unit_norm=True) == 0
    assert not rates.compression_rate_gradient(zero, U, 0.1, unit_norm=True).any()
    z = draw(6, 1)
    repeated = z.expand(6, 10)
    # one direction of squared length N |z|^2: the determinant is a single factor
    expected = 0.5 * math.log1p(6 / (10 * 0.01) * 10 * float(z.square().sum()))
    assert float(rates.coding_rate(repeated, 0.1)) == pytest.approx(expected, rel=1e-10)


def test_autograd_through_unit_norm_survives_a_zero_token():
    Z = draw(6, 4)
    Z[:, 2] = 0
    Z.requires_grad_()
    (gradient,) = torch.autograd.grad(rates.coding_rate(Z, 0.1, unit_norm=True), Z)
    assert gradient.isfinite().all()


def test_the_rate_has_a_value_where_the_identity_is_lost_to_rounding():
    repeated = draw(6, 1).expand(6, 10) * 1e8
    expected = 0.5 * math.log1p(6 / (10 * 1e-12) * 10 * float(repeated[:, 0].square().sum()))
    assert float(rates.coding_rate(repeated, 1e-6)) == pytest.approx(expected, rel=1e-3)
    gradient = rates.coding_rate_gradient(repeated, 1e-6)
    # homogeneous of degree 0 in the limit: <Z, grad R> counts the directions, here one
    assert float((gradient * repeated).sum()) == pytest.approx(1, rel=1e-2)


def test_delta_r_and_the_sparse_objective():
    Z, U = draw(2, 6, 5), draw(3, 6, 2, seed=1)
    Z[0, :3] = 0
    difference = rates.coding_rate(Z, 0.5) - rates.compression_rate(Z, U, 0.5)
    close(rates.rate_reduction(Z, U, 0.5), difference)
    counts = torch.tensor([15.0, 30.0], dtype=torch.float64)
    close(rates.sparse_rate_reduction(Z, U, 0.5, 0.1), difference - 0.1 * counts)
    close(rates.sparse_rate_reduction(Z, U, 0.5, 0.1, norm="l1"), difference - 0.1 * Z.abs().sum((1, 2)))


def test_orthogonal_bases_that_span_everything_have_delta_r_of_one_basis_zero():
    # K = 1 and U = I: R^c is R
    Z = draw(5, 7)
    identity = torch.eye(5, dtype=torch.float64)[None]
    close(rates.compression_rate(Z, identity, 0.3), rates.coding_rate(Z, 0.3))


def test_rates_are_batched_and_keep_the_dtype():
    Z, U = draw(2, 3, 6, 5), draw(3, 6, 2, seed=1)
    batched = rates.compression_rate(Z, U, 0.5)
    assert batched.shape == (2, 3)
    close(batched[1, 2], rates.compression_rate(Z[1, 2], U, 0.5))
    assert rates.compression_rate_gradient(Z.float(), U.float(), 0.5).dtype == torch.float32
    assert rates.rate_reduction(Z.float(), U.float(), 0.5).dtype == torch.float32


def test_epsilon_squared_divides():
    W = draw(1, 2, 3)
    by_hand = 0.5 * torch.logdet(torch.eye(3, dtype=W.dtype) + 2 / (3 * 0.25**2) * W[0].T @ W[0])
    close(rates.projected_compression_rate(W, 0.25), by_hand)


def test_bad_input_raises_a_clear_error(as_a_user):
    Z = draw(4, 3)
    with pytest.raises(UserError, match="epsilon is 0"):
        rates.coding_rate(Z, 0.0)
    with pytest.raises(UserError, match="give at least one token"):
        rates.coding_rate(Z[:, :0], 0.1)
    Z[0, 0] = math.nan
    with pytest.raises(UserError, match="NaN"):
        rates.coding_rate(Z, 0.1)
    with pytest.raises(UserError, match="and its square"):
        rates.coding_rate(draw(4, 3), 1e-200)
    with pytest.raises(UserError, match=r"bases \(K, d, p\)"):
        rates.compression_rate(draw(4, 3), draw(4, 2), 0.1)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1e6])
def test_small_and_large_epsilon_keep_their_digits_on_deficient_bases(epsilon):
    Z, U = draw(4, 30), draw(3, 4, 3, seed=1)
    U[0, :, 2] = U[0, :, 0]
    beta = 3 / (30 * epsilon**2)
    value, gradient = torch.zeros((), dtype=Z.dtype), torch.zeros_like(Z)
    for u in U:
        left, s, right = torch.linalg.svd(u.T @ Z, full_matrices=False)
        value += 0.5 * torch.log1p(beta * s.square()).sum()
        gradient += u @ (left * (beta * s / (1 + beta * s.square()))) @ right
    assert float(rates.compression_rate(Z, U, epsilon)) == pytest.approx(float(value), rel=1e-10, abs=0)
    close(rates.compression_rate_gradient(Z, U, epsilon) * epsilon**2, gradient * epsilon**2)
    leaf = Z.clone().requires_grad_()
    close(torch.autograd.grad(rates.compression_rate(leaf, U, epsilon), leaf)[0], gradient, rtol=1e-9)


def test_the_gradient_is_differentiable_where_qr_is_used():
    Z = draw(3, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: rates.coding_rate_gradient(z, 1e-3), (Z,), eps=1e-7, atol=1e-4)
