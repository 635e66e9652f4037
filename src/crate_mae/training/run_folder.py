"""The folder of a run: its settings, its metrics, its checkpoints, and what a resume needs."""

import fcntl
import json
import logging
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crate_mae.atomic_write import atomic_write, remove
from crate_mae.atomic_write import commit as atomic_commit
from crate_mae.disk_errors import reason, remedy
from crate_mae.errors import UserError
from crate_mae.json_files import read_json
from crate_mae.models.config import ModelConfig
from crate_mae.models.locate import BEST, CONFIG
from crate_mae.settings import FORMAT_VERSION, check_version
from crate_mae.training.code_version import commit
from crate_mae.training.config import FREE, HOW_IT_RUNS, TASKS, Config, RunConfig, override
from crate_mae.usable_path import usable

if TYPE_CHECKING:  # the command line reads a run's settings before anything heavy is imported
    import torch
    from matplotlib.figure import Figure

    from crate_mae.data.source import ImageSource

FORMAT = "crate-mae run"
OWN = ("starts.jsonl", "metrics.jsonl", "log.txt", "curves.png", "checkpoints", "pictures", "tensorboard")
"""What a run writes, beside ``config.json``."""
STOPPED = "stopped"
"""Marks the line of metrics of an evaluation that a run made because it was asked to stop."""


@dataclass(frozen=True)
class Run:
    """A run folder.

    ``config.json``     the settings, and the commit of the code
    ``starts.jsonl``    when, by which command and on which device it was started and resumed
    ``metrics.jsonl``   one object a line, each with its step
    ``log.txt``         warnings, such as unreadable images
    ``checkpoints/``    ``best``, and ``step-NNNNNNNN`` for the last few
    ``pictures/``       completions during training
    ``.lock``           held by the process that works on the run
    """

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints."""
        return self.path / BEST.parent

    @property
    def best(self) -> Path:
        """The best checkpoint."""
        return self.path / BEST

    @property
    def config(self) -> Path:
        """The file with the settings."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """The file with the metrics."""
        return self.path / "metrics.jsonl"

    def stored(self) -> "Stored | None":
        """What ``config.json`` says, or None if there is no run yet."""
        if usable(self.path).exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file; a run is a folder: choose another one.")
        if not self.config.exists():
            return None
        try:
            found = read_json(self.config)
        except (OSError, ValueError):
            raise UserError(f"{self.config} can't be read as JSON; choose another folder.") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise UserError(f"{self.path} holds something else than a run; choose another folder.")
        check_version(self.config, found.get("format_version", 1), found.get("written_by"))  # 0.1.0 wrote none
        try:
            return Stored.of(found)
        except UserError as error:
            raise UserError(f"{self.config} can't be used: {error}") from None

    def check_task(self, kind: type[RunConfig]) -> None:
        """Refuse to resume a run of another task."""
        stored = self.stored()
        if stored and stored.config.task != kind.task:
            raise UserError(
                f"{self.path} holds a run of {stored.config.task}, not of {kind.task}; choose another --out."
            )

    def admit(self, config: RunConfig, resume: bool) -> None:
        """Refuse a run that would overwrite the one in this folder, or resume it with other settings."""
        stored = self.stored()
        if stored is None:
            self._check_free()
            return
        self.check_task(type(config))
        if not resume:
            raise UserError(f"{self.path} holds a run already; resume it with --resume, or choose another --out.")
        free = config.marked(FREE, HOW_IT_RUNS)
        for item in fields(config):
            old, new = getattr(stored.config, item.name), getattr(config, item.name)
            if old != new and item.name not in free:
                raise UserError(
                    f"{self.path} was started with {item.name}={old} and can't be resumed with {new}; leave it as it "
                    "is, or choose another --out."
                )

    def _check_free(self) -> None:
        """Refuse a folder that is no run and holds what a run would overwrite."""
        for name in OWN:
            there = self.path / name
            if any(there.iterdir()) if there.is_dir() else there.exists():
                raise UserError(f"{self.path} is no run, and its {name} would be overwritten; choose another --out.")

    def clean(self) -> None:
        """Remove the temporary files and folders that a kill left; nothing that is not the run's own."""
        own = (self.path.glob(".*.[0-9]*.part"), self.checkpoints.rglob(".*.part"))
        for left in sorted(path for paths in own for path in paths):
            remove(left)

    def begin(self, config: RunConfig, model: ModelConfig, source: "ImageSource") -> None:
        """Write ``config.json``; a run that is resumed must have the same training images as before."""
        from crate_mae.data.source import fingerprint

        images = {"images": len(source), "fingerprint": fingerprint(source)}
        stored = self.stored()
        if stored is not None and stored.training_images != images:
            raise UserError(
                f"{self.path} was trained on {stored.training_images['images']} images and --data {config.data} has "
                f"{len(source)} or others; give the same images, or choose another --out."
            )
        description = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "task": config.task,
            "commit": stored.commit if stored else commit(),
            "written_by": f"crate-mae {version('crate-mae')}",
            "settings": config.to_dict(),
            "model": model.to_dict(),
            "training_images": images,
        }
        for folder in (self.checkpoints, self.path / "pictures"):
            folder.mkdir(parents=True, exist_ok=True)
        _replace(self.config, json.dumps(description, indent=2) + "\n")

    def note_start(self, step: int, processes: int, device: "torch.device") -> None:
        """Append a line about this start."""
        import torch

        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "step": step,
            "command": shlex.join(sys.argv),
            "commit": commit(),
            "crate-mae": version("crate-mae"),
            "torch": torch.__version__,
            "processes": processes,
            "device": str(device),
            "threads": torch.get_num_threads(),
        }
        _append(self.path / "starts.jsonl", line)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append a line of metrics."""
        _append(self.metrics, {"step": step, **values})

    def read(self) -> list[dict[str, float]]:
        """The metrics so far; a line that a kill cut short is left out."""
        return [line for line in read_lines(self.metrics) if isinstance(line.get("step"), int)]

    def draw(self, figure: "Figure", name: str) -> None:
        """Save a figure in the folder."""
        from crate_mae import figures

        try:
            figures.save(figure, self.path / name)
        except OSError as error:
            raise _no_room(self.path / name, error) from None

    def series(self, name: str) -> dict[int, float]:
        """One of the metrics, by step."""
        return {int(line["step"]): line[name] for line in self.read() if name in line}

    def rewind(self, step: int) -> None:
        """Remove the metrics of steps after ``step``, and a line cut short: they will be written again.

        A run that starts again at step 0 also evaluates its initial weights again. Evaluations at a stop go too.
        """
        kept = [json.dumps(line) + "\n" for line in self.read() if 0 < step >= line["step"] and not line.get(STOPPED)]
        if self.metrics.exists():
            _replace(self.metrics, "".join(kept))

    @property
    def best_before(self) -> Path:
        """The best checkpoint before an evaluation at a stop found a better one."""
        return self.best.with_name("best-before-stop")

    def copy_best(self) -> None:
        """Keep the best checkpoint, for a resumed run to restore."""
        if self.best.is_dir() and not self.best_before.exists():
            part = self.best_before.with_name(f".{self.best_before.name}.part")
            shutil.copytree(self.best, part, dirs_exist_ok=True)
            atomic_commit(part, self.best_before)

    def restore_best(self) -> None:
        """Undo what an evaluation at a stop did to the best checkpoint."""
        if self.best_before.is_dir():
            shutil.rmtree(self.best, ignore_errors=True)
            self.best_before.rename(self.best)

    def best_step(self) -> int | None:
        """The step of the best checkpoint; None where there is none, or one of crate-mae 0.1.0."""
        try:
            found = read_json(self.best / CONFIG)
        except (OSError, ValueError):
            return None
        return found.get("step") if isinstance(found, dict) else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process out of the folder while the block runs.

        The lock ends with the process, however that ends; its workers don't hold it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise UserError(
                    f"another process works on the run in {self.path}; wait for it, or choose another --out."
                ) from None
            except OSError:  # a file system without locks
                pass
            yield

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Write warnings of this package to ``log.txt`` too."""
        handler = logging.FileHandler(self.path / "log.txt", delay=True)
        handler.setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log = logging.getLogger("crate_mae")
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)
            handler.close()


