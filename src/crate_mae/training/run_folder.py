"""The folder of a run: what was asked for, what came of it, and how to go on."""

import fcntl
import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from crate_mae import figures
from crate_mae.data.source import ImageSource, fingerprint
from crate_mae.errors import UserError
from crate_mae.models.checkpoint import BEST
from crate_mae.models.config import ModelConfig
from crate_mae.training.config import FREE, HOW_IT_RUNS, Config, RunConfig, override

FORMAT = "crate-mae run"


@dataclass(frozen=True)
class Run:
    """A run folder.

    ``config.json``     what was asked for, and of which commit
    ``starts.jsonl``    when, how and on what it was started and resumed
    ``metrics.jsonl``   one object a line, each with its step
    ``log.txt``         images that could not be read, and the like
    ``checkpoints/``    ``best``, and ``step-NNNNNNNN`` for the last few
    ``pictures/``       completions as training goes
    ``.lock``           held by the process that is at work on it
    """

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / BEST.parent

    @property
    def best(self) -> Path:
        return self.path / BEST

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def settings(self) -> dict[str, Any] | None:
        """What ``config.json`` says, or None where there is no run yet."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file; a run is a folder: choose another --out.")
        if not self.config.exists():
            return None
        try:
            stored = json.loads(self.config.read_text())
        except (OSError, ValueError):
            raise UserError(f"{self.config} can't be read as JSON; take another --out.") from None
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise UserError(f"{self.path} holds something else than a run; choose another --out.")
        return stored

    def check_task(self, kind: type[RunConfig]) -> None:
        """Refuse to go on with a run of another task."""
        stored = self.settings()
        if stored and stored["task"] != kind.task:
            raise UserError(f"{self.path} holds a run of {stored['task']}, not of {kind.task}; choose another --out.")

    def admit(self, config: RunConfig, resume: bool) -> None:
        """Refuse a run that would overwrite the one that is there, or go on with it as another."""
        stored = self.settings()
        if stored is None:
            return
        self.check_task(type(config))
        if not resume:
            raise UserError(f"{self.path} holds a run already; go on with it by --resume, or choose another --out.")
        before = type(config)(**stored["settings"])
        free = config.marked(FREE, HOW_IT_RUNS)
        for item in fields(config):
            old, new = getattr(before, item.name), getattr(config, item.name)
            if old != new and item.name not in free:
                raise UserError(
                    f"{self.path} was started with {item.name}={old} and can't go on with {new}; leave it, or choose "
                    "another --out."
                )

    def begin(self, config: RunConfig, model: ModelConfig, source: ImageSource) -> None:
        """Write ``config.json`` where there is none; where there is, hold its images against these."""
        images = {"images": len(source), "fingerprint": fingerprint(source)}
        stored = self.settings()
        if stored is not None and stored["training_images"] != images:
            raise UserError(
                f"{self.path} was trained on {stored['training_images']['images']} images and --data {config.data} has "
                f"{len(source)} or others; give the same images, or choose another --out."
            )
        description = {
            "format": FORMAT,
            "task": config.task,
            "commit": stored["commit"] if stored else commit(),
            "written_by": f"crate-mae {version('crate-mae')}",
            "settings": config.to_dict(),
            "model": model.to_dict(),
            "training_images": images,
        }
        for folder in (self.checkpoints, self.path / "pictures"):
            folder.mkdir(parents=True, exist_ok=True)
        _replace(self.config, json.dumps(description, indent=2) + "\n")

    def note_start(self, step: int, processes: int, device: torch.device) -> None:
        """A line on this start."""
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
        """A line of metrics."""
        _append(self.metrics, {"step": step, **values})

    def read(self) -> list[dict[str, float]]:
        """The metrics so far; a line that a kill cut short does not count."""
        return read_lines(self.metrics)

    def draw(self, figure: Figure, name: str) -> None:
        """Save a figure in the folder."""
        try:
            figures.save(figure, self.path / name)
        except OSError as error:
            raise _no_room(self.path / name, error) from None

    def series(self, name: str) -> dict[int, float]:
        """One of the metrics, by step."""
        return {int(line["step"]): line[name] for line in self.read() if name in line}

    def rewind(self, step: int) -> None:
        """Forget metrics of steps that a kill has undone, and a line cut short: they will be written again.

        A run that begins anew at step 0 evaluates its first weights anew too.
        """
        kept = [json.dumps(line) + "\n" for line in self.read() if 0 < step >= line["step"]]
        if self.metrics.exists():
            _replace(self.metrics, "".join(kept))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other start out of the folder while the block runs.

        The lock goes when the process goes, however it ends, and its children (readers of images) have no part in it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise UserError(
                    f"another process is at work on the run in {self.path}; wait for it, or choose another --out."
                ) from None
            except OSError:  # a file system without locks
                pass
            yield

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Warnings of this package go to ``log.txt`` too."""
        handler = logging.FileHandler(self.path / "log.txt", delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log = logging.getLogger("crate_mae")
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)
            handler.close()


def configured(run: Run, recipe: Config | None, settings: Iterable[str], kind: type[Config]) -> Config:
    """The configuration of the run that is there, or else the recipe's, with ``settings`` (``key=value``) applied."""
    stored = run.settings()
    if stored is None:
        if recipe is None:
            raise UserError(f"{run.path} holds no run to go on with; choose a --recipe to start one.")
        return override(recipe, settings)
    run.check_task(kind)
    before = kind(**stored["settings"])
    if recipe is not None and recipe.recipe != before.recipe:
        raise UserError(f"{run.path} was started with --recipe {before.recipe}; resume it with that, or without.")
    return override(before, settings)


def commit() -> str | None:
    """The commit of the code that runs, with + where files differ from it; None where it is no checkout.

    Code that lies in another project's repository, as an installation in its .venv does, is none of that one's commits.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*") or None
    except (OSError, subprocess.CalledProcessError):
        return None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A file of one JSON object a line; a line that a kill cut short does not count."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines


def _append(path: Path, line: dict[str, Any]) -> None:
    try:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise _no_room(path, error) from None


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_text(text)
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise _no_room(path, error) from None


def _no_room(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} could not be written ({error.strerror}); make room and go on with --resume.")
