"""Permutation tests of whether two samples have the same distribution: by moments, and by a kernel distance.

Samples are rows here: n points of m numbers each.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.errors import UserError


@dataclass(frozen=True)
class TwoSample:
    """A distance between two samples, and the probability of one at least as large under the null hypothesis."""

    distance: float
    p_value: float
    null_median: float
    """The median distance between random halves of the pooled points: its typical value if there is no difference."""


def moment_test(
    x: Float[Tensor, "n m"], y: Float[Tensor, "n m"], generator: torch.Generator, permutations: int = 400
) -> TwoSample:
    """The largest standardised difference between the means and second moments of x and y."""
    rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
    pooled = torch.cat([x, y])
    features = torch.cat([pooled, pooled[:, rows] * pooled[:, columns]], 1)
    std = features.std(0)
    features = (features - features.mean(0)) / torch.where(std > 0, std, 1.0)
    signs = _signs(x, y, permutations, generator)
    statistics = (signs.T @ features).abs().amax(1) * (len(x) / 2) ** 0.5
    return _verdict(statistics)


def kernel_test(
    x: Float[Tensor, "n m"], y: Float[Tensor, "n m"], generator: torch.Generator, permutations: int = 400
) -> TwoSample:
    """Squared maximum mean discrepancy (biased estimate), Gaussian kernel of the median distance as its width."""
    pooled = torch.cat([x, y])
    squares = torch.cdist(pooled, pooled).square()
    apart = squares[squares > 0]
    kernel = torch.exp(-squares / apart.median()) if len(apart) else torch.ones_like(squares)
    signs = _signs(x, y, permutations, generator)
    return _verdict((signs * (kernel @ signs)).sum(0))


def _signs(x: Tensor, y: Tensor, permutations: int, generator: torch.Generator) -> Float[Tensor, "both cases"]:
    # Column 0 holds the true labels, +1/n for x and -1/n for y; the other columns are permutations of it.
    if x.shape != y.shape or len(x) < 2:
        raise UserError(
            f"the samples have shapes {tuple(x.shape)} and {tuple(y.shape)}; give equal shapes, 2 points or more."
        )
    n = len(x)
    truth = torch.cat([x.new_ones(n), -x.new_ones(n)]) / n
    orders = (torch.randperm(2 * n, generator=generator, device=generator.device) for _ in range(permutations))
    shuffled = [truth[order.to(x.device)] for order in orders]
    return torch.stack([truth, *shuffled], 1)


def _verdict(statistics: Float[Tensor, " cases"]) -> TwoSample:
    found, null = statistics[0], statistics[1:]
    return TwoSample(float(found), float(((null >= found).sum() + 1) / (len(null) + 1)), float(null.median()))
