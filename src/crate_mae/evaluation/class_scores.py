"""A classifier's scores of every image of a source."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from crate_mae.data.loader import Bad
from crate_mae.data.sequential import Read, in_turn, read_batches
from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import UserError
from crate_mae.models.classifier import Classifier


@dataclass(frozen=True)
class Scored:
    """A few images that follow each other in the source."""

    indices: Int[Tensor, " b"]
    """Those that could be read."""
    scores: Float[Tensor, "b classes"]
    """Of each of them; on the CPU."""
    bad: list[Bad]
    """The others, and why."""


def scores(model: Classifier, source: ImageSource, batch: int = 128, workers: int = 0) -> Iterator[Scored]:
    """Every image of the source once, in its order, as the model takes it: resized only."""
    for name, value, least in (("batch", batch, 1), ("workers", workers, 0)):
        if value < least:
            raise UserError(f"{name} is {value}; choose a whole number from {least} up.")
    batches = in_turn(range(len(source)), batch)
    return _scored(model.eval(), read_batches(source, Evaluation.of(model.config), batches, workers))


@torch.no_grad()
def _scored(model: Classifier, batches: Iterator[Read]) -> Iterator[Scored]:
    dtype = model.embedding.class_token.dtype
    for read in batches:
        if read.indices:
            given = model(read.images.to(model.device, dtype)).cpu()
        else:
            given = torch.empty(0, len(model.class_names))
        yield Scored(torch.tensor(read.indices, dtype=torch.int64), given, read.bad)
