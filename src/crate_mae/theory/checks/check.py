"""The result of a check."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float

Relation = Literal["<=", ">=", "="]


@dataclass(frozen=True)
class Check:
    """One claim and its measurement.

    ``about`` distinguishes a claim of the paper, which is reported as a finding if it does not hold, from a statement
    about this code, which has to hold.
    """

    claim: str
    """The claim in words."""
    about: Literal["code", "paper"]
    hypotheses: str
    """'met', or the list of those that are not; '-' if the claim has none."""
    measured: float
    relation: Relation
    expected: float
    """The bound or the exact value."""
    tolerance: float = 0.0
    """Largest difference from ``expected`` that counts as equal."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Everything measured, for the JSON file and the figures."""

    @property
    def holds(self) -> bool:
        """Whether the measured value meets the bound, or equals the exact value up to ``tolerance``."""
        if self.relation == "=":
            return abs(self.measured - self.expected) <= self.tolerance
        return self.measured <= self.expected if self.relation == "<=" else self.measured >= self.expected


def spread(values: list[float] | Float[torch.Tensor, " draws"]) -> dict[str, Any]:
    """Mean and standard deviation over the draws, and their number."""
    numbers = torch.as_tensor(values, dtype=torch.float64)
    std = float(numbers.std()) if len(numbers) > 1 else 0.0
    return {"mean": float(numbers.mean()), "std": std, "draws": len(numbers)}


def relative_error(found: Float[torch.Tensor, "*shape"], expected: Float[torch.Tensor, "*shape"]) -> float:
    """The largest absolute error divided by the largest entry."""
    return float((found - expected).abs().max() / expected.abs().max())
