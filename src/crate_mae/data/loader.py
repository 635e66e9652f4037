"""Batches in an order that the seed decides: the same for any number of processes and workers, from any step on."""

import logging
import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Transform, sample_generator
from crate_mae.data.workers import read
from crate_mae.errors import UserError
from crate_mae.tokens import random_mask

log = logging.getLogger("crate_mae.data")

Key = tuple[int, int]  # epoch, index
NEIGHBOURS = 10
"""So many images in a row that can't be read stop a run at once: then the disk is gone, not an image."""
HANDFUL = 5
"""So many images that can't be read are borne on top of their share."""
SHOWN = 5


@dataclass(frozen=True)
class Bad:
    """An image that can't be read, and why."""

    index: int
    reason: str


@dataclass(frozen=True)
class Sample:
    """One item of a batch."""

    image: UInt8[Tensor, "c H W"]
    label: int
    mask: Bool[Tensor, " n"]
    index: int
    bad: list[Bad]
    lost: bool = False
    """Nothing near it could be read either."""


@dataclass(frozen=True)
class Batch:
    """What the training loop gets."""

    images: Float[Tensor, "b c H W"]
    """Normalised."""
    labels: Int[Tensor, " b"]
    """-1 where an image has none."""
    masks: Bool[Tensor, "b n"]
    """True where a patch is masked."""
    indices: Int[Tensor, " b"]
    """Which samples of the source; a replaced one keeps its own."""
    bad: list[Bad]
    """Images that could not be read on the way: those replaced, and neighbours tried for them."""
    lost: bool
    """A sample had nothing to replace it; such a batch never leaves this module."""


class Samples(Dataset[Sample]):
    """A source, its transform and its masks, by (epoch, index): a pure function of these and the seed."""

    def __init__(
        self, source: ImageSource, transform: Transform, num_patches: int, mask_ratio: float = 0.75, seed: int = 0
    ):
        self.source, self.transform = source, transform
        self.num_patches, self.mask_ratio, self.seed = num_patches, mask_ratio, seed

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, key: Key) -> Sample:
        """The sample; where its image can't be read, that of the nearest later one that can, with its own mask."""
        epoch, index = key
        bad: list[Bad] = []
        for place in range(index, index + min(NEIGHBOURS, len(self))):
            generator = sample_generator(self.seed, epoch, index)
            mask = random_mask(1, self.num_patches, self.mask_ratio, generator)[0]
            try:
                image = self.transform(self.source, place % len(self), generator)
            except UserError as error:
                bad.append(Bad(place % len(self), str(error)))
                continue
            label = self.source.label(place % len(self))
            return Sample(image, -1 if label is None else label, mask, index, bad)
        blank = torch.zeros(self.transform.channels, *self.transform.size, dtype=torch.uint8)
        return Sample(blank, -1, mask, index, bad, lost=True)

    def batch(self, samples: Sequence[Sample]) -> Batch:
        """Samples as one batch."""
        return Batch(
            self.transform.normalised([sample.image for sample in samples]),
            torch.tensor([sample.label for sample in samples]),
            torch.stack([sample.mask for sample in samples]),
            torch.tensor([sample.index for sample in samples]),
            [bad for sample in samples for bad in sample.bad],
            any(sample.lost for sample in samples),
        )


