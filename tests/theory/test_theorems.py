"""The main theorem against its definitions with explicit bases, blocks and permutations."""

import math
from dataclasses import replace

import pytest
import torch

from crate_mae.errors import UserError
from crate_mae.theory import concentration as cn
from crate_mae.theory import mixture as mx
from crate_mae.theory import theorems as th
from crate_mae.theory.rates import compression_rate_gradient, rate_reduction_gradient

SMALL = th.Setting(d=24, N=10, K=3, p=8, sigma=0.2, epsilon=0.4, step=0.1)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def close(a, b, rtol=1e-10):
    torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


def rotated(setting, seen):
    """The same observation with random bases: Z -> Q Z, U_k = the columns of Q."""
    Q = mx.orthogonal_bases(setting.d, 1, setting.d, rng(9))[0]
    U = torch.stack([Q[:, k * setting.p : (k + 1) * setting.p] for k in range(setting.K)])
    return Q, U, Q @ seen.tokens


@pytest.mark.parametrize("setting", [SMALL, replace(SMALL, d=30), replace(SMALL, N=40)])
def test_steps_equal_those_with_explicit_bases(setting):
    seen = th.observe(setting, rng())
    Q, U, Z = rotated(setting, seen)
    expected = Z - 0.1 * compression_rate_gradient(Z, U, 0.4)
    close(Q @ th.compression_step(setting, seen.tokens), expected)
    expected = Z + 0.1 * rate_reduction_gradient(Z, U, 0.4)
    close(Q @ th.rate_reduction_step(setting, seen.tokens), expected)


@pytest.mark.parametrize("setting", [SMALL, replace(SMALL, N=40)])
def test_projection_equals_the_papers_blocks(setting):
    """eq:proj-defn-1 as printed: sort the tokens by subspace, apply P_k to block k, sort back."""
    seen = th.observe(setting, rng())
    Q, U, _ = rotated(setting, seen)
    X, noise = Q @ seen.signal, Q @ seen.noise
    order = seen.memberships.argsort(stable=True)
    A = [U[k].T @ X[:, seen.memberships == k] for k in range(setting.K)]

    def inner(k):
        gram = torch.eye(A[k].shape[1], dtype=X.dtype) / setting.beta + A[k].T @ A[k]
        return U[k] @ (torch.eye(setting.p, dtype=X.dtype) - A[k] @ torch.linalg.inv(gram) @ A[k].T) @ U[k].T

    blocks = []
    for k in range(setting.K):
        P_k = sum(inner(other) for other in range(setting.K) if other != k)
        blocks.append(P_k @ noise[:, order][:, seen.memberships[order] == k])
    expected = torch.cat(blocks, 1)[:, order.argsort()]
    close(Q @ th.apply_projection(setting, seen), expected)
    prediction = seen.noise - 0.1 * setting.beta * th.apply_projection(setting, seen)
    prediction = prediction + (1 + 1 / setting.beta - 0.1) / (1 + 1 / setting.beta) * seen.signal
    close(th.predicted_step(setting, seen), prediction)


def test_without_noise_and_with_orthonormal_tokens_the_prediction_is_exact():
    setting = replace(SMALL, N=3, sigma=0.0)
    X = torch.zeros(24, 3, dtype=torch.float64)
    X[0, 0] = X[8, 1] = X[16, 2] = 1.0
    seen = th.Observation(X, torch.zeros_like(X), torch.tensor([0, 1, 2]))
    close(th.compression_step(setting, X), th.predicted_step(setting, seen))
    close(th.rate_reduction_step(setting, X), th.rate_reduction_growth(setting) * X)


def test_the_bound_term_by_term():
    s = SMALL
    beta, r = 8 / (10 * 0.16), math.sqrt(10 / 24)
    terms = [0.04 * beta**2, 0.2 * (1 + r), math.sqrt(3) * beta * 0.04 * (1 + r), r]
    assert th.bound(s) == pytest.approx(3 * 0.1 * sum(terms), rel=1e-12)


def test_the_optimal_epsilon_minimises_the_remarks_bound():
    for sigma in (0.3, 0.01):
        best = th.at_optimum(replace(th.BASE, sigma=sigma))
        least = th.simplified_bound(best)
        for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
            assert th.simplified_bound(replace(best, epsilon=factor * best.epsilon)) > least


