"""The Gaussian codebook model: tokens near one of K subspaces, with exact density, score and posterior.

A token is z = U_s alpha + sigma w with s ~ weights, alpha ~ N(0, diag(spread_s^2)) and w ~ N(0, I), so that

    z ~ sum_k weights_k N(0, U_k diag(spread_k^2) U_k^T + sigma^2 I).

``codebook`` is the model of the main text (model:gaussian_tokens, model:gaussian_tokens_noise). ``formal_model`` is
mu(K, p, sigma^2) of the appendix, with a noise level of sigma / sqrt d per coordinate. Tokens are columns.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from crate_mae.errors import UserError


@dataclass(frozen=True)
class Mixture:
    """A Gaussian mixture on K subspaces plus noise; the bases need not be orthonormal."""

    subspaces: Float[Tensor, "K d p"]
    """U_[K]."""
    spread: Float[Tensor, "K p"]
    """Standard deviation of each coordinate of alpha in each subspace."""
    weights: Float[Tensor, " K"]
    """Probability of each subspace."""
    noise: float
    """Standard deviation of the noise in each of the d coordinates; 0 for tokens on the subspaces."""

    def __post_init__(self) -> None:
        if self.subspaces.ndim != 3:
            raise UserError(f"the subspaces have shape {tuple(self.subspaces.shape)}; give K bases as (K, d, p).")
        count, _, p = self.subspaces.shape
        if self.spread.shape != (count, p) or self.weights.shape != (count,):
            raise UserError(
                f"spread {tuple(self.spread.shape)} and weights {tuple(self.weights.shape)} do not fit the subspaces; "
                f"give ({count}, {p}) and ({count},)."
            )
        if not 0 <= self.noise < math.inf:
            raise UserError(f"the noise level is {self.noise}; a standard deviation is 0 or more, and finite.")
        if (self.weights < 0).any() or not math.isclose(float(self.weights.sum()), 1.0, rel_tol=1e-5):
            raise UserError("the weights are not probabilities; give K numbers of 0 or more that sum to 1.")
        if not (self.spread >= 0).all():
            raise UserError("a spread is negative or NaN; a standard deviation is 0 or more.")


@dataclass(frozen=True)
class Draw:
    """Tokens and their parts: tokens = signal + noise."""

    tokens: Float[Tensor, "*b d N"]
    signal: Float[Tensor, "*b d N"]
    noise: Float[Tensor, "*b d N"]
    memberships: Int[Tensor, "*b N"]
    """The subspace s_i that each token was drawn from."""


def codebook(
    U: Float[Tensor, "K d p"],
    sigma: float,
    spread: Float[Tensor, "K p"] | None = None,
    weights: Float[Tensor, " K"] | None = None,
) -> Mixture:
    """z_i = U_{s_i} alpha_i + sigma w_i   (model:gaussian_tokens; model:gaussian_tokens_noise where sigma > 0).

    The paper does not fix the distribution of s_i or the covariance of the zero-mean alpha_i. The defaults of
    ``weights`` and ``spread`` are uniform and I.
    """
    count, p = U.shape[0], U.shape[-1]
    spread = U.new_ones(count, p) if spread is None else spread
    weights = U.new_full((count,), 1 / count) if weights is None else weights
    return Mixture(U, spread, weights, sigma)


def formal_model(U: Float[Tensor, "K d p"], sigma: float) -> Mixture:
    """mu(K, p, sigma^2): alpha_i ~ N(0, I / p), noise ~ N(0, sigma^2 / d I), uniform s_i (eq:signal-model-vector-form).

    The paper requires orthonormal bases with pairwise orthogonal ranges; ``orthogonal_bases`` draws them.
    """
    count, d, p = U.shape[0], U.shape[-2], U.shape[-1]
    return codebook(U, sigma / math.sqrt(d), U.new_full((count, p), p**-0.5))


def orthogonal_bases(
    d: int, count: int, p: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "K d p"]:
    """K uniformly random bases with U_k^T U_k' = 1{k = k'} I (ass:parameter_config); K p <= d."""
    if min(count, p) < 1 or count * p > d:
        raise UserError(f"{count} orthogonal subspaces of dimension {p} need {count * p} dimensions, not {d}.")
    gaussian = torch.randn(d, count * p, generator=generator, dtype=dtype, device=generator.device)
    q, r = torch.linalg.qr(gaussian)
    q = q * r.diagonal().sign()  # without this, the signs that QR chooses make the rotation non-uniform
    return q.T.reshape(count, p, d).mT.contiguous()


def sample(mixture: Mixture, shape: tuple[int, ...], generator: torch.Generator) -> Draw:
    """Draw N tokens for each batch entry, shape = (*b, N), with memberships, signal (X_natural) and noise."""
    U = mixture.subspaces
    count, d, p = U.shape
    if not shape:
        raise UserError("the shape is empty; give (*b, N), for example (N,).")
    flat = math.prod(shape)
    # multinomial can't draw zero samples
    members = torch.multinomial(mixture.weights, max(flat, 1), replacement=True, generator=generator)[:flat]
    alpha = torch.randn(flat, p, generator=generator, dtype=U.dtype, device=U.device) * mixture.spread[members]
    coordinates = U.new_zeros(flat, count, p)
    coordinates[torch.arange(flat, device=U.device), members] = alpha
    signal = coordinates.flatten(1) @ U.permute(0, 2, 1).flatten(0, 1)
    noise = mixture.noise * torch.randn(flat, d, generator=generator, dtype=U.dtype, device=U.device)
    signal, noise = (part.view(*shape, d).mT.contiguous() for part in (signal, noise))
    return Draw(signal + noise, signal, noise, members.view(shape))


# --- the exact density ----------------------------------------------------------------------------------------------


def log_density(mixture: Mixture, Z: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b N"]:
    """log p_sigma(z_i) = log sum_k weights_k N(z_i; 0, Sigma_k) for each token (model:gaussian_tokens_noise)."""
    return _joint(mixture, Z).logsumexp(-2)


def posterior(mixture: Mixture, Z: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b K N"]:
    """P(s_i = k | z_i): the probability of each subspace given the noisy token."""
    return _joint(mixture, Z).softmax(-2)


def score(mixture: Mixture, Z: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b d N"]:
    """grad log p_sigma(z_i) = - sum_k P(s_i = k | z_i) Sigma_k^-1 z_i, the score of section 2.3, in closed form."""
    _same_dimension(mixture.subspaces, Z)
    axes, variances = _axes(mixture)
    inside = axes.mT @ Z.unsqueeze(-3)
    outside = Z.unsqueeze(-3) - axes @ inside
    pull = axes @ (inside / (variances + mixture.noise**2)[..., None]) + outside / mixture.noise**2
    return -(posterior(mixture, Z).unsqueeze(-2) * pull).sum(-3)


def denoise(mixture: Mixture, Z: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b d N"]:
    """E[U_s alpha | z] = z + sigma^2 grad log p_sigma(z)   (Tweedie's formula of the diffusion overview, 2t = sigma^2).

    It tends to ``project_to_nearest`` as sigma -> 0, and equals it at sigma = 0.
    """
    if mixture.noise == 0:
        reached = mixture.subspaces * mixture.spread[:, None, :]
        return project_to_nearest(reached[mixture.weights > 0], Z)
    return Z + mixture.noise**2 * score(mixture, Z)


def project_to_nearest(U: Float[Tensor, "K d p"], Z: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b d N"]:
    """argmin of |z_i - x| over x in the union of the subspaces: the limit of the denoiser as sigma -> 0."""
    _same_dimension(U, Z)
    shadows = _orthogonal_projections(U) @ Z.unsqueeze(-3)
    nearest = (Z.unsqueeze(-3) - shadows).square().sum(-2).argmin(-2)
    index = nearest[..., None, None, :].expand(*shadows.shape[:-3], 1, *shadows.shape[-2:])
    return shadows.gather(-3, index).squeeze(-3)


def _same_dimension(U: Tensor, Z: Tensor) -> None:
    if Z.ndim < 2 or Z.shape[-2] != U.shape[-2]:
        raise UserError(
            f"tokens {tuple(Z.shape)} do not match bases of dimension {U.shape[-2]}; give tokens (*b, d, N)."
        )


def _orthogonal_projections(U: Float[Tensor, "K d p"]) -> Float[Tensor, "K d d"]:
    left, singular, _ = torch.linalg.svd(U, full_matrices=False)
    tolerance = singular.amax(-1, keepdim=True) * max(U.shape[1:]) * torch.finfo(U.dtype).eps
    axes = left * (singular > tolerance)[:, None, :]
    return axes @ axes.mT


def _axes(mixture: Mixture) -> tuple[Float[Tensor, "K d r"], Float[Tensor, "K r"]]:
    # Sigma_k = axes diag(variances) axes^T + noise^2 I with orthonormal axes. Splitting z into its component along
    # the axes and the rest keeps full accuracy at small noise, where the Woodbury formula suffers from cancellation.
    if mixture.noise == 0:
        raise UserError("tokens without noise have no density in R^d; give a noise level above 0.")
    left, singular, _ = torch.linalg.svd(mixture.subspaces * mixture.spread[:, None, :], full_matrices=False)
    return left, singular.square()


def _joint(mixture: Mixture, Z: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b K N"]:
    # log weights_k + log N(z_i; 0, Sigma_k)
    _same_dimension(mixture.subspaces, Z)
    axes, variances = _axes(mixture)
    d, rank = axes.shape[-2:]
    inside = axes.mT @ Z.unsqueeze(-3)
    outside = Z.unsqueeze(-3) - axes @ inside
    total = variances + mixture.noise**2
    squares = (inside.square() / total[..., None]).sum(-2) + outside.square().sum(-2) / mixture.noise**2
    logdet = total.log().sum(-1) + (d - rank) * math.log(mixture.noise**2)
    constant = mixture.weights.log() - 0.5 * (d * math.log(2 * math.pi) + logdet)
    return constant[:, None] - 0.5 * squares
