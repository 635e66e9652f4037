"""Closed forms of the rates against autograd and against the N x N formulas."""

import torch
from torch import Tensor

from crate_mae.theory import rates
from crate_mae.theory.checks.check import Check, relative_error

SHAPES = [(24, 10, 3, 8), (6, 40, 2, 3), (5, 7, 4, 5)]
"""(d, N, K, p): fewer tokens than p, more tokens than d, bases that overlap."""


def closed_form_gradients(generator: torch.Generator) -> Check:
    """Gradients of R, R^c and Delta R against autograd."""
    errors = {}
    for d, n, k, p in SHAPES:
        Z = torch.randn(d, n, generator=generator, dtype=torch.float64).requires_grad_()
        U = torch.randn(k, d, p, generator=generator, dtype=torch.float64)
        for name, value, gradient in [
            ("R", rates.coding_rate(Z, 0.3), rates.coding_rate_gradient(Z.detach(), 0.3)),
            ("R^c", rates.compression_rate(Z, U, 0.3), rates.compression_rate_gradient(Z.detach(), U, 0.3)),
            ("Delta R", rates.rate_reduction(Z, U, 0.3), rates.rate_reduction_gradient(Z.detach(), U, 0.3)),
        ]:
            (expected,) = torch.autograd.grad(value, Z)
            errors[f"{name} d={d} N={n} K={k} p={p}"] = relative_error(gradient, expected)
    claim = "closed-form gradients of R, R^c, Delta R equal autograd (relative error)"
    return Check(claim, "code", "-", max(errors.values()), "<=", 1e-10, numbers=errors)


def smaller_side(generator: torch.Generator) -> Check:
    """R^c and its gradient against the printed formulas, by eigenvalues and an explicit inverse."""
    errors = {}
    for d, n, k, p in SHAPES:
        Z = torch.randn(d, n, generator=generator, dtype=torch.float64)
        U = torch.randn(k, d, p, generator=generator, dtype=torch.float64)
        value, gradient = _token_side(Z, U, 0.3)
        errors[f"value d={d} N={n}"] = relative_error(rates.compression_rate(Z, U, 0.3), value)
        errors[f"gradient d={d} N={n}"] = relative_error(rates.compression_rate_gradient(Z, U, 0.3), gradient)
    claim = "R^c and its gradient on the smaller side equal the N x N formulas as printed (relative error)"
    return Check(claim, "code", "-", max(errors.values()), "<=", 1e-10, numbers=errors)


def _token_side(Z: Tensor, U: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    # eq:rc_def and eq:deltar-gradient as printed, by eigenvalues and an explicit inverse
    beta = U.shape[-1] / (Z.shape[-1] * epsilon**2)
    identity = torch.eye(Z.shape[-1], dtype=Z.dtype)
    value, gradient = torch.zeros((), dtype=Z.dtype), torch.zeros_like(Z)
    for basis in U:
        gram = (basis.T @ Z).T @ (basis.T @ Z)
        value += 0.5 * torch.linalg.eigvalsh(identity + beta * gram).log().sum()
        gradient += basis @ basis.T @ Z @ torch.linalg.inv(identity / beta + gram)
    return value, gradient
