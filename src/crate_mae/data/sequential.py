"""Every image of a source, resized for a model: none is augmented, and unreadable ones are not replaced."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Float, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from crate_mae.data.loader import Bad
from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Evaluation
from crate_mae.data.workers import read
from crate_mae.errors import UserError

Item = tuple[int, UInt8[Tensor, "c H W"]] | Bad
"""An image with its index in the source, or the reason why it can't be read."""


@dataclass(frozen=True)
class Read:
    """A few images."""

    indices: list[int]
    """Images that could be read."""
    images: Float[Tensor, "b c H W"]
    """Their pixels, normalised."""
    bad: list[Bad]
    """The others, and the reasons."""


def read_batches(
    source: ImageSource, resized: Evaluation, batches: Sequence[Sequence[int]], workers: int = 0
) -> Iterator[Read]:
    """The images with these indices, batch by batch. The workers start with the call."""
    images = Images(source, resized)
    return read(images, [list(batch) for batch in batches], images.batch, workers)


def in_turn(indices: range, batch: int) -> list[range]:
    """Batches of indices in order, the last one smaller."""
    return [indices[start : start + batch] for start in range(0, len(indices), batch)]


@dataclass(frozen=True)
class Images(Dataset[Item]):
    """The images of a source by index, each with its index, or the reason why it can't be read."""

    source: ImageSource
    resized: Evaluation

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Item:
        try:
            return index, self.resized(self.source.encoded(index))
        except UserError as error:
            return Bad(index, str(error))

    def batch(self, items: Sequence[Item]) -> Read:
        """Those that could be read, and those that could not."""
        indices, images, unreadable = [], [], []
        for item in items:
            match item:
                case Bad():
                    unreadable.append(item)
                case (index, image):
                    indices.append(index)
                    images.append(image)
        return Read(indices, self.resized.normalised(images), unreadable)
