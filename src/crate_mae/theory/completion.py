"""Masked completion as matrix completion: the analogy of section 2.5, with soft-impute as the classical baseline.

Tokens are the columns of X (d x N); ``visible`` is True where an entry is seen. Two ways to complete: by the low rank
of the whole matrix, and by known subspaces, one for each token.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from crate_mae.errors import UserError


def soft_impute(
    X: Float[Tensor, "d N"],
    visible: Bool[Tensor, "d N"],
    shrink: float = 1e-3,
    stages: int = 12,
    iterations: int = 30,
) -> Float[Tensor, "d N"]:
    """``argmin_M 1/2 ||visible * (X - M)||_F^2 + lambda ||M||_*``, by repeated soft-thresholding of singular values.

        M <- S_lambda(visible * X + (1 - visible) * M)

    lambda falls geometrically from the largest singular value of what is seen, s_1, to ``shrink`` s_1, each stage
    starting where the last one ended. What is masked in X is never read.
    """
    _same_shape(X, visible)
    if not visible.any():
        raise UserError("every entry is masked; leave some visible.")
    seen = torch.where(visible, X, 0.0)
    top = float(torch.linalg.matrix_norm(seen, 2))
    estimate = torch.zeros_like(seen)
    for threshold in (top * shrink ** torch.linspace(0, 1, stages)).tolist():
        for _ in range(iterations):
            left, singular, right = torch.linalg.svd(torch.where(visible, seen, estimate), full_matrices=False)
            estimate = (left * (singular - threshold).clamp(min=0)) @ right
    return estimate


def complete_on_subspaces(
    X: Float[Tensor, "d N"], visible: Bool[Tensor, "d N"], U: Float[Tensor, "K d p"]
) -> Float[Tensor, "d N"]:
    """For each token the U_k alpha nearest to what is seen of it: what knowing the signal model (eq. 1) allows.

    A token with nothing visible becomes zero, the mean of the model.
    """
    _same_shape(X, visible)
    columns = []
    for token, shown in zip(X.T, visible.T, strict=True):
        if not shown.any():
            columns.append(torch.zeros_like(token))
            continue
        basis, target = U[:, shown], token[shown].expand(len(U), -1)
        # by pseudo-inverse: fewer visible entries than p leave alpha open, and the shortest one is taken
        alpha = (torch.linalg.pinv(basis) @ target[..., None])[..., 0]
        misfit = ((basis @ alpha[..., None])[..., 0] - target).square().sum(-1)
        best = int(misfit.argmin())
        columns.append(U[best] @ alpha[best])
    return torch.stack(columns, 1) if columns else X.clone()


def masked_error(X: Float[Tensor, "d N"], completed: Float[Tensor, "d N"], visible: Bool[Tensor, "d N"]) -> float:
    """||completed - X|| / ||X|| over the masked entries; 1 is what filling in zeros gives."""
    hidden = ~visible
    if not hidden.any():
        raise UserError("nothing is masked, so nothing was completed; mask some entries.")
    if not X[hidden].any():
        raise UserError("no masked entry differs from 0, so there is nothing to complete; mask other entries.")
    return float((completed - X)[hidden].norm() / X[hidden].norm())


def _same_shape(X: Tensor, visible: Tensor) -> None:
    if X.shape != visible.shape:
        raise UserError(f"tokens {tuple(X.shape)} and a mask {tuple(visible.shape)}; give one shape, d x N.")


def _is_ratio(ratio: float) -> None:
    if not 0 <= ratio <= 1:
        raise UserError(f"the masked ratio is {ratio}; give a number between 0 and 1.")


def mask_entries(d: int, N: int, ratio: float, generator: torch.Generator) -> Bool[Tensor, "d N"]:
    """Visible entries, each masked by itself with probability ``ratio``: the mask of matrix completion."""
    _is_ratio(ratio)
    return torch.rand(d, N, generator=generator, device=generator.device) >= ratio


def mask_tokens(d: int, N: int, ratio: float, generator: torch.Generator) -> Bool[Tensor, "d N"]:
    """Visible entries with round(ratio N) whole tokens masked: the mask of masked autoencoding."""
    _is_ratio(ratio)
    order = torch.rand(N, generator=generator, device=generator.device).argsort()
    return (order >= round(ratio * N)).expand(d, N).clone()
