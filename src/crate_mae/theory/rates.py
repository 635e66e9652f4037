"""Lossy coding rates, their differences and their closed-form gradients.

Tokens are columns, as in the paper. Every rate is 1/2 logdet(I + c M^T M) of some matrix M, and

    logdet(I + c M^T M) = logdet(I + c M M^T),   M (c^-1 I + M^T M)^-1 = (c^-1 I + M M^T)^-1 M,

so one Cholesky factor of the smaller side gives both the value and the gradient. Where c M^T M is so large that I is
lost to rounding, a QR factorisation of M stacked on I is used instead: slower, but it never squares M.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.errors import UserError

# --- rates ----------------------------------------------------------------------------------------------------------


def coding_rate(Z: Float[Tensor, "*b d N"], epsilon: float, unit_norm: bool = False) -> Float[Tensor, "*b"]:
    """R(Z) = 1/2 logdet(I + alpha Z^T Z),   alpha = d / (N eps^2)   (eq:r_def).

    The number of nats that encode the tokens Z up to precision eps. Differs from the paper by ``unit_norm``, which
    first scales each token to norm 1 (zero tokens stay zero).
    """
    return _half_logdet(_scaled(Z, unit_norm), _precision(Z, epsilon))


def projected_compression_rate(
    W: Float[Tensor, "*b K p N"], epsilon: float, unit_norm: bool = False
) -> Float[Tensor, "*b"]:
    """R^c = 1/2 sum_k logdet(I + beta W_k^T W_k),   beta = p / (N eps^2),   given W_k = U_k^T Z   (eq:rc_def).

    Differs from the paper by ``unit_norm``, which first scales each projected token (a column of a W_k) to norm 1,
    as the authors' script for the layer-wise figure does.
    """
    return _half_logdet(_scaled(W, unit_norm), _precision(W, epsilon)).sum(-1)


def compression_rate(
    Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float, unit_norm: bool = False
) -> Float[Tensor, "*b"]:
    """R^c(Z | U_[K]) = 1/2 sum_k logdet(I + beta (U_k^T Z)^T (U_k^T Z)),   beta = p / (N eps^2)   (eq:rc_def).

    The bases U_k need not be orthonormal. Differs from the paper by ``unit_norm``, which first scales each token of Z,
    not its projections, to norm 1.
    """
    return projected_compression_rate(project(_scaled(Z, unit_norm), U), epsilon)


def rate_reduction(
    Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float, unit_norm: bool = False
) -> Float[Tensor, "*b"]:
    """Delta R(Z | U_[K]) = R(Z) - R^c(Z | U_[K])   (eq:sparse_rr)."""
    return coding_rate(Z, epsilon, unit_norm) - compression_rate(Z, U, epsilon, unit_norm)


def sparse_rate_reduction(
    Z: Float[Tensor, "*b d N"],
    U: Float[Tensor, "K d p"],
    epsilon: float,
    lambda_: float,
    norm: Literal["l0", "l1"] = "l0",
    unit_norm: bool = False,
) -> Float[Tensor, "*b"]:
    """Delta R(Z | U_[K]) - lambda ||Z||_0, the objective to be maximised   (eq:sparse_rr).

    ``norm="l1"`` uses lambda ||Z||_1 instead, the penalty that ISTA minimises. Both norms sum over the entries of Z,
    or of the scaled Z with ``unit_norm``.
    """
    if norm not in ("l0", "l1"):
        raise UserError(f"the norm is {norm!r}; choose 'l0' or 'l1'.")
    scaled = _scaled(Z, unit_norm)
    size = (scaled != 0).to(Z.dtype) if norm == "l0" else scaled.abs()
    return rate_reduction(scaled, U, epsilon) - lambda_ * size.sum((-2, -1))


# --- gradients ------------------------------------------------------------------------------------------------------


def coding_rate_gradient(
    Z: Float[Tensor, "*b d N"], epsilon: float, unit_norm: bool = False
) -> Float[Tensor, "*b d N"]:
    """grad R(Z) = Z (alpha^-1 I + Z^T Z)^-1,   alpha = d / (N eps^2)   (gradient of eq:r_def; not in the paper)."""
    _, gradient = _value_and_gradient(_scaled(Z, unit_norm), _precision(Z, epsilon))
    return _through_scaling(gradient, Z) if unit_norm else gradient


def projected_compression_rate_and_gradient(
    W: Float[Tensor, "*b K p N"], epsilon: float, unit_norm: bool = False
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b K p N"]]:
    """R^c given W_k = U_k^T Z, and its gradient W_k (beta^-1 I + W_k^T W_k)^-1 in each W_k, from one factorisation.

    ``lift`` turns it into the gradient in Z   (eq:deltar-gradient).
    """
    value, gradient = _value_and_gradient(_scaled(W, unit_norm), _precision(W, epsilon))
    return value.sum(-1), _through_scaling(gradient, W) if unit_norm else gradient


def compression_rate_gradient(
    Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float, unit_norm: bool = False
) -> Float[Tensor, "*b d N"]:
    """grad R^c(Z | U_[K]) = sum_k U_k U_k^T Z (beta^-1 I + (U_k^T Z)^T U_k^T Z)^-1   (eq:deltar-gradient)."""
    _, inner = projected_compression_rate_and_gradient(project(_scaled(Z, unit_norm), U), epsilon)
    gradient = lift(inner, U)
    return _through_scaling(gradient, Z) if unit_norm else gradient


def rate_reduction_gradient(
    Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float, unit_norm: bool = False
) -> Float[Tensor, "*b d N"]:
    """grad Delta R(Z | U_[K]) = grad R(Z) - grad R^c(Z | U_[K])."""
    return coding_rate_gradient(Z, epsilon, unit_norm) - compression_rate_gradient(Z, U, epsilon, unit_norm)


# --- projection onto the subspaces ----------------------------------------------------------------------------------


def project(Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"]) -> Float[Tensor, "*b K p N"]:
    """W_k = U_k^T Z for every k."""
    if U.ndim != 3 or Z.ndim < 2:
        raise UserError(f"tokens {tuple(Z.shape)} and bases {tuple(U.shape)}; give tokens (*b, d, N), bases (K, d, p).")
    if Z.shape[-2] != U.shape[-2]:
        raise UserError(f"tokens of dimension {Z.shape[-2]} do not match bases of dimension {U.shape[-2]}; both are d.")
    return (U.transpose(1, 2).flatten(0, 1) @ Z).unflatten(-2, (U.shape[0], U.shape[2]))


def lift(W: Float[Tensor, "*b K p N"], U: Float[Tensor, "K d p"]) -> Float[Tensor, "*b d N"]:
    """sum_k U_k W_k."""
    return U.permute(1, 0, 2).flatten(1) @ W.flatten(-3, -2)


# --- logdet and its gradient ----------------------------------------------------------------------------------------


def _precision(M: Tensor, epsilon: float) -> float:
    # rows / (columns eps^2): alpha for Z, beta for W.
    if M.ndim < 2 or 0 in M.shape[-2:]:
        raise UserError(f"tokens of shape {tuple(M.shape[-2:])} are empty; give at least one token.")
    if not (epsilon > 0 and epsilon**2 > 0 and math.isfinite(M.shape[-2] / epsilon**2)):
        raise UserError(f"epsilon is {epsilon}; the precision of a code and its square must be above 0.")
    return M.shape[-2] / (M.shape[-1] * epsilon**2)


def _scaled(M: Float[Tensor, "*b r c"], unit_norm: bool) -> Float[Tensor, "*b r c"]:
    return M / _lengths(M) if unit_norm else M


def _lengths(M: Float[Tensor, "*b r c"]) -> Float[Tensor, "*b 1 c"]:
    squares = M.square().sum(-2, keepdim=True)
    return torch.where(squares > 0, squares, 1.0).sqrt()


def _through_scaling(gradient: Float[Tensor, "*b r c"], M: Float[Tensor, "*b r c"]) -> Float[Tensor, "*b r c"]:
    # The chain rule for m -> m / |m|. It has no derivative at a zero token, which gets the gradient 0.
    lengths = _lengths(M)
    unit = M / lengths
    tangent = (gradient - unit * (unit * gradient).sum(-2, keepdim=True)) / lengths
    return tangent * (M != 0).any(-2, keepdim=True)


def _half_logdet(M: Float[Tensor, "*b r c"], scale: float) -> Float[Tensor, "*b"]:
    value, factor = _value_and_factor(M, scale)
    return _by_qr(M, scale)[0] if factor is None else value


def _value_and_gradient(
    M: Float[Tensor, "*b r c"], scale: float
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b r c"]]:
    value, factor = _value_and_factor(M, scale)
    if factor is None:
        return _by_qr(M, scale)
    root = _inverse_of_triangle(factor)
    inverse = scale * (root.mT @ root)
    return value, inverse @ M if M.shape[-2] <= M.shape[-1] else M @ inverse


def _value_and_factor(
    M: Float[Tensor, "*b r c"], scale: float
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b s s"] | None]:
    # L L^T = I + scale * Gram on the smaller side; None in place of L where I would be lost to rounding.
    gram = scale * (M @ M.mT if M.shape[-2] <= M.shape[-1] else M.mT @ M)
    factor, failed = torch.linalg.cholesky_ex(gram + torch.eye(gram.shape[-1], dtype=M.dtype, device=M.device))
    # L_ii^2 - 1, computed without forming L_ii^2, which rounds to 1 where epsilon is large
    below = factor.tril(-1)
    excess = gram.diagonal(dim1=-2, dim2=-1) - torch.linalg.vecdot(below, below)
    value = 0.5 * torch.log1p(excess).sum(-1)
    with torch.no_grad():
        condition = (1 + gram.diagonal(dim1=-2, dim2=-1).amax(-1)) / (1 + excess.amin(-1))
        lost = torch.finfo(factor.dtype).eps * condition
        allowed = 1e-11 if factor.dtype == torch.float64 else 1e-2
        if not failed.any() and (lost <= allowed).all():
            return value, factor
    if not M.isfinite().all():
        raise UserError("the tokens contain NaN or infinity; check how they were computed.")
    return value, None


def _by_qr(M: Float[Tensor, "*b r c"], scale: float) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b r c"]]:
    # With M wide and [sqrt(c) M^T; I] = [Q_1; Q_2] R:  R^T R = I + c M M^T,  (c^-1 I + M M^T)^-1 M = sqrt(c) Q_2 Q_1^T.
    wide = M.shape[-2] <= M.shape[-1]
    tall = M.mT if wide else M
    size = tall.shape[-1]
    identity = torch.eye(size, dtype=M.dtype, device=M.device).expand(*M.shape[:-2], size, size)
    Q, R = torch.linalg.qr(torch.cat([math.sqrt(scale) * tall, identity], -2))
    upper, lower = Q[..., :-size, :], Q[..., -size:, :]
    gradient = math.sqrt(scale) * (upper @ lower.mT)
    return R.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1), gradient.mT if wide else gradient


def _inverse_of_triangle(L: Float[Tensor, "*b s s"]) -> Float[Tensor, "*b s s"]:
    # [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]: batched products, which run in parallel over the batch.
    # LAPACK's inverses and solves process a batch one matrix at a time and split each small matrix between threads,
    # which takes a hundred times as long on a busy machine.
    size = L.shape[-1]
    if size <= 16:
        identity = torch.eye(size, dtype=L.dtype, device=L.device)
        return torch.linalg.solve_triangular(L, identity.expand_as(L), upper=False)
    half = size // 2
    above, below = _inverse_of_triangle(L[..., :half, :half]), _inverse_of_triangle(L[..., half:, half:])
    corner = -(below @ (L[..., half:, :half] @ above))
    zero = torch.zeros_like(corner.mT)
    return torch.cat([torch.cat([above, zero], -1), torch.cat([corner, below], -1)], -2)
