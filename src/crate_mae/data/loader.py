"""Batches in an order that the seed decides: the same for any number of processes and workers, from any step on."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Transform, sample_generator
from crate_mae.data.workers import read
from crate_mae.errors import UserError

log = logging.getLogger("crate_mae.data")

Key = tuple[int, int]  # epoch, index
NEIGHBOURS = 10
"""After this number of unreadable images in a row a run stops at once: the disk is probably gone."""
TOLERATED = 5
"""Unreadable images that are allowed beyond their fraction."""
SHOWN = 5


@dataclass(frozen=True)
class Bad:
    """An unreadable image, and the reason."""

    index: int
    reason: str


@dataclass(frozen=True)
class Sample:
    """One item of a batch."""

    image: UInt8[Tensor, "c H W"]
    label: int
    key: Key
    bad: list[Bad]
    lost: bool = False
    """Neither the image nor its neighbours could be read."""


@dataclass(frozen=True)
class Batch:
    """Images and labels."""

    images: Float[Tensor, "b c H W"]
    """Normalised."""
    labels: Int[Tensor, " b"]
    """-1 if an image has none."""
    indices: Int[Tensor, " b"]
    """Which samples of the source; a replaced one keeps its own index."""
    bad: list[Bad]
    """Images that could not be read: those replaced, and neighbours tried in their place."""
    lost: bool
    """A sample could not be replaced; such a batch never leaves this module."""

    @property
    def given(self) -> Shaped[Tensor, "b ..."]:
        """What a loss takes beside the images: the labels."""
        return self.labels


SomeBatch = TypeVar("SomeBatch", bound=Batch)


class Samples(Dataset[Sample], ABC, Generic[SomeBatch]):
    """A source and its transform, by (epoch, index): a pure function of these and the seed."""

    def __init__(self, source: ImageSource, transform: Transform, seed: int = 0):
        self.source, self.transform, self.seed = source, transform, seed

    def __len__(self) -> int:
        return len(self.source)

    def generator(self, key: Key) -> torch.Generator:
        """What the augmentation of a sample is drawn from."""
        return sample_generator(self.seed, *key)

    def __getitem__(self, key: Key) -> Sample:
        """The sample; if its image can't be read, the next readable image replaces it."""
        _, index = key
        bad: list[Bad] = []
        for place in range(index, index + min(NEIGHBOURS, len(self))):
            place %= len(self)
            try:
                image = self.transform(self.source.encoded(place), self.generator(key))
            except UserError as error:
                bad.append(Bad(place, str(error)))
                continue
            label = self.source.label(place)
            return Sample(image, -1 if label is None else label, key, bad)
        blank = torch.zeros(self.transform.channels, *self.transform.size, dtype=torch.uint8)
        return Sample(blank, -1, key, bad, lost=True)

    @abstractmethod
    def batch(self, samples: Sequence[Sample]) -> SomeBatch:
        """Samples as one batch."""

    def _plain(self, samples: Sequence[Sample]) -> Batch:
        return Batch(
            self.transform.normalised([sample.image for sample in samples]),
            torch.tensor([sample.label for sample in samples]),
            torch.tensor([sample.key[1] for sample in samples]),
            [bad for sample in samples for bad in sample.bad],
            any(sample.lost for sample in samples),
        )


class LabelledSamples(Samples[Batch]):
    """Images and their labels."""

    def batch(self, samples: Sequence[Sample]) -> Batch:
        return self._plain(samples)


