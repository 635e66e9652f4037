"""What a run folder records about its best checkpoint: the facts for a model card."""

from dataclasses import dataclass
from pathlib import Path

from crate_mae.errors import UserError
from crate_mae.models.locate import BEST
from crate_mae.training.config import RunConfig
from crate_mae.training.run_folder import STOPPED, Run, read_lines


@dataclass(frozen=True)
class Record:
    """How a run made its best checkpoint."""

    config: RunConfig
    images: int
    """Training images."""
    commit: str | None
    """The commit of the code; None where it was no checkout."""
    machines: list[str]
    """Processes, device and torch of each start that differs from the one before."""
    step: int | None
    """Steps done when the best checkpoint was written; None where no evaluation is on record."""
    numbers: dict[str, float]
    """The metrics of that step."""


def read_record(run: str | Path) -> Record:
    """The record of a run folder."""
    folder = Path(run)
    stored = Run(folder).stored()
    if stored is None:
        raise UserError(f"{folder} is no run folder; give the folder that crate-mae pretrain or finetune wrote.")
    config = stored.config
    evaluations = [line for line in read_lines(folder / "metrics.jsonl") if config.best_by in line]
    best = min if config.lower_is_better else max
    numbers = dict(best(evaluations, key=lambda line: line[config.best_by], default={}))
    step = numbers.pop("step", None)
    numbers.pop(STOPPED, None)
    machines = [
        f"{start.get('processes')} x {start.get('device')}, torch {start.get('torch')}"
        for start in read_lines(folder / "starts.jsonl")
    ]
    images = stored.training_images["images"]
    return Record(config, images, stored.commit, list(dict.fromkeys(machines)), step, numbers)


def run_of(checkpoint: str | Path) -> Path | None:
    """The run folder that a path is, or whose best checkpoint it is; None for any other checkpoint."""
    folder = Path(checkpoint).resolve()
    runs = [folder] if (folder / BEST).is_dir() else list(folder.parents[1:2])
    return next(
        (run for run in runs if run / BEST in (folder / BEST, folder) and (run / "config.json").is_file()), None
    )