class GlobalBatches(Sampler[list[Key]]):
    """The keys of each batch of one process.

    The permutations of epochs 0, 1, 2, .. stand one after the other, and step s takes the places s * B to (s + 1) * B:
    each sample comes exactly once an epoch, no batch is smaller than B, and one may end an epoch and begin the next.
    Of a step's B places, process r of R has the r-th R-th; ``accumulation`` cuts that into equal parts, one after the
    other. So what a step learns from depends on the seed and the step alone.
    """

    def __init__(
        self,
        samples: int,
        batch: int,
        seed: int,
        steps: range,
        rank: int = 0,
        world: int = 1,
        accumulation: int = 1,
    ):
        if batch < 1 or batch % (world * accumulation):
            raise UserError(
                f"a batch of {batch} can't be shared by {world} processes in {accumulation} parts each; choose a "
                f"multiple of {world * accumulation}."
            )
        self.samples, self.batch, self.seed, self.steps = samples, batch, seed, steps
        self.rank, self.world, self.accumulation = rank, world, accumulation

    def __len__(self) -> int:
        return len(self.steps) * self.accumulation

    def __iter__(self) -> Iterator[list[Key]]:
        part = self.batch // (self.world * self.accumulation)
        epoch, order = -1, torch.empty(0)
        for step in self.steps:
            for number in range(self.accumulation):
                first = step * self.batch + (self.rank * self.accumulation + number) * part
                keys: list[Key] = []
                while len(keys) < part:
                    place = first + len(keys)
                    if place // self.samples != epoch:
                        epoch = place // self.samples
                        order = epoch_order(self.samples, self.seed, epoch)
                    start = place % self.samples
                    keys += [(epoch, index) for index in order[start : start + part - len(keys)].tolist()]
                yield keys


def epoch_order(samples: int, seed: int, epoch: int) -> Int[Tensor, " n"]:
    """The permutation of an epoch."""
    return torch.randperm(samples, generator=sample_generator(seed, epoch))


@dataclass
class BadImages:
    """Counts, names and at last refuses images that can't be read; in each process on its own."""

    samples: Samples
    share: float
    """The run stops above this share of the samples drawn so far and what chance adds to it (three deviations and a
    handful), so that a few bad images early on don't stop a set that is within its share."""
    drawn: int = 0
    found: dict[int, str] = field(default_factory=dict)
    """The reason by index: each image counts once."""

    def count(self, batch: Batch) -> None:
        self.drawn += len(batch.indices)
        for bad in batch.bad:
            if bad.index not in self.found:
                self.found[bad.index] = bad.reason
                log.warning("image %d is replaced by another: %s", bad.index, bad.reason)
        seen = min(self.drawn, len(self.samples))
        allowed = self.share * seen
        if batch.lost or len(self.found) > allowed + 3 * math.sqrt(allowed) + HANDFUL:
            first = " ".join(list(self.found.values())[:SHOWN])
            raise UserError(
                f"{len(self.found)} of about {seen} images can't be read, and {self.share:.1%} are allowed; crate-mae "
                f"data check lists them all. The first: {first}"
            )


def training_batches(
    samples: Samples,
    batch: int,
    steps: range,
    rank: int = 0,
    world: int = 1,
    accumulation: int = 1,
    workers: int = 0,
    max_bad: float = 0.01,
) -> Generator[Batch, None, None]:
    """The batches of these steps in the order of ``GlobalBatches``, ``accumulation`` of them a step.

    ``batch`` is that of all processes together. To resume, begin ``steps`` where the run stopped. Images that can't be
    read are logged and replaced; a share of them above ``max_bad`` is a ``UserError``. The processes that read start
    with the call.
    """
    order = GlobalBatches(len(samples), batch, samples.seed, steps, rank, world, accumulation)
    return _load(samples, order, workers, max_bad)


def evaluation_batches(
    samples: Samples, batch: int, rank: int = 0, world: int = 1, workers: int = 0, max_bad: float = 0.01
) -> Iterator[Batch]:
    """Each sample once, in order, the last batch smaller; of these the process has every ``world``-th sample.

    The epoch is 0 each time, so the masks are the same whenever it is measured.
    """
    own = [(0, index) for index in range(rank, len(samples), world)]
    return _load(samples, [own[start : start + batch] for start in range(0, len(own), batch)], workers, max_bad)


def _load(
    samples: Samples, order: Sampler[list[Key]] | Sequence[list[Key]], workers: int, max_bad: float
) -> Generator[Batch, None, None]:
    return _counted(read(samples, order, samples.batch, workers), BadImages(samples, max_bad))


def _counted(batches: Iterator[Batch], bad: BadImages) -> Generator[Batch, None, None]:
    for batch in batches:
        bad.count(batch)
        yield batch