class GlobalBatches(Sampler[list[Key]]):
    """The keys of each batch of one process.

    The permutations of epochs 0, 1, 2, .. follow each other, and step s takes the places s * B to (s + 1) * B: each
    sample comes exactly once an epoch, no batch is smaller than B, and a batch may end one epoch and begin the next.
    Process r of R takes the r-th of R equal parts of a step's B places; ``accumulation`` cuts it into micro-batches.
    So what a step learns from depends only on the seed and the step.
    """

    def __init__(
        self,
        samples: int,
        batch: int,
        seed: int,
        steps: range,
        *,
        rank: int = 0,
        world: int = 1,
        accumulation: int = 1,
    ):
        if batch < 1 or batch % (world * accumulation):
            raise UserError(
                f"a batch of {batch} can't be divided among {world} processes with {accumulation} micro-batches each; "
                f"choose a multiple of {world * accumulation}."
            )
        self.samples, self.batch, self.seed, self.steps = samples, batch, seed, steps
        self.rank, self.world, self.accumulation = rank, world, accumulation

    def __len__(self) -> int:
        return len(self.steps) * self.accumulation

    def __iter__(self) -> Iterator[list[Key]]:
        size = self.batch // (self.world * self.accumulation)
        epoch, order = -1, torch.empty(0)
        for step in self.steps:
            for number in range(self.accumulation):
                first = step * self.batch + (self.rank * self.accumulation + number) * size
                keys: list[Key] = []
                while len(keys) < size:
                    place = first + len(keys)
                    if place // self.samples != epoch:
                        epoch = place // self.samples
                        order = epoch_order(self.samples, self.seed, epoch)
                    start = place % self.samples
                    keys += [(epoch, index) for index in order[start : start + size - len(keys)].tolist()]
                yield keys


def epoch_order(samples: int, seed: int, epoch: int) -> Int[Tensor, " n"]:
    """The permutation of an epoch."""
    return torch.randperm(samples, generator=sample_generator(seed, epoch))


@dataclass
class BadImages:
    """Counts unreadable images, logs each once, and stops at too many; in each process on its own."""

    images: int
    """In the set."""
    allowed: float
    """The run stops above this fraction of the samples drawn so far plus a margin for chance: three standard deviations
    and ``TOLERATED``. So a few unreadable images at the start don't stop a run whose fraction is allowed."""
    drawn: int = 0
    found: dict[int, str] = field(default_factory=dict)
    """The reason by index: each image counts once."""

    def count(self, batch: Batch) -> None:
        """Add a batch's unreadable images; a ``UserError`` if there are too many."""
        self.drawn += len(batch.indices)
        for bad in batch.bad:
            if bad.index not in self.found:
                self.found[bad.index] = bad.reason
                log.warning("image %d is replaced by another: %s", bad.index, bad.reason)
        seen = min(self.drawn, self.images)
        expected = self.allowed * seen
        if batch.lost or len(self.found) > expected + 3 * math.sqrt(expected) + TOLERATED:
            first = " ".join(list(self.found.values())[:SHOWN])
            raise UserError(
                f"{len(self.found)} of about {seen} images can't be read, and {self.allowed:.1%} are allowed; "
                f"crate-mae data check lists them all. The first: {first}"
            )


def training_batches(
    samples: Samples[SomeBatch],
    batch: int,
    steps: range,
    *,
    rank: int = 0,
    world: int = 1,
    accumulation: int = 1,
    workers: int = 0,
    max_bad: float = 0.01,
) -> Generator[SomeBatch, None, None]:
    """The batches of these steps in the order of ``GlobalBatches``, ``accumulation`` of them a step.

    ``batch`` is that of all processes together. To resume, begin ``steps`` where the run stopped. Unreadable images
    are logged and replaced; a fraction of them above ``max_bad`` is a ``UserError``. The workers start with the call.
    """
    order = GlobalBatches(len(samples), batch, samples.seed, steps, rank=rank, world=world, accumulation=accumulation)
    return _load(samples, order, workers, max_bad)


def evaluation_batches(
    samples: Samples[SomeBatch],
    batch: int,
    *,
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
    max_bad: float = 0.01,
) -> Generator[SomeBatch, None, None]:
    """Each sample once, in order, the last batch smaller; this process has every ``world``-th sample.

    The epoch is always 0, so whatever is drawn is the same at every evaluation.
    """
    own = [(0, index) for index in range(rank, len(samples), world)]
    return _load(samples, [own[start : start + batch] for start in range(0, len(own), batch)], workers, max_bad)


def _load(
    samples: Samples[SomeBatch], order: Sampler[list[Key]] | Sequence[list[Key]], workers: int, max_bad: float
) -> Generator[SomeBatch, None, None]:
    return _counted(read(samples, order, samples.batch, workers), BadImages(len(samples), max_bad))


def _counted(batches: Iterator[SomeBatch], bad: BadImages) -> Generator[SomeBatch, None, None]:
    for batch in batches:
        bad.count(batch)
        yield batch