def test_a_measurement_contains_the_step_and_its_prediction():
    found = th.measure(SMALL, rng())
    seen = th.observe(SMALL, rng())
    close(found.stepped, th.compression_step(SMALL, seen.tokens))
    close(found.predicted, th.predicted_step(SMALL, seen))
    assert found.residual == pytest.approx(th.operator_norm(found.stepped - found.predicted))
    assert found.hypotheses == th.hypotheses(SMALL)


def test_a_measurement_is_consistent_and_seeded():
    setting = th.at_optimum(replace(th.BASE, sigma=0.03))
    found = th.measure(setting, rng())
    assert found == th.measure(setting, rng())
    assert found != th.measure(setting, rng(1))
    assert found.ratio == pytest.approx(found.residual / found.bound)
    assert found.relative == pytest.approx(found.residual / found.noise_norm)
    assert found.noise_norm == pytest.approx(0.03 * (1 + setting.root), rel=0.02)
    assert found.signal_factor == pytest.approx(th.shrinkage(setting), rel=0.01)


def test_hypotheses_of_base():
    met = th.hypotheses(replace(th.BASE, sigma=0.01, epsilon=0.5))
    assert met["K p = d"]
    assert met["N >= p"]
    assert met["C beta sigma <= 1/2"]
    assert not met["C sqrt(N log N) <= N / (2 K)"]
    assert th.hypotheses(th.BASE, th.Constants(binomial=0.25))["C sqrt(N log N) <= N / (2 K)"]
    assert "N >= p" in th.unmet(th.Setting(64, 4, 2, 32, 0.1, 0.5))


def test_bad_settings_raise_a_clear_error():
    with pytest.raises(UserError, match="do not fit"):
        th.Setting(10, 5, 3, 4, 0.1, 0.1)
    with pytest.raises(UserError, match="epsilon > 0"):
        th.Setting(12, 5, 3, 4, 0.1, 0.0)


def test_operator_norm_and_slope():
    M = torch.randn(7, 4, generator=rng(), dtype=torch.float64)
    assert th.operator_norm(M) == pytest.approx(float(torch.linalg.matrix_norm(M, 2)), rel=1e-12)
    x = torch.tensor([1.0, 2, 5], dtype=torch.float64)
    assert th.log_slope(x, 3 * x**1.5) == pytest.approx(1.5)


def test_each_constant_makes_its_inequality_an_equality():
    setting = replace(SMALL, N=9)
    seen = th.observe(setting, rng())
    norm = torch.linalg.matrix_norm
    constant = cn.noise_constant(setting, seen)
    assert float(norm(seen.noise, 2)) == pytest.approx(0.2 * (constant + setting.root))
    found, c, r = cn.signal_constants(setting, seen), 1 / (1 + 1 / setting.beta), setting.root
    blocks = setting.blocks(seen.signal)
    A = [blocks[k][:, seen.memberships == k] for k in range(3)]
    eye = [torch.eye(a.shape[1], dtype=a.dtype) for a in A]
    inverse = [torch.linalg.inv(e / setting.beta + a.T @ a) for a, e in zip(A, eye, strict=True)]
    pairs = list(zip(A, eye, inverse, strict=True))
    assert max(float(norm(a, 2)) for a in A) == pytest.approx(1 + found["norm"] * r)
    assert max(float(norm(a.T @ a - e, 2)) for a, e, _ in pairs) == pytest.approx(found["gram"] * r)
    assert max(float(norm(i - c * e, 2)) for _, e, i in pairs) == pytest.approx(found["inverse"] * c * r)
    assert max(float(norm(a @ i - c * a, 2)) for a, _, i in pairs) == pytest.approx(found["pseudo-inverse"] * c * r)


def test_neumann_norms_are_of_the_papers_matrices():
    """eq:xik-defn block by block, with the tokens sorted by subspace."""
    setting = replace(SMALL, N=9)
    seen = th.observe(setting, rng())
    order = seen.memberships.argsort(stable=True)
    signal, noise = (setting.blocks(m[:, order]) for m in (seen.signal, seen.noise))
    for k in range(3):
        A, U_noise = signal[k], noise[k]  # [0 .. A_k .. 0] and U_k^T Delta Pi^*
        xi = U_noise.T @ U_noise + U_noise.T @ A + A.T @ U_noise
        D = torch.eye(9, dtype=A.dtype) / setting.beta + A.T @ A
        expected = float(torch.linalg.matrix_norm(xi @ torch.linalg.inv(D), 2))
        assert cn.neumann_norms(setting, seen)[k] == pytest.approx(expected)


