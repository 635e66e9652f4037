"""How good a classifier is on labelled images."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int
from rich.console import Console

from crate_mae.data.source import ImageSource, relabel
from crate_mae.errors import UserError
from crate_mae.evaluation.class_scores import scores
from crate_mae.models.classifier import Classifier
from crate_mae.progress import progress

NORMAL_95 = 1.959963984540054
"""95 % of a normal distribution lie within so many deviations."""
WORST = 10
"""Classes and confusions in the summary."""


@dataclass(frozen=True)
class ClassMark:
    """How a classifier does on the images of one class."""

    name: str
    images: int
    right: int

    @property
    def accuracy(self) -> float:
        """In per cent."""
        return 100 * self.right / self.images


@dataclass(frozen=True)
class Confusion:
    """Images of one class that were taken for another."""

    true: str
    predicted: str
    images: int


@dataclass(frozen=True)
class Marks:
    """What a classifier makes of labelled images; shares are in per cent."""

    class_names: tuple[str, ...]
    counts: Int[np.ndarray, "classes classes"]
    """Images by their class (row) and the class of the highest score (column)."""
    within_five: int
    """Images whose class is among the five highest scores."""
    unreadable: tuple[str, ...]
    """Why, for each image that could not be read; none of them counts."""

    @property
    def images(self) -> int:
        """Images that were judged."""
        return int(self.counts.sum())

    @property
    def top1(self) -> float:
        """The share whose class has the highest score."""
        return 100 * int(np.trace(self.counts)) / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of ``top1``, as if the images were drawn at random."""
        low, high = wilson(int(np.trace(self.counts)), self.images)
        return 100 * low, 100 * high

    @property
    def top5(self) -> float | None:
        """The share whose class is among the five highest scores; None below six classes, where it says little."""
        return 100 * self.within_five / self.images if len(self.class_names) >= 6 else None

    @property
    def mean_class(self) -> float:
        """The mean over the classes of the share that is right in each."""
        return sum(each.accuracy for each in self.classes) / len(self.classes)

    @cached_property
    def classes(self) -> list[ClassMark]:
        """The classes that have images, in the model's order."""
        totals = self.counts.sum(1)
        return [
            ClassMark(name, int(totals[place]), int(self.counts[place, place]))
            for place, name in enumerate(self.class_names)
            if totals[place]
        ]

    @cached_property
    def confusions(self) -> list[Confusion]:
        """Every pair of classes of which one was taken for the other, the most frequent first."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        pairs = sorted(np.argwhere(wrong).tolist(), key=lambda pair: (-wrong[tuple(pair)], pair))
        return [Confusion(self.class_names[i], self.class_names[j], int(wrong[i, j])) for i, j in pairs]

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain values for JSON."""
        return {
            "images": self.images,
            "unreadable": list(self.unreadable),
            "top1": self.top1,
            "top1_interval_95": list(self.interval),
            "top5": self.top5,
            "mean_class": self.mean_class,
            "classes": [vars(each) | {"accuracy": each.accuracy} for each in self.classes],
            "confusions": [vars(each) for each in self.confusions],
        }

    def summary(self) -> Iterator[str]:
        """Lines for people."""
        low, high = self.interval
        yield f"top-1 accuracy    {self.top1:6.2f} %   (95 % interval {low:.2f} to {high:.2f})"
        if self.top5 is not None:
            yield f"top-5 accuracy    {self.top5:6.2f} %"
        yield f"mean over classes {self.mean_class:6.2f} %   ({len(self.classes)} of {len(self.class_names)} classes)"
        yield f"images            {self.images:6}     ({len(self.unreadable)} unreadable)"
        worst = sorted(self.classes, key=lambda each: each.accuracy)[:WORST]
        yield from ("", "accuracy  images  " + ("worst classes" if len(worst) < len(self.classes) else "class"))
        yield from (f"{each.accuracy:6.2f} %  {each.images:6}  {each.name}" for each in worst)
        if self.confusions:
            yield from ("", "images  most frequent confusions")
            yield from (f"{each.images:6}  {each.true}, taken for {each.predicted}" for each in self.confusions[:WORST])


def evaluate(
    model: Classifier, source: ImageSource, batch: int = 128, workers: int = 0, console: Console | None = None
) -> Marks:
    """Hold a classifier's highest scores against the labels, matched by the names of the classes."""
    if source.class_names is None:
        raise UserError(
            "these images have no labels, or some of them have none, and without there is nothing to be right about; "
            "crate-mae predict says what the model takes them for."
        )
    source = relabel(source, model.class_names)
    counts = np.zeros((len(model.class_names),) * 2, dtype=np.int64)
    within_five, unreadable = 0, []
    scored = scores(model, source, batch, workers)
    with progress("evaluate", math.ceil(len(source) / batch), console) as advance:
        for some in scored:
            labels = np.array([source.label(index) for index in some.indices.tolist()], dtype=np.int64)
            best = some.scores.topk(min(5, counts.shape[0])).indices.numpy()
            np.add.at(counts, (labels, best[:, 0]), 1)
            within_five += int((best == labels[:, None]).sum())
            unreadable += [bad.reason for bad in some.bad]
            advance(f"{np.trace(counts) / max(counts.sum(), 1):.1%} right")
    if not counts.sum():
        raise UserError(f"not one of {len(source)} images can be read; the first: {unreadable[0]}")
    return Marks(model.class_names, counts, within_five, tuple(unreadable))


def wilson(right: int, trials: int, deviations: float = NORMAL_95) -> tuple[float, float]:
    """Wilson's interval of a share: each p that has k of n within z deviations, |k - n p| <= z sqrt(n p (1 - p)).

    (k + z^2/2 +- z sqrt(k (n - k) / n + z^2/4)) / (n + z^2). It stays within [0, 1], and holds near its ends too.
    """
    square = deviations**2
    middle = right + square / 2
    spread = deviations * math.sqrt(right * (trials - right) / trials + square / 4)
    return max(0.0, (middle - spread) / (trials + square)), min(1.0, (middle + spread) / (trials + square))
