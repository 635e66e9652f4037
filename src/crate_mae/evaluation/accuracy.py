"""The accuracy of a classifier on labelled images."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int
from rich.console import Console
from scipy.stats import binomtest

from crate_mae.data.source import ImageSource, relabel
from crate_mae.errors import UserError
from crate_mae.evaluation.class_scores import scores
from crate_mae.models.classifier import Classifier
from crate_mae.progress import progress

WORST = 10
"""Classes and confusions in the summary."""


@dataclass(frozen=True)
class ClassMark:
    """The accuracy on the images of one class."""

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
    """The results of a classifier on labelled images; accuracies are in per cent."""

    class_names: tuple[str, ...]
    counts: Int[np.ndarray, "classes classes"]
    """Images by their class (row) and the class with the highest score (column)."""
    within_five: int
    """Images whose class is among the five highest scores."""
    unreadable: tuple[str, ...]
    """The reason for each image that could not be read; none of them counts."""

    @property
    def images(self) -> int:
        """Images that could be read."""
        return int(self.counts.sum())

    @property
    def top1(self) -> float:
        """Images whose class has the highest score."""
        return 100 * int(np.trace(self.counts)) / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of ``top1``, as if the images were drawn at random."""
        interval = binomtest(int(np.trace(self.counts)), self.images).proportion_ci(0.95, method="wilson")
        return 100 * interval.low, 100 * interval.high

    @property
    def top5(self) -> float | None:
        """Images whose class is among the five highest scores; None below six classes, where it says little."""
        return 100 * self.within_five / self.images if len(self.class_names) >= 6 else None

    @property
    def mean_class(self) -> float:
        """The mean of the classes' accuracies."""
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
    model: Classifier,
    source: ImageSource,
    *,
    batch_size: int = 128,
    workers: int = 0,
    console: Console | None = None,
) -> Marks:
    """Compare a classifier's highest scores with the labels, matched by the names of the classes."""
    if source.class_names is None:
        raise UserError(
            "some of these images have no labels, and accuracy needs one for each; crate-mae predict classifies images "
            "without labels."
        )
    source = relabel(source, model.class_names)
    counts = np.zeros((len(model.class_names),) * 2, dtype=np.int64)
    within_five, unreadable = 0, []
    scored = scores(model, source, batch_size=batch_size, workers=workers)
    with progress("evaluate", math.ceil(len(source) / batch_size), console) as advance:
        for some in scored:
            labels = np.array([source.label(index) for index in some.indices.tolist()], dtype=np.int64)
            best = some.scores.topk(min(5, counts.shape[0])).indices.numpy()
            np.add.at(counts, (labels, best[:, 0]), 1)
            within_five += int((best == labels[:, None]).sum())
            unreadable += [bad.reason for bad in some.bad]
            advance(f"{np.trace(counts) / max(counts.sum(), 1):.1%} right")
    if not counts.sum():
        raise UserError(f"none of the {len(source)} images can be read; the first: {unreadable[0]}")
    return Marks(model.class_names, counts, within_five, tuple(unreadable))
