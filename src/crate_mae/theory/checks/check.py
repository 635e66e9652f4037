"""What a check hands back."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

Relation = Literal["<=", ">=", "="]


@dataclass(frozen=True)
class Check:
    """One claim and what was measured of it.

    A claim of the paper that does not hold is a finding and is reported as one; ``about`` tells it from a statement
    about this code, which has to hold.
    """

    claim: str
    """What is claimed, in words."""
    about: Literal["code", "paper"]
    hypotheses: str
    """'met', or the ones that are not; '-' where there are none."""
    measured: float
    relation: Relation
    expected: float
    """The bound or the exact value."""
    tolerance: float = 0.0
    """How far from ``expected`` still counts as equal."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """All that was measured, for the JSON file and the figures."""

    @property
    def holds(self) -> bool:
        if self.relation == "=":
            return abs(self.measured - self.expected) <= self.tolerance
        return self.measured <= self.expected if self.relation == "<=" else self.measured >= self.expected


def spread(values: list[float] | torch.Tensor) -> dict[str, Any]:
    """Mean and standard deviation over the draws, and how many there were."""
    numbers = torch.as_tensor(values, dtype=torch.float64)
    deviation = float(numbers.std()) if len(numbers) > 1 else 0.0
    return {"mean": float(numbers.mean()), "std": deviation, "draws": len(numbers)}


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest deviation over the largest entry."""
    return float((found - expected).abs().max() / expected.abs().max())
