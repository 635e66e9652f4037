"""The two vector fields and MSSA against their definitions."""

import math

import pytest
import torch

from crate_mae.theory import equivalence as eq
from crate_mae.theory import mixture as mx
from crate_mae.theory.rates import compression_rate_gradient


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def case(N=9, sigma=0.1):
    U = mx.orthogonal_bases(12, 3, 4, rng())
    model = mx.formal_model(U, sigma)
    return U, model, mx.sample(model, (N,), rng(1))


def test_a_token_alone_is_a_batch_of_one():
    U, _, drawn = case()
    found = eq.compression_field_alone(drawn.tokens, U, 0.3)
    for i in range(9):
        expected = -compression_rate_gradient(drawn.tokens[:, i : i + 1], U, 0.3)
        torch.testing.assert_close(found[:, i : i + 1], expected)


def test_across_removes_the_component_in_the_tokens_own_subspace():
    U, _, drawn = case()
    V = torch.randn(12, 9, generator=rng(2), dtype=torch.float64)
    rest = eq.across(V, U, drawn.memberships)
    for i, s in enumerate(drawn.memberships.tolist()):
        assert float((U[s].T @ rest[:, i]).abs().max()) < 1e-12
        torch.testing.assert_close(V[:, i] - rest[:, i], U[s] @ U[s].T @ V[:, i])


def test_agreement_of_the_score_with_itself_and_with_uniform_shrinkage():
    _, model, drawn = case(N=400)
    same = eq.agreement(model, drawn, mx.score(model, drawn.tokens))
    assert same.raw == pytest.approx(1)
    assert same.across == pytest.approx(1)
    assert same.selectivity > 50
    shrink = eq.agreement(model, drawn, -drawn.tokens)
    assert shrink.selectivity == pytest.approx(1, abs=0.1)


def test_mssa_cosines_by_hand():
    U, _, drawn = case()
    Z, epsilon = drawn.tokens, 0.5
    attention = torch.zeros_like(Z)
    for u in U:
        W = u.T @ Z
        attention += 4 / (9 * epsilon**2) * u @ W @ (W.T @ W).softmax(0)  # columns are the attending tokens
    gradient = -compression_rate_gradient(Z, U, epsilon)
    raw = float((attention * gradient).sum() / (attention.norm() * gradient.norm()))
    span = torch.stack([(u @ u.T @ Z).flatten() for u in U], 1)

    def beyond(M):
        coefficients = torch.linalg.lstsq(span, M.flatten()[:, None]).solution
        return M.flatten() - (span @ coefficients)[:, 0]

    a, b = beyond(attention), beyond(gradient)
    found = eq.mssa_cosines(Z, U, epsilon)
    assert found == pytest.approx((raw, float(a @ b / (a.norm() * b.norm()))), rel=1e-8)


def test_few_tokens_reach_the_predicted_cosine():
    U = mx.orthogonal_bases(96, 4, 24, rng())
    model = mx.formal_model(U, 0.001)
    drawn = mx.sample(model, (24,), rng(1))
    found = eq.agreement(model, drawn, eq.compression_field(drawn.tokens, U, 0.001))
    assert found.raw == pytest.approx(math.sqrt(1 - 24 / 96), abs=0.03)


def test_a_denoiser_that_does_not_change_the_signal_is_infinitely_selective():
    U = torch.eye(3, dtype=torch.float64).unflatten(1, (3, 1)).permute(1, 0, 2)[:2]
    model = mx.codebook(U, 0.1)
    drawn = mx.sample(model, (20,), rng())
    field = -eq.across(drawn.noise, U, drawn.memberships)
    assert abs(eq.agreement(model, drawn, field).selectivity) == float("inf")


def test_a_subspace_given_twice_does_not_change_the_span():
    U, _, drawn = case()
    once, twice = U[:1], U[[0, 0]]
    assert eq.mssa_cosines(drawn.tokens, twice, 0.5) == pytest.approx(eq.mssa_cosines(drawn.tokens, once, 0.5))
