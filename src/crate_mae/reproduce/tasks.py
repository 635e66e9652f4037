"""What has to be trained and measured, each once: a task's result is a file, and a task whose file exists is done."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from crate_mae.atomic_write import atomic_write
from crate_mae.data.named import NAMED
from crate_mae.data.open import find_images
from crate_mae.device import Device
from crate_mae.errors import UserError
from crate_mae.reproduce.scales import Model, Scale

QUIET = Console(quiet=True)


@dataclass(frozen=True)
class Place:
    """Folder, scale, data and device of a reproduction."""

    out: Path
    scale: Scale
    data_root: Path | None = None
    """The folder of the named sets; without it only sets that need no files are used."""
    device: Device = "auto"
    deadline: float | None = None
    """When to stop, in seconds since 1970: trainings are saved then, and no further task is started."""

    def has(self, data: str) -> bool:
        """Whether a set's images are available."""
        if self.data_root is None:
            return not NAMED[data].marks
        try:
            find_images(data, self.data_root)
        except UserError:
            return False
        return True


class Task(ABC):
    """Something that is done once."""

    model: Model

    @property
    @abstractmethod
    def name(self) -> str:
        """For messages."""

    @property
    def sets(self) -> tuple[str, ...]:
        """The sets that it uses."""
        return (self.model.data,)

    @property
    def before(self) -> "tuple[Task, ...]":
        """Tasks that must be done first."""
        return ()

    @abstractmethod
    def is_done(self, place: Place) -> bool:
        """Whether its result exists."""

    @property
    def order(self) -> tuple[int, ...]:
        """Tasks run in this order, as far as the tasks that they need allow it."""
        return (0,)

    def seconds(self, place: Place) -> float | None:
        """Seconds on one core of this machine; None if not known."""
        return None

    def share_done(self, place: Place) -> float | None:
        """The fraction done while it runs; None if not known."""
        return None

    @abstractmethod
    def run(self, place: Place) -> None:
        """Do it, and write its result."""


class Training(Task):
    """A task that leaves a model in a folder."""

    @abstractmethod
    def folder(self, place: Place) -> Path:
        """The folder of the model."""


class Measurement(Task):
    """A task whose result is one JSON file."""

    @abstractmethod
    def file(self, place: Place) -> Path:
        """The file of the result."""

    def result(self, place: Place) -> dict[str, Any] | None:
        """The numbers; None if they do not exist, or if the file is incomplete."""
        try:
            return json.loads(self.file(place).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def is_done(self, place: Place) -> bool:
        return self.result(place) is not None


@dataclass(frozen=True)
class PretrainTask(Training):
    """Pretrain a model."""

    model: Model

    @property
    def name(self) -> str:
        return f"pretrain {self.model.name}"


@dataclass(frozen=True)
class FinetuneTask(Measurement):
    """Fine-tune a model on a set, or train it there from random weights, and measure its accuracy on test images."""

    model: Model
    data: str
    random: bool = False

    @property
    def name(self) -> str:
        return f"fine-tune {self.model.name} on {self.data}{', random' if self.random else ''}"

    @property
    def sets(self) -> tuple[str, ...]:
        return (self.data,) if self.random else (self.model.data, self.data)

    @property
    def kind(self) -> str:
        """The part of its folder's name that says where the weights come from."""
        return "random" if self.random else "tuned"


@dataclass(frozen=True)
class ProbeTask(Measurement):
    """Linear probes of a pretrained model on a set: the class token and the mean over the patches, last layer."""

    model: Model
    data: str

    @property
    def name(self) -> str:
        return f"probe {self.model.name} on {self.data}"

    @property
    def sets(self) -> tuple[str, ...]:
        return (self.model.data, self.data)


@dataclass(frozen=True)
class ReconstructTask(Measurement):
    """The mean squared error of a pretrained model's completions, on training and on test images."""

    model: Model

    @property
    def name(self) -> str:
        return f"complete with {self.model.name}"


def write_numbers(path: Path, numbers: dict[str, Any]) -> None:
    """Write a JSON file by an atomic write."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(numbers, indent=1) + "\n")
