"""What a run folder says of the model that it made: the facts for a model card, and nothing else."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crate_mae.errors import UserError
from crate_mae.models.checkpoint import BEST
from crate_mae.training.run_folder import read_lines

BEST_BY: dict[str, tuple[str, Callable[[Iterable[float]], float]]] = {
    "pretrain": ("val_loss", min),
    "finetune": ("val_accuracy", max),
}
"""The number that chooses a run's best checkpoint, and whether its least or its largest value does."""


@dataclass(frozen=True)
class Record:
    """How a run's best checkpoint came to be."""

    task: str
    settings: dict[str, Any]
    """The run's configuration: recipe, data, steps and all else."""
    images: int
    """Training images."""
    commit: str | None
    """The commit of the code; None where it was no checkout."""
    machines: list[str]
    """Processes, device and torch of each start that differs from the one before."""
    step: int | None
    """Steps done when the best checkpoint was written; None where no evaluation is on record."""
    numbers: dict[str, float]
    """What was measured then."""


def read_record(run: str | Path) -> Record:
    """The record of a run folder."""
    folder = Path(run)
    try:
        stored = json.loads((folder / "config.json").read_text())
        task, settings = stored["task"], dict(stored["settings"])
        images, commit = int(stored["training_images"]["images"]), stored["commit"]
        chosen_by, best = BEST_BY[task]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{folder} is no run folder; give the folder that crate-mae pretrain or finetune wrote."
        ) from None
    evaluations = [line for line in read_lines(folder / "metrics.jsonl") if chosen_by in line]
    value = best(line[chosen_by] for line in evaluations) if evaluations else None
    numbers = dict(next((line for line in evaluations if line[chosen_by] == value), {}))
    step = numbers.pop("step", None)
    machines = [
        f"{start.get('processes')} x {start.get('device')}, torch {start.get('torch')}"
        for start in read_lines(folder / "starts.jsonl")
    ]
    return Record(task, settings, images, commit, list(dict.fromkeys(machines)), step, numbers)


def run_of(checkpoint: str | Path) -> Path | None:
    """The run folder that a path names, itself or by its best checkpoint; None for a checkpoint of no run."""
    folder = Path(checkpoint).resolve()
    runs = [folder] if (folder / BEST).is_dir() else list(folder.parents[1:2])
    return next(
        (run for run in runs if run / BEST in (folder / BEST, folder) and (run / "config.json").is_file()), None
    )