@dataclass(frozen=True)
class Stored:
    """The content of a run's ``config.json``, in the current format."""

    config: RunConfig
    commit: str | None
    """The commit of the code that started it; None where that was no checkout."""
    training_images: dict[str, Any]
    """The number of training images, as ``images``, and their ``fingerprint``."""

    @staticmethod
    def of(found: Mapping[str, Any]) -> "Stored":
        """From a file of this format version or an earlier one."""
        task, settings, images = found.get("task"), found.get("settings"), found.get("training_images")
        if not isinstance(task, str) or task not in TASKS or not isinstance(settings, dict):
            raise UserError(f"it has no settings of a task that this crate-mae knows ({', '.join(TASKS)}).")
        if not isinstance(images, dict) or not isinstance(images.get("images"), int):
            raise UserError("it does not say how many training images there were.")
        written_at = found.get("commit")
        if not isinstance(written_at, str | None):
            raise UserError(f"its commit is {written_at!r}, which is not text.")
        return Stored(TASKS[task].from_dict(settings, found.get("format_version", 1)), written_at, images)


def configured(
    run: Run, recipe: Config | None, kind: type[Config], given: Mapping[str, Any], words: Iterable[str]
) -> Config:
    """The configuration of the run in the folder, or else the recipe's, with other values for some fields.

    ``given`` are values by field, ``words`` are ``key=value`` texts, as ``--set`` takes them.
    """
    stored = run.stored()
    if stored is None:
        if recipe is None:
            raise UserError(f"{run.path} holds no run to resume; choose a --recipe to start one.")
        return override(replace(recipe, **given), words, scale_intervals=True)
    run.check_task(kind)
    before = stored.config
    assert isinstance(before, kind)
    if recipe is not None and recipe.recipe != before.recipe:
        raise UserError(
            f"{run.path} was started with --recipe {before.recipe}; resume it with that recipe, or without."
        )
    return override(replace(before, **given), words)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A file with one JSON object in each line; a line that a kill cut short is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def _append(path: Path, line: dict[str, Any]) -> None:
    try:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise _no_room(path, error) from None


def _replace(path: Path, text: str) -> None:
    try:
        with atomic_write(path) as temporary:
            temporary.write_text(text)
    except OSError as error:
        raise _no_room(path, error) from None


def _no_room(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} could not be written ({reason(error)}); {remedy(error)} and resume with --resume.")
