"""The mixture's density, score, samples and limit; the size of the score and of grad R^c as the noise falls."""

import torch

from crate_mae.theory import mixture as mx
from crate_mae.theory.checks.check import Check, relative_error, spread
from crate_mae.theory.rates import compression_rate_gradient
from crate_mae.theory.theorems import log_slope

SIGMAS = (0.1, 0.03, 0.01, 0.003, 0.001)


def _model(sigma: float, generator: torch.Generator) -> mx.Mixture:
    return mx.formal_model(mx.orthogonal_bases(48, 4, 12, generator), sigma)


def score_of_density(generator: torch.Generator) -> Check:
    """``mixture.score`` against autograd and finite differences of ``log_density``."""
    errors = {}
    for sigma in (1.0, 0.1, 0.01):
        U = torch.randn(3, 6, 2, generator=generator, dtype=torch.float64)
        model = mx.codebook(U, sigma)
        Z = mx.sample(model, (20,), generator).tokens
        found = mx.score(model, Z)
        leaf = Z.clone().requires_grad_()
        (exact,) = torch.autograd.grad(mx.log_density(model, leaf).sum(), leaf)
        errors[f"autograd sigma={sigma}"] = relative_error(found, exact)
        step = 1e-5 * sigma * torch.randn(6, 1, generator=generator, dtype=torch.float64)
        slope = (mx.log_density(model, Z + step) - mx.log_density(model, Z - step)) / 2
        # finite differences lose half of the digits: scaled so that an error of 1e-6 counts as 1e-10
        errors[f"differences (x 1e-4) sigma={sigma}"] = 1e-4 * relative_error((found * step).sum(0), slope)
    claim = "score equals autograd of the log density, and finite differences (relative error)"
    return Check(claim, "code", "-", max(errors.values()), "<=", 1e-10, numbers=errors)


def sample_moments(generator: torch.Generator) -> Check:
    """Mean, covariance and memberships of ``mixture.sample`` against their exact values."""
    model = _model(0.5, generator)
    drawn = mx.sample(model, (40_000,), generator)
    B = model.subspaces * model.spread[:, None]
    exact = (B @ B.mT + model.noise**2 * torch.eye(48, dtype=B.dtype)).mean(0)
    Z = drawn.tokens
    n = Z.shape[1]
    products = Z @ Z.T / n
    std = (Z.square() @ Z.square().T / n - products.square()).sqrt()
    second = (products - exact).abs() / (std / n**0.5)
    first = Z.mean(1).abs() / (Z.std(1) / n**0.5)
    share = (drawn.memberships.bincount(minlength=4) / n - 0.25).abs() / (0.25 * 0.75 / n) ** 0.5
    numbers = {"mean": float(first.max()), "covariance": float(second.max()), "memberships": float(share.max())}
    claim = "samples have the mixture's mean, covariance and memberships (largest error, in standard errors)"
    return Check(claim, "code", "-", max(numbers.values()), "<=", 5.0, numbers=numbers)


def denoiser_limit(generator: torch.Generator) -> Check:
    """||denoise(z) - project_to_nearest(z)|| / ||z|| as sigma falls."""
    errors = []
    for sigma in SIGMAS:
        model = _model(sigma, generator)
        Z = mx.sample(model, (200,), generator).tokens
        gap = mx.denoise(model, Z) - mx.project_to_nearest(model.subspaces, Z)
        errors.append(float(gap.norm() / Z.norm()))
    numbers = {"sigma": list(SIGMAS), "relative distance": errors}
    claim = "as sigma -> 0 Tweedie's denoiser projects onto the nearest subspace (relative distance at sigma 0.001)"
    return Check(claim, "paper", "met", errors[-1], "<=", 1e-6, numbers=numbers)


def score_magnitude(generator: torch.Generator) -> Check:
    """The slope of log ||grad log q_t(Z_t)|| in log sigma."""
    slopes = []
    for _ in range(3):
        norms = []
        for sigma in SIGMAS:
            model = _model(sigma, generator)
            norms.append(float(mx.score(model, mx.sample(model, (200,), generator).tokens).norm()))
        slopes.append(log_slope(torch.tensor(SIGMAS).double(), torch.tensor(norms).double()))
    claim = "||grad log q_t(Z_t)|| is proportional to sigma^-2 (log-log slope at typical tokens)"
    return Check(claim, "paper", "met", spread(slopes)["mean"], "=", -2.0, 0.1, {"slope": spread(slopes)})


def gradient_magnitude(generator: torch.Generator) -> Check:
    """The slope of log ||grad R^c(Z_t)|| in log sigma."""
    slopes = []
    for _ in range(3):
        norms = []
        for sigma in SIGMAS:
            model = _model(sigma, generator)
            Z = mx.sample(model, (24,), generator).tokens
            norms.append(float(compression_rate_gradient(Z, model.subspaces, 0.3).norm()))
        slopes.append(log_slope(torch.tensor(SIGMAS).double(), torch.tensor(norms).double()))
    claim = "||grad R^c(Z_t)|| is constant in sigma at a fixed epsilon (log-log slope)"
    return Check(claim, "paper", "met", spread(slopes)["mean"], "=", 0.0, 0.1, {"slope": spread(slopes)})
