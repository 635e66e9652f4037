"""Value and gradient of R^c: Cholesky on the p x p side against the same closed form on the N x N side.

The N x N side gets the faster of its two solvers. A second row includes the projections U_k^T Z and the lift back to d.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from crate_mae.bench.harness import Laps, Spread, race
from crate_mae.bench.table import Row, at_least
from crate_mae.theory.rates import lift, project, projected_compression_rate_and_gradient

EPSILON = 0.5
Projected = Float[Tensor, "*b K p N"]
Rate = Callable[[Projected], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    batch: int = 32
    tokens: int = 196
    dim: int = 768
    subspaces: int = 12
    rounds: int = 11


WHOLE, QUICK = Sizes(), Sizes(batch=8, rounds=3)


def small_side(W: Projected) -> tuple[Float[Tensor, "*b"], Projected]:
    """R^c and its gradient given W_k = U_k^T Z, as ``theory.rates`` computes them on the smaller side."""
    return projected_compression_rate_and_gradient(W, EPSILON)


def token_side(W: Projected, solve: bool) -> tuple[Float[Tensor, "*b"], Projected]:
    """The same closed form with the N x N matrix I + beta W_k^T W_k, by solving with its factor or by inverting it."""
    beta = W.shape[-2] / (W.shape[-1] * EPSILON**2)
    gram = beta * (W.mT @ W) + torch.eye(W.shape[-1])
    factor, _ = torch.linalg.cholesky_ex(gram)
    value = factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
    if solve:
        return value, beta * torch.cholesky_solve(W.mT, factor).mT
    return value, W @ (beta * torch.cholesky_inverse(factor))


SIDES: dict[str, Rate] = {
    "p x p": small_side,
    "N x N, solving": lambda W: token_side(W, solve=True),
    "N x N, inverting": lambda W: token_side(W, solve=False),
}


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """A row with given projections, and one that includes them."""
    Z, U = tokens_and_bases(sizes)
    W = project(Z, U)

    def whole(rate: Rate) -> tuple[Tensor, Tensor]:
        value, gradient = rate(project(Z, U))
        return value, lift(gradient, U)

    shape = f"batch {sizes.batch}, N {sizes.tokens}, d {sizes.dim}, K {sizes.subspaces}, float32"
    given = {name: lambda rate=rate: rate(W) for name, rate in SIDES.items()}
    laps = race("R^c given W", given, sizes.rounds, console)
    yield _row("R^c and its gradient", f"R^c and its gradient given U_k^T Z, {shape}", laps, goal=3.5)
    every = {name: lambda rate=rate: whole(rate) for name, rate in SIDES.items()}
    laps = race("R^c whole", every, sizes.rounds, console)
    yield _row("the same with projections", f"R^c and its gradient with projections, {shape}", laps, goal=None)


def _row(name: str, what: str, laps: Laps, goal: float | None) -> Row:
    mine, *others = laps.seconds
    best = [min(times) for times in zip(*(laps.seconds[name] for name in others), strict=True)]
    ratio = Spread.of([b / a for a, b in zip(laps.seconds[mine], best, strict=True)])
    bound = at_least(goal) if goal else None
    return Row(name, what, "the N x N side", ratio, goal=bound, seconds=laps.spreads())


def tokens_and_bases(sizes: Sizes) -> tuple[Float[Tensor, "b d N"], Float[Tensor, "K d p"]]:
    """Random tokens, and orthonormal bases that span the space."""
    generator = torch.Generator().manual_seed(0)
    d, K = sizes.dim, sizes.subspaces
    Z = torch.randn(sizes.batch, d, sizes.tokens, generator=generator)
    frame = torch.linalg.qr(torch.randn(d, d, generator=generator))[0]
    return Z, frame.T.reshape(K, d // K, d).mT.contiguous()