def test_gaussian_constants_are_near_their_limits():
    # ||M|| = sqrt q + sqrt n and ||M^T M - q I|| = 2 sqrt(n q) + n in the limit
    first, second = cn.gaussian_constants(2000, 100, rng())
    assert first == pytest.approx(1, abs=0.15)
    assert second == pytest.approx(2 + math.sqrt(100 / 2000), abs=0.2)


def test_binomial_constant_by_brute_force():
    n, k = 30, 3
    mass = [math.comb(n, b) * (1 / k) ** b * (1 - 1 / k) ** (n - b) for b in range(n + 1)]
    constant = cn.binomial_constant(n, k)
    scale = math.sqrt(n * math.log(n))

    def tail(c):
        return sum(m for b, m in enumerate(mass) if abs(b - n / k) >= c * scale)

    assert tail(constant * 1.0001) <= 2 / n**3 < tail(constant * 0.9999)
    assert constant <= math.sqrt(1.5)


def test_monte_carlo_has_a_number_for_each_trial():
    found = cn.monte_carlo(SMALL, 4, rng())
    assert set(found) == {"noise", "norm", "gram", "inverse", "pseudo-inverse", "neumann"}
    assert all(values.shape == (4,) and values.isfinite().all() for values in found.values())


def condense(setting, seen):
    """The triangular factors of a full observation, whose distribution ``observe_condensed`` draws directly."""
    rows = 2 * setting.N
    joint = torch.cat([setting.blocks(seen.signal), setting.blocks(seen.noise)], -1)
    factor = torch.linalg.qr(joint).R
    small = replace(setting, d=setting.K * rows, p=rows, epsilon=math.sqrt(2 / setting.beta), step=setting.eta)
    parts = [small.unblocks(part.contiguous()) for part in factor.split(setting.N, -1)]
    return small, th.Observation(*parts, seen.memberships)


def test_a_rotation_within_each_subspace_changes_nothing():
    setting = th.Setting(d=64, N=5, K=2, p=32, sigma=0.2, epsilon=0.7)
    seen = th.observe(setting, rng())
    small, condensed = condense(setting, seen)
    assert small.beta == pytest.approx(setting.beta)
    assert th.residual_norm(small, condensed) == pytest.approx(th.residual_norm(setting, seen), rel=1e-9)
    assert th.residual_norm(setting, seen) == pytest.approx(th.measure(setting, rng()).residual)


def test_condensed_tokens_have_the_distribution_of_tokens():
    setting = th.Setting(d=64, N=4, K=2, p=32, sigma=0.2, epsilon=0.7)
    generator = rng()
    direct = torch.tensor([th.residual_norm(setting, th.observe(setting, generator)) for _ in range(600)])
    drawn = [th.observe_condensed(setting, generator) for _ in range(600)]
    condensed = torch.tensor([th.residual_norm(small, seen) for small, seen in drawn])
    error = math.sqrt(float(direct.var() + condensed.var()) / 600)
    assert abs(float(direct.mean() - condensed.mean())) < 4 * error
    assert float(condensed.std()) == pytest.approx(float(direct.std()), rel=0.2)
    noise = torch.stack([seen.noise.square().sum() for _, seen in drawn])
    assert float(noise.mean()) == pytest.approx(4 * 0.2**2, rel=0.02)
    with pytest.raises(UserError, match="condensing needs"):
        th.observe_condensed(replace(setting, N=20), generator)


def test_a_constant_that_does_not_exist_raises_a_clear_error():
    still = replace(th.BASE, sigma=0.0)
    seen = th.observe(still, torch.Generator().manual_seed(0))
    for constant in (cn.noise_constant, cn.neumann_constant):
        with pytest.raises(UserError, match="sigma is 0"):
            constant(still, seen)
    for n, k in ((1, 2), (10, 1)):
        with pytest.raises(UserError, match="needs two or more of each"):
            cn.binomial_constant(n, k)
    with pytest.raises(UserError, match="N = 0 tokens"):
        replace(th.BASE, N=0)
