"""Ito processes, their time reversals and flows; the structured processes of section 2.4; Euler and Heun.

Four processes have the same marginals p(., t): the SDE, its time reversal, and the probability-flow ODE of each. With
Psi = Sigma Sigma^T and the score s = grad log p(., t) they are

    dz = b(z, t) dt + Sigma(z, t) dw                                                   (eq:forward_general_diffusion)
    dz = [-b + div Psi + Psi s](z, T - t) dt + Sigma(z, T - t) dw                     (eq:backward_general_diffusion)
    dz = [b - 1/2 div Psi - 1/2 Psi s](z, t) dt                                            (eq:general_diffusion_ode)
    dz = [-b + 1/2 div Psi + 1/2 Psi s](z, T - t) dt                              (eq:backward_general_diffusion_ode)

The appendix prints -b(x, t) in the last one, and, for the variance-exploding case (b = 0, Psi = 2 I), a reverse drift s
and flows +s and -s. Its general formulas, which are implemented here, give 2 s, -s and +s.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.theory.rates import compression_rate_gradient

Field = Callable[[Tensor, float], Tensor]
"""(x, t) -> a tensor of x's shape: a drift, a score or a velocity."""
Method = Literal["euler", "heun"]
Callback = Callable[[float, Tensor], None]
"""Called with (t, x) at every time of a grid, including the first and the last."""


@dataclass(frozen=True)
class ItoProcess:
    """dz = b(z, t) dt + Sigma(z, t) dw on [0, T]   (eq:forward_general_diffusion)."""

    drift: Field
    """b(x, t), of x's shape."""
    diffusion: Callable[[Tensor, float], Tensor | float]
    """Sigma(x, t): a number g(t), which means g I, for x of any shape; or matrices ``(*b, m, m)`` for x ``(*b, m)``."""
    horizon: float
    """T."""


# --- the general formulas -------------------------------------------------------------------------------------------


def time_reversal(process: ItoProcess, score: Field) -> ItoProcess:
    """The process whose distribution at t is that of ``process`` at T - t   (eq:backward_general_diffusion).

    drift: ``[-b + div Psi + Psi s](x, T - t)``; diffusion: Sigma(x, T - t). ``score`` takes the time of ``process``.
    """
    horizon = process.horizon

    def drift(x: Tensor, t: float) -> Tensor:
        return _spread_of(process, score, x, horizon - t) - process.drift(x, horizon - t)

    return ItoProcess(drift, lambda x, t: process.diffusion(x, horizon - t), horizon)


def probability_flow(process: ItoProcess, score: Field) -> Field:
    """The velocity b - 1/2 div Psi - 1/2 Psi s; its ODE has the marginals of the SDE   (eq:general_diffusion_ode)."""
    return lambda x, t: process.drift(x, t) - 0.5 * _spread_of(process, score, x, t)


def reverse_probability_flow(process: ItoProcess, score: Field) -> Field:
    """The velocity ``[-b + 1/2 div Psi + 1/2 Psi s](x, T - t)`` (eq:backward_general_diffusion_ode, T - t in b)."""
    forward = probability_flow(process, score)
    return lambda x, t: -forward(x, process.horizon - t)


def _spread_of(process: ItoProcess, score: Field, x: Tensor, t: float) -> Tensor:
    # (div [Psi p]) / p = div Psi + Psi s
    sigma = process.diffusion(x, t)
    if not isinstance(sigma, Tensor) or sigma.ndim == 0:
        return sigma**2 * score(x, t)
    psi = sigma @ sigma.mT
    return _divergence(process, x, t) + (psi @ score(x, t)[..., None])[..., 0]


def _divergence(process: ItoProcess, x: Float[Tensor, "*b m"], t: float) -> Float[Tensor, "*b m"]:
    # (div Psi)_i = sum_j d Psi_ij / d x_j, with a Jacobian for each sample
    def psi(point: Tensor) -> Tensor:
        sigma = process.diffusion(point, t)
        return sigma @ sigma.mT  # type: ignore[union-attr,operator]

    points = x.reshape(-1, x.shape[-1])
    jacobian = torch.func.vmap(torch.func.jacrev(psi))(points)
    return torch.einsum("nijj->ni", jacobian).reshape(x.shape)


def variance_exploding(horizon: float) -> ItoProcess:
    """dz = sqrt(2) dw: z(t) ~ N(z(0), 2 t I), so time t is noise of standard deviation sqrt(2 t).

    By the general formulas its reversal is dz = 2 s dt + sqrt(2) dw and its flows are -s and, reversed, +s. The
    appendix prints s, +s and -s.
    """
    return ItoProcess(lambda x, t: torch.zeros_like(x), lambda x, t: 2**0.5, horizon)


# --- the structured processes of section 2.4 ------------------------------------------------------------------------


def structured_score(U: Float[Tensor, "K d p"], epsilon: float, horizon: float) -> Field:
    """-grad R^c(Z | U) / sigma_t^2 with sigma_t^2 = 2 (T - t): what the paper uses in place of the score.

    Time runs as in denoising: the noise is zero at t = T, where the expression is singular.
    """
    return lambda Z, t: -compression_rate_gradient(Z, U, epsilon) / (2 * _remaining(horizon, t))


