"""The mixture against torch's own distributions, autograd, finite differences and known moments."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from crate_mae.errors import UserError
from crate_mae.theory import mixture as mx


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def skewed(noise=0.3):
    """Bases that are neither orthonormal nor orthogonal, unequal weights and spreads."""
    return mx.codebook(
        draw(3, 5, 2),
        noise,
        spread=draw(3, 2, seed=1).abs() + 0.1,
        weights=torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64),
    )


def covariances(mixture):
    B = mixture.subspaces * mixture.spread[:, None]
    return B @ B.mT + mixture.noise**2 * torch.eye(B.shape[1], dtype=B.dtype)


def test_log_density_and_posterior_equal_torchs_gaussians():
    mixture, Z = skewed(), draw(4, 5, 7, seed=2)
    parts = MultivariateNormal(torch.zeros(5, dtype=Z.dtype), covariances(mixture))
    joint = parts.log_prob(Z.mT[..., None, :]) + mixture.weights.log()
    torch.testing.assert_close(mx.log_density(mixture, Z), joint.logsumexp(-1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(mx.posterior(mixture, Z), joint.softmax(-1).mT, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("noise", [1.0, 0.3, 0.01])
def test_score_equals_autograd_and_finite_differences(noise):
    mixture, Z = skewed(noise), draw(5, 6, seed=2).requires_grad_()
    (expected,) = torch.autograd.grad(mx.log_density(mixture, Z).sum(), Z)
    found = mx.score(mixture, Z.detach())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))
    h = 1e-5 * noise
    for i in range(5):
        step = torch.zeros(5, 1, dtype=Z.dtype)
        step[i] = h
        with torch.no_grad():
            slope = (mx.log_density(mixture, Z + step) - mx.log_density(mixture, Z - step)) / (2 * h)
        torch.testing.assert_close(slope, found[i], rtol=1e-5, atol=1e-5 * float(found.abs().max()))


def test_sampling_has_the_known_moments_and_memberships():
    mixture = skewed()
    drawn = mx.sample(mixture, (200_000,), rng())
    torch.testing.assert_close(drawn.tokens, drawn.signal + drawn.noise)
    exact = covariances(mixture)
    for k in range(3):
        mine = drawn.tokens[:, drawn.memberships == k]
        assert mine.shape[1] / 200_000 == pytest.approx(float(mixture.weights[k]), abs=0.005)
        assert float(mine.mean(1).abs().max()) < 0.05
        torch.testing.assert_close(torch.cov(mine), exact[k], rtol=0.03, atol=0.03 * float(exact[k].max()))
    assert float(drawn.noise.std()) == pytest.approx(0.3, rel=0.01)


def test_the_formal_model_is_normalised():
    U = mx.orthogonal_bases(24, 3, 8, rng())
    model = mx.formal_model(U, 0.5)
    drawn = mx.sample(model, (50, 400), rng(1))
    assert drawn.tokens.shape == (50, 24, 400)
    assert float(drawn.signal.square().sum(-2).mean()) == pytest.approx(1, rel=0.02)  # E |U alpha|^2 = 1
    assert float(drawn.noise.square().sum(-2).mean()) == pytest.approx(0.25, rel=0.02)  # E |delta|^2 = sigma^2
    own = torch.einsum("kdp,bdn->bkpn", U, drawn.signal).square().sum(-2)
    torch.testing.assert_close(own.argmax(1), drawn.memberships)


def test_bases_are_orthonormal_and_pairwise_orthogonal():
    U = mx.orthogonal_bases(12, 3, 4, rng())
    Q = U.permute(1, 0, 2).flatten(1)
    torch.testing.assert_close(Q.T @ Q, torch.eye(12, dtype=U.dtype), rtol=0, atol=1e-12)


def test_tweedie_is_the_conditional_expectation():
    # Among 1-D Gaussians on one line E[x | z] = z / (1 + sigma^2); on the mixture, by averaging samples near a point.
    line = mx.codebook(torch.ones(1, 1, 1, dtype=torch.float64), 0.5)
    z = torch.tensor([[2.0]], dtype=torch.float64)
    torch.testing.assert_close(mx.denoise(line, z), z / 1.25)
    lines = mx.codebook(torch.eye(2, dtype=torch.float64)[:, :, None], 0.5)
    drawn = mx.sample(lines, (2_000_000,), rng(3))
    point = torch.tensor([[0.8], [0.4]], dtype=torch.float64)
    near = (drawn.tokens - point).square().sum(0) < 0.05**2
    expected = drawn.signal[:, near].mean(1, keepdim=True)
    torch.testing.assert_close(mx.denoise(lines, point), expected, rtol=0, atol=0.02)


def test_denoiser_goes_to_the_nearest_subspace():
    U, Z = draw(3, 5, 2), draw(5, 40, seed=4)
    limit = mx.project_to_nearest(U, Z)
    errors = [float((mx.denoise(mx.codebook(U, sigma), Z) - limit).abs().max()) for sigma in (1e-1, 1e-2, 1e-3)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4
    torch.testing.assert_close(mx.denoise(mx.codebook(U, 0.0), Z), limit)


def test_projection_is_the_nearest_point_by_brute_force():
    U, Z = draw(3, 5, 2), draw(2, 5, 9, seed=4)
    Z[..., 0] = 0
    found = mx.project_to_nearest(U, Z)
    fits = torch.stack([u @ torch.linalg.lstsq(u, Z.movedim(1, 0).flatten(1)).solution for u in U])
    fits = fits.unflatten(-1, (2, 9)).movedim(1, -2)
    distances = (fits - Z).square().sum(-2)
    best = fits.gather(0, distances.argmin(0)[None, :, None, :].expand(1, 2, 5, 9))[0]
    torch.testing.assert_close(found, best)


def test_a_line_padded_with_zeros_is_a_line():
    # a plane and a line in 3-D: the line's second column is zero
    U = torch.tensor([[[1, 0], [0, 1], [0, 0]], [[0, 0], [0, 0], [1, 0]]], dtype=torch.float64)
    Z = torch.tensor([[0.1], [0.2], [3.0]], dtype=torch.float64)
    torch.testing.assert_close(mx.project_to_nearest(U, Z), torch.tensor([[0.0], [0.0], [3.0]], dtype=torch.float64))
    assert mx.log_density(mx.codebook(U, 0.1), Z).isfinite().all()


def test_bad_input_raises_a_clear_error():
    U = draw(2, 4, 2)
    with pytest.raises(UserError, match="standard deviation"):
        mx.codebook(U, -1.0)
    with pytest.raises(UserError, match="not probabilities"):
        mx.codebook(U, 1.0, weights=torch.tensor([0.9, 0.9], dtype=torch.float64))
    with pytest.raises(UserError, match="no density"):
        mx.log_density(mx.codebook(U, 0.0), draw(4, 3))
    with pytest.raises(UserError, match="need 6 dimensions"):
        mx.orthogonal_bases(4, 3, 2, rng())


def test_float32_stays_float32():
    mixture = mx.formal_model(mx.orthogonal_bases(8, 2, 4, rng(), torch.float32), 0.3)
    Z = mx.sample(mixture, (2, 5), rng()).tokens
    assert Z.dtype == mx.score(mixture, Z).dtype == mx.log_density(mixture, Z).dtype == torch.float32
    assert math.isfinite(float(mx.log_density(mixture, Z).sum()))


def test_wrong_shapes_raise_a_clear_error(as_a_user):
    U = draw(3, 4, 2)
    for wrong in ({"weights": torch.tensor([0.5, 0.5])}, {"spread": torch.ones(3, 1)}, {"spread": torch.ones(2, 2)}):
        with pytest.raises(UserError, match="do not fit the subspaces"):
            mx.codebook(U, 1.0, **wrong)
    with pytest.raises(UserError, match=r"\(K, d, p\)"):
        mx.codebook(U[0], 1.0)
    with pytest.raises(UserError, match="a spread is negative or NaN"):
        mx.codebook(U, 1.0, spread=torch.full((3, 2), math.nan))
    with pytest.raises(UserError, match="finite"):
        mx.codebook(U, math.inf)
    for function in (mx.score, mx.log_density, mx.posterior, mx.denoise):
        with pytest.raises(UserError, match="do not match bases of dimension 4"):
            function(mx.codebook(U, 1.0), draw(5, 3))
    with pytest.raises(UserError, match=r"\(\*b, N\)"):
        mx.sample(mx.codebook(U, 1.0), (), rng())


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)])
def test_zero_tokens_are_a_valid_batch(shape):
    drawn = mx.sample(skewed(), shape, rng())
    assert drawn.tokens.shape == (*shape[:-1], 5, shape[-1])
    assert mx.score(skewed(), drawn.tokens).shape == drawn.tokens.shape
    assert drawn.memberships.shape == shape


def test_the_denoiser_at_zero_noise_is_its_limit_whatever_the_weights_and_spreads():
    weights = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)
    spread = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    U, Z = draw(3, 5, 2), draw(5, 40, seed=1)
    limit = mx.denoise(mx.codebook(U, 1e-6, spread, weights), Z)
    torch.testing.assert_close(mx.denoise(mx.codebook(U, 0.0, spread, weights), Z), limit, rtol=1e-4, atol=1e-4)
