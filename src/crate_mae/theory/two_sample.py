"""Are two sets of points drawn from one law? A test on moments and one on a kernel distance, both by permutation.

Points are rows here: n samples of m numbers each.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.errors import UserError


@dataclass(frozen=True)
class TwoSample:
    """A distance between two samples and how often chance alone makes one as large."""

    distance: float
    p_value: float
    null_median: float
    """The median distance between random halves of the pooled points: what 'no difference' looks like."""


def moment_test(
    x: Float[Tensor, "n m"], y: Float[Tensor, "n m"], generator: torch.Generator, permutations: int = 400
) -> TwoSample:
    """The largest standardised difference among all means and second moments of x and y."""
    rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
    pooled = torch.cat([x, y])
    features = torch.cat([pooled, pooled[:, rows] * pooled[:, columns]], 1)
    deviations = features.std(0)
    features = (features - features.mean(0)) / torch.where(deviations > 0, deviations, 1.0)
    signs = _signs(x, y, permutations, generator)
    statistics = (signs.T @ features).abs().amax(1) * (len(x) / 2) ** 0.5
    return _verdict(statistics)


def kernel_test(
    x: Float[Tensor, "n m"], y: Float[Tensor, "n m"], generator: torch.Generator, permutations: int = 400
) -> TwoSample:
    """Maximum mean discrepancy with a Gaussian kernel as wide as the median distance; the squared, biased form."""
    pooled = torch.cat([x, y])
    squares = torch.cdist(pooled, pooled).square()
    apart = squares[squares > 0]
    kernel = torch.exp(-squares / apart.median()) if len(apart) else torch.ones_like(squares)
    signs = _signs(x, y, permutations, generator)
    return _verdict((signs * (kernel @ signs)).sum(0))


def _signs(x: Tensor, y: Tensor, permutations: int, generator: torch.Generator) -> Float[Tensor, "both cases"]:
    # Column 0 is the true labels: +1/n for x, -1/n for y. The others shuffle them.
    if x.shape != y.shape or len(x) < 2:
        raise UserError(
            f"samples of shape {tuple(x.shape)} and {tuple(y.shape)}; give as many points of both, 2 or more."
        )
    n = len(x)
    truth = torch.cat([x.new_ones(n), -x.new_ones(n)]) / n
    orders = (torch.randperm(2 * n, generator=generator, device=generator.device) for _ in range(permutations))
    shuffled = [truth[order.to(x.device)] for order in orders]
    return torch.stack([truth, *shuffled], 1)


def _verdict(statistics: Float[Tensor, " cases"]) -> TwoSample:
    found, null = statistics[0], statistics[1:]
    return TwoSample(float(found), float(((null >= found).sum() + 1) / (len(null) + 1)), float(null.median()))
