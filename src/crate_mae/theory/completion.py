"""Masked completion as matrix completion: the analogy of section 2.5, with soft-impute as the classical baseline.

Tokens are the columns of X (d x N); ``visible`` is True where an entry is not masked. There are two methods: one relies
on the low rank of the whole matrix, the other on known subspaces, one of which holds each token.
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

    lambda falls geometrically from s_1, the largest singular value of the visible part, to ``shrink`` s_1; each stage
    starts from the result of the previous one. The masked entries of X are never read.
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
    """For each token, the U_k alpha closest to its visible entries: the best that a known signal model (eq. 1) allows.

    A token with no visible entry becomes zero, the mean of the model.
    """
    _same_shape(X, visible)
    columns = []
    for token, shown in zip(X.T, visible.T, strict=True):
        if not shown.any():
            columns.append(torch.zeros_like(token))
            continue
        basis, target = U[:, shown], token[shown].expand(len(U), -1)
        # pseudo-inverse: with fewer visible entries than p, alpha is not unique, and the one of least norm is taken
        alpha = (torch.linalg.pinv(basis) @ target[..., None])[..., 0]
        misfit = ((basis @ alpha[..., None])[..., 0] - target).square().sum(-1)
        best = int(misfit.argmin())
        columns.append(U[best] @ alpha[best])
    return torch.stack(columns, 1) if columns else X.clone()


def masked_error(X: Float[Tensor, "d N"], completed: Float[Tensor, "d N"], visible: Bool[Tensor, "d N"]) -> float:
    """||completed - X|| / ||X|| over the masked entries; filling in zeros gives 1."""
    hidden = ~visible
    if not hidden.any():
        raise UserError("nothing is masked, so there is nothing to complete; mask some entries.")
    if not X[hidden].any():
        raise UserError("every masked entry is 0, so a relative error is not defined; mask other entries.")
    return float((completed - X)[hidden].norm() / X[hidden].norm())


def _same_shape(X: Tensor, visible: Tensor) -> None:
    if X.shape != visible.shape:
        raise UserError(f"tokens {tuple(X.shape)} and mask {tuple(visible.shape)} differ; give both the shape d x N.")


def _is_ratio(ratio: float) -> None:
    if not 0 <= ratio <= 1:
        raise UserError(f"the mask ratio is {ratio}; give a number between 0 and 1.")


def mask_entries(d: int, N: int, ratio: float, generator: torch.Generator) -> Bool[Tensor, "d N"]:
    """True for visible entries; each is masked independently with probability ``ratio``, as in matrix completion."""
    _is_ratio(ratio)
    return torch.rand(d, N, generator=generator, device=generator.device) >= ratio


def mask_tokens(d: int, N: int, ratio: float, generator: torch.Generator) -> Bool[Tensor, "d N"]:
    """True for visible entries; round(ratio N) whole tokens are masked, as in masked autoencoding."""
    _is_ratio(ratio)
    order = torch.rand(N, generator=generator, device=generator.device).argsort()
    return (order >= round(ratio * N)).expand(d, N).clone()
