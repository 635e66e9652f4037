"""A classifier's scores of every image of a source: none is augmented, none replaced by another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from crate_mae.data.loader import Bad, leave_signals_to_the_run
from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import UserError
from crate_mae.models.classifier import Classifier

Item = tuple[int, Float[Tensor, "c H W"]] | Bad
"""An image with its index in the source, or why it can't be read."""


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
    config = model.config
    loader = DataLoader(
        Images(source, Evaluation(config.image_size, config.channels, config.mean, config.std)),
        batch_size=batch,
        num_workers=workers,
        collate_fn=list,
        worker_init_fn=leave_signals_to_the_run,
        generator=torch.Generator(),  # without one it draws from the global generator, which is the caller's
    )
    return _scored(model.eval(), iter(loader))  # the processes start here, before a progress bar's thread does


@torch.no_grad()
def _scored(model: Classifier, batches: Iterator[list[Item]]) -> Iterator[Scored]:
    dtype = model.embedding.class_token.dtype
    for items in batches:
        indices, images, bad = _sort(items)
        given = model(torch.stack(images).to(model.device, dtype)) if images else torch.empty(0, len(model.class_names))
        yield Scored(torch.tensor(indices, dtype=torch.int64), given.cpu(), bad)


@dataclass(frozen=True)
class Images(Dataset[Item]):
    """The images of a source by index, each with its index; or why one can't be read."""

    source: ImageSource
    resized: Evaluation

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Item:
        try:
            return index, self.resized.normalised(self.source.read(index))
        except UserError as error:
            return Bad(index, str(error))


def _sort(items: Sequence[Item]) -> tuple[list[int], list[Tensor], list[Bad]]:
    indices, images, bad = [], [], []
    for item in items:
        match item:
            case Bad():
                bad.append(item)
            case (index, image):
                indices.append(index)
                images.append(image)
    return indices, images, bad
