"""What tasks at desk scale share: images that are kept as bytes, progress, and stopping.

Trainings last a number of seconds of processor time. They use the race's images and training
(``crate_mae.bench.race``). Each task leaves one file when it is done.
"""

import hashlib
import json
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from crate_mae.bench.race.images import CLASSES, prepare
from crate_mae.bench.race.training import Report, Stopped
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.reproduce.scales import Model, Timed
from crate_mae.reproduce.tasks import QUIET, Place, Task
from crate_mae.training.interruption import interruption

PROBE_IMAGES = 10_000
"""The most training images that a linear probe is fitted to, drawn at random."""
TEST_IMAGES = 5_000
"""The most test images of a probe, a fine-tuned model and a loss, evenly spaced."""
SAY_EVERY = 1.0
"""Seconds between two records of a task's progress."""

# Seconds on one core of the machine where the campaign was first run, to estimate how long measurements take.
DECODE = {"tiny_imagenet": 20.0, "cifar10": 20.0, "cifar100": 20.0, "flowers102": 6.0, "oxford_pets": 5.0}
FIT = {"cifar10": 2.0, "cifar100": 22.0, "flowers102": 3.0, "oxford_pets": 3.0}
EVALUATED = 1000.0
"""Images per second."""
START = 5.0
"""Seconds to load libraries, images and weights."""


def timed(place: Place) -> Timed:
    """The seconds, recipes and courses of a place at desk scale."""
    assert place.scale.timed is not None
    return place.scale.timed


def images_of(place: Place, data: str) -> Path:
    """The folder of a set's decoded images."""
    return place.out / "images" / data


def some(count: int, of: int) -> Int[np.ndarray, " m"]:
    """At most ``count`` indices, evenly spaced."""
    return np.linspace(0, of - 1, min(count, of)).astype(int)


class DeskTask(Task):
    """A task that records its progress in a file beside its result."""

    @abstractmethod
    def beside(self, place: Place) -> Path:
        """The folder of its files."""

    def share_done(self, place: Place) -> float | None:
        try:
            return float(self.says(place).read_text())
        except (OSError, ValueError):  # none yet, or a file that is being written
            return None

    def says(self, place: Place) -> Path:
        """The file with the fraction of the task that is done."""
        return self.beside(place) / f".{type(self).__name__}.share"

    @contextmanager
    def reporting(self, place: Place) -> Iterator[Report]:
        """Yield a function that records the task's progress, and stops it at the deadline, after Ctrl-C or SIGTERM."""
        self.beside(place).mkdir(parents=True, exist_ok=True)
        said = 0.0
        with interruption() as heard:

            def report(share: float, note: str = "") -> None:
                nonlocal said
                stopped = heard.asked or (place.deadline is not None and time.time() > place.deadline)
                if stopped or time.monotonic() - said > SAY_EVERY:
                    said = time.monotonic()
                    self.says(place).write_text(f"{share:.4f}")
                if stopped:
                    raise Stopped

            try:
                yield report
            except Stopped:
                if heard.asked:
                    raise KeyboardInterrupt from None
            else:
                self.says(place).unlink(missing_ok=True)


@dataclass(frozen=True)
class Decoded(Task):
    """The images of a set as bytes."""

    data: str

    @property
    def name(self) -> str:
        return f"decode {self.data}"

    @property
    def order(self) -> tuple[int, ...]:
        return (0, 0)

    @property
    def sets(self) -> tuple[str, ...]:
        return (self.data,)

    def is_done(self, place: Place) -> bool:
        return (images_of(place, self.data) / CLASSES).is_file()

    def seconds(self, place: Place) -> float:
        return START + DECODE.get(self.data, 60.0) / timed(place).speed

    def run(self, place: Place) -> None:
        prepare(timed(place).courses[self.data], place.data_root, images_of(place, self.data), QUIET)


def order_of(model: Model, kind: int) -> tuple[int, ...]:
    """All tasks of one seed first; within a seed the models of table 2, then tables 5 and 6, and fine-tuning last."""
    varied = (model.lambda_, model.mask_ratio) != (paper.LAMBDA, paper.MASK_RATIO)
    stage = 4 + (model.variant != "crate") if varied and kind < 3 else 6 if kind == 3 else kind
    return model.seed, stage


def digest(identity: list[Any], *seconds: float) -> str:
    """A short hash of a configuration and of the lengths of its trainings, for the name of a folder.

    Fields with their default value are left out, so that a field that is added later changes no name.
    """
    words = json.dumps([*map(_set_fields, identity), *seconds], sort_keys=True)
    return hashlib.blake2b(words.encode(), digest_size=4).hexdigest()


def _set_fields(config: Any) -> dict[str, Any]:
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(config)
    }
    return {name: value for name, value in asdict(config).items() if value != defaults[name]}
