"""What can go wrong in the middle of a run; each is called in the run's own process before it begins."""

import errno
import math
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from crate_mae.data.loader import epoch_order
from crate_mae.data.masked import MaskedSamples
from crate_mae.data.transforms import Augmentation
from crate_mae.training import loop, training_state
from crate_mae.training.loop import take_step
from crate_mae.training.objectives import Completing
from crate_mae.training.run_folder import Run


def _at_call(owner: Any, name: str, number: int, change: Callable[..., Any]) -> None:
    """Replace a function such that its call of this number goes to ``change(function, *arguments)``."""
    function, calls = getattr(owner, name), 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            return change(function, *arguments, **options)
        return function(*arguments, **options)

    setattr(owner, name, counted)


def _no_file_above(size: int) -> Callable[..., Any]:
    """A file that grows above the size meets an error from the system in the middle of it, as on a full disk."""

    def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            return function(*arguments, **options)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return call


def no_room_for_weights() -> None:
    _at_call(training_state, "write_checkpoint", 2, _no_file_above(20_000))


def no_room_for_moments() -> None:
    _at_call(training_state.dcp, "save", 2, _no_file_above(20_000))


def no_room_for_state() -> None:
    _at_call(training_state, "write_checkpoint", 2, _then_no_file_above(0))


def _then_no_file_above(size: int) -> Callable[..., Any]:
    def call(function: Callable[..., Any], *arguments: Any) -> None:
        function(*arguments)
        _at_call(Path, "write_text", 1, _no_file_above(size))

    return call


def no_room_for_best() -> None:
    _at_call(loop, "write_checkpoint", 2, _no_file_above(20_000))


def no_room_for_pictures() -> None:
    _at_call(Run, "draw", 2, _no_file_above(1000))


def no_room_for_metrics() -> None:
    def call(function: Callable[..., Any], run: Run, *arguments: Any) -> None:
        _no_file_above(run.metrics.stat().st_size + 10)(function, run, *arguments)

    _at_call(Run, "write", 4, call)


def at_a_write(number: int, happen: Callable[[], None], below: Path | None = None) -> None:
    """Before the file of this number is opened for writing, or a folder made or renamed, something happens.

    With ``below``, only those in this folder count. safetensors opens its files itself and is not counted; what happens
    lasts, so that it meets it too.
    """
    seen = 0

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "open":
            path, _, flags = arguments
            if not (flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                return
        elif event in ("os.mkdir", "os.rename"):
            path = arguments[0]
        else:
            return
        if isinstance(path, int | None) or (below is not None and not os.fsdecode(path).startswith(str(below))):
            return
        seen += 1
        if seen == number or (seen > number and isinstance(happen, ReadOnly)):
            happen()

    sys.addaudithook(heard)


@dataclass(frozen=True)
class Full:
    """A disk without room: where it is a small one, by a file that takes all of it; else for any file's growth."""

    disk: Path | None
    room: int = 0
    """Bytes that are left."""

    def __call__(self) -> None:
        if self.disk is None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.room, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            return
        free = shutil.disk_usage(self.disk).free
        if free > self.room:
            (self.disk / "ballast").write_bytes(bytes(free - self.room))


@dataclass(frozen=True)
class ReadOnly:
    """A disk that becomes read-only, as after an error of its own: nothing can be opened for writing from then on."""

    def __call__(self) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@dataclass(frozen=True)
class Removed:
    """A run folder is deleted while it is used."""

    folder: Path

    def __call__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def a_step_takes_an_hour() -> None:
    _at_call(loop, "take_step", 13, lambda *_: time.sleep(3600))


def an_image_takes_an_hour() -> None:
    """One of the fifth batch of eight, in whichever process loads it; evaluations don't read it."""
    read = MaskedSamples.__getitem__

    def slow(samples: MaskedSamples, key: tuple[int, int]) -> Any:
        if isinstance(samples.transform, Augmentation) and key == (0, int(epoch_order(len(samples), 0, 0)[32])):
            time.sleep(3600)
        return read(samples, key)

    MaskedSamples.__getitem__ = slow  # type: ignore[method-assign]


def loss_is_not_finite() -> None:
    _at_call(Completing, "forward", 13, lambda forward, *batch: forward(*batch) * math.nan)


def loss_of_one_process_is_not_finite() -> None:
    if os.environ["RANK"] == "1":
        loss_is_not_finite()


def gradient_is_not_finite() -> None:
    def call(forward: Callable[..., Tensor], *batch: Any) -> Tensor:
        loss = forward(*batch)
        loss.register_hook(lambda gradient: gradient * math.inf)
        return loss

    _at_call(Completing, "forward", 13, call)


def samples_are_noted() -> None:
    """Each step appends the indices of its samples to the file SEEN.RANK."""
    path = Path(f"{os.environ['SEEN']}.{os.environ.get('RANK', '0')}")

    def noted(joined: Any, optimiser: Any, parts: Any, *more: Any) -> Any:
        with path.open("a") as file:
            file.write(" ".join(str(index) for part in parts for index in part.indices.tolist()) + "\n")
        return take_step(joined, optimiser, parts, *more)

    loop.take_step = noted


def no_tensorboard() -> None:
    """The package is not installed."""
    sys.modules["tensorboard"] = None  # type: ignore[assignment]