def structured_denoising(U: Float[Tensor, "K d p"], epsilon: float, horizon: float) -> ItoProcess:
    """dZ = -1 / (T - t) grad R^c(Z | U) dt + sqrt(2) dB   (eq:compression_sde); integrate up to T - t_1 < T.

    This is the reversed variance-exploding process, drift 2 s, with ``structured_score`` for s. Its ``time_reversal``
    with that score is sqrt(2) dB: the drift cancels.
    """
    score = structured_score(U, epsilon, horizon)
    return ItoProcess(lambda Z, t: 2 * score(Z, t), lambda Z, t: 2**0.5, horizon)


def structured_denoising_flow(U: Float[Tensor, "K d p"], epsilon: float, horizon: float) -> Field:
    """dZ = -1 / (2 (T - t)) grad R^c(Z | U) dt   (eq:compression_ode), the encoder; integrate up to T - t_1 < T."""
    return structured_score(U, epsilon, horizon)


def structured_diffusion_flow(U: Float[Tensor, "K d p"], epsilon: float) -> Field:
    """dY = 1 / (2 t) grad R^c(Y | U) dt   (eq:compression_ode_reverse), the decoder; integrate from t_1 > 0."""
    return lambda Y, t: compression_rate_gradient(Y, U, epsilon) / (2 * _remaining(t, 0.0))


def _remaining(late: float, early: float) -> float:
    if not late > early:
        raise UserError("the structured processes are singular at zero noise; integrate on [t_1, T] with t_1 > 0.")
    return late - early


def diffusion_times(t_1: float, kappa: float, layers: int) -> Float[Tensor, " layers"]:
    """t_{l+1} = (1 + 2 kappa) t_l, l = 1 .. L, so that each Euler step of the decoder's flow has size kappa.

    The last is T = (1 + 2 kappa)^{L-1} t_1; the paper prints the exponent L. In the other direction, an Euler step of
    the encoder's flow on the same times has size kappa / (1 + 2 kappa), not kappa (see ``denoising_times``).
    """
    if not (0 < t_1 < math.inf and 0 < kappa < math.inf and layers >= 1 and layers == int(layers)):
        raise UserError(
            f"t_1 = {t_1}, kappa = {kappa}, layers = {layers}; a schedule needs numbers above 0 and whole layers."
        )
    return t_1 * (1 + 2 * kappa) ** torch.arange(layers, dtype=torch.float64)


def denoising_times(t_1: float, kappa: float, layers: int) -> Float[Tensor, " layers"]:
    """T - t_l for l = L .. 1: the same times in the direction of denoising, from 0 up to T - t_1."""
    times = diffusion_times(t_1, kappa, layers).flip(0)
    return times[0] - times


# --- integrators ----------------------------------------------------------------------------------------------------


def integrate_ode(
    velocity: Field,
    x: Float[Tensor, "*shape"],
    times: Float[Tensor, " n"],
    method: Method = "heun",
    callback: Callback | None = None,
) -> Float[Tensor, "*shape"]:
    """dx = velocity(x, t) dt along a grid of times; Euler is of order 1, Heun (explicit trapezoid rule) of order 2."""
    return _march(x, times, method, callback, velocity, lambda x, t, index, h: torch.zeros_like(x))


def integrate_sde(
    process: ItoProcess,
    x: Float[Tensor, "*shape"],
    times: Float[Tensor, " n"],
    noise: Float[Tensor, "steps *shape"],
    method: Method = "euler",
    callback: Callback | None = None,
) -> Float[Tensor, "*shape"]:
    """dz = b dt + Sigma dw along a grid of times; ``noise`` is standard normal, with the shape of x for each step.

    Euler is Euler-Maruyama. Heun averages the drift over both ends of a step and takes Sigma at its start, as the Ito
    integral requires.
    """
    if noise.shape != (len(times) - 1, *x.shape):
        raise UserError(
            f"noise of shape {tuple(noise.shape)} does not match {len(times) - 1} steps of x {tuple(x.shape)}; "
            "draw a standard normal tensor of the shape of x for each step."
        )

    def kick(x: Tensor, t: float, index: int, h: float) -> Tensor:
        sigma = process.diffusion(x, t)
        scaled = h**0.5 * noise[index]
        is_matrix = isinstance(sigma, Tensor) and sigma.ndim > 0
        return (sigma @ scaled[..., None])[..., 0] if is_matrix else sigma * scaled

    return _march(x, times, method, callback, process.drift, kick)


def _march(
    x: Tensor,
    times: Tensor,
    method: Method,
    callback: Callback | None,
    drift: Field,
    kick: Callable[[Tensor, float, int, float], Tensor],
) -> Tensor:
    if method not in ("euler", "heun"):
        raise UserError(f"the method is {method!r}; choose 'euler' or 'heun'.")
    grid = times.tolist()
    if not grid or not all(later > earlier for earlier, later in pairwise(grid)):
        raise UserError("the times do not increase; integrate a reversed process in its own time, from 0 to T.")
    if callback:
        callback(grid[0], x)
    for index, (t, following) in enumerate(pairwise(grid)):
        h = following - t
        slope, jump = drift(x, t), kick(x, t, index, h)
        if method == "heun":
            slope = 0.5 * (slope + drift(x + h * slope + jump, following))
        x = x + h * slope + jump
        if callback:
            callback(following, x)
    return x
