"""A classifier's scores for every image of a source."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from crate_mae.data.loader import Bad
from crate_mae.data.sequential import Read, consecutive, read_batches
from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import check_at_least
from crate_mae.models.classifier import Classifier


@dataclass(frozen=True)
class Scored:
    """A few consecutive images of the source."""

    indices: Int[Tensor, " b"]
    """Images that could be read."""
    scores: Float[Tensor, "b classes"]
    """On the CPU."""
    bad: list[Bad]
    """The others, and the reasons."""


def scores(model: Classifier, source: ImageSource, *, batch_size: int = 128, workers: int = 0) -> Iterator[Scored]:
    """Every image of the source once, in its order, resized only."""
    check_at_least("batch_size", batch_size, 1)
    check_at_least("workers", workers, 0)
    batches = consecutive(range(len(source)), batch_size)
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
