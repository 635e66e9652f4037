"""All that a run needs to resume, written so that a kill at any moment leaves the previous checkpoint intact.

A checkpoint of a run is a folder that ``crate_mae.load`` reads like any other (``model.safetensors``, ``config.json``).
It also has ``state.json``, the state of the loop, and ``optimiser/``, AdamW's moments in the format of
torch.distributed.checkpoint: one file for each process, readable by any number of processes.

No random state is stored, since there is none: order, augmentation and masks are functions of (seed, epoch, sample),
and everything else in a step of (seed, step, process). The schedule and the position in the data are functions of the
step.
"""

import json
import os
import shutil
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from crate_mae.atomic_write import commit
from crate_mae.disk_errors import reason, remedy
from crate_mae.errors import UserError
from crate_mae.json_files import read_json
from crate_mae.models.checkpoint import read_tensors, write_checkpoint
from crate_mae.models.image_model import ImageModel
from crate_mae.models.locate import WEIGHTS
from crate_mae.models.zoo import check_tensors
from crate_mae.training.config import RunConfig
from crate_mae.training.distributed import Processes, full_weights, lost_another
from crate_mae.training.moments_reader import MomentsReader

STATE = "state.json"
OPTIMISER = "optimiser"
PREFIX = "step-"


@dataclass
class State:
    """What the loop keeps from step to step, besides weights and moments."""

    step: int = 0
    """Steps done."""
    best: float | None = None
    """The best value so far of the metric that chooses the best checkpoint."""
    pending: list[tuple[float, float]] = field(default_factory=list)
    """Loss and norm of the gradient of the steps since the last line of metrics.jsonl."""
    seconds: float = 0.0
    """Time spent in the loop, over all starts."""

    @staticmethod
    def read(path: Path) -> "State":
        """From a file; ValueError where it holds something else."""
        found = read_json(path)
        try:
            best = None if found["best"] is None else float(found["best"])
            pending = [(float(loss), float(norm)) for loss, norm in found["pending"]]
            return State(int(found["step"]), best, pending, float(found["seconds"]))
        except (KeyError, TypeError, OverflowError):
            raise ValueError(f"its {STATE} is damaged") from None


def checkpoints_in(folder: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob(f"{PREFIX}*") if (path / STATE).is_file())


def save(
    folder: Path,
    *,
    model: ImageModel,
    optimiser: torch.optim.Optimizer,
    state: State,
    config: RunConfig,
    processes: Processes,
) -> Path:
    """Write a checkpoint below ``folder`` atomically, and delete all but the last ``config.keep``.

    All processes call it together; each writes its own part of the moments. The weights, a third of the whole, are
    gathered in one file, so that every tool can read them.
    """
    path = folder / f"{PREFIX}{state.step:08d}"
    aside = folder / f".{path.name}.part"
    weights = full_weights(model)
    moments = get_optimizer_state_dict(model, optimiser)["state"]
    try:
        if processes.is_main:
            shutil.rmtree(aside, ignore_errors=True)
            extras = model.extras() | {"step": state.step, "steps": config.steps}
            write_checkpoint(aside, model.kind, model.config, weights, extras)
            (aside / STATE).write_text(json.dumps(asdict(state)) + "\n")
        processes.wait()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            dcp.save({"state": moments}, checkpoint_id=aside / OPTIMISER, no_dist=processes.world == 1)
        if processes.is_main:
            if path.exists():  # a damaged one
                _remove(path)
            commit(aside, path)
            for old in checkpoints_in(folder)[: -config.keep]:
                _remove(old)
        processes.wait()
    except (OSError, SafetensorError, CheckpointException, RuntimeError, UserError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        there = checkpoints_in(folder)
        cause = _cause(error)
        if lost_another(cause):
            raise cause from None
        last = f"the last good one is {there[-1]}" if there else "there is none before it"
        raise UserError(
            f"the checkpoint of step {state.step} could not be written ({reason(cause)}); {last}: {remedy(cause)} "
            "and resume with --resume."
        ) from None
    return path


def restore(path: Path, model: ImageModel, optimiser: torch.optim.Optimizer, processes: Processes) -> State:
    """Restore model and optimiser from a checkpoint, written by any number of processes."""
    try:
        state = State.read(path / STATE)
        if path.name != f"{PREFIX}{state.step:08d}":
            raise ValueError(f"its {STATE} belongs to step {state.step}")
        tensors: dict[str, Any] = read_tensors(path / WEIGHTS)
        check_tensors(model, tensors)
        moments = get_optimizer_state_dict(model, optimiser)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            reader = MomentsReader(path / OPTIMISER)
            reader.read_metadata()  # first, since dcp would log a damaged file with a traceback
            dcp.load({"state": moments["state"]}, storage_reader=reader, no_dist=processes.world == 1)
        set_optimizer_state_dict(model, optimiser, moments)
        set_model_state_dict(model, tensors, options=StateDictOptions(full_state_dict=True))
    except (OSError, ValueError, RuntimeError, CheckpointException) as error:
        if lost_another(_cause(error)):
            raise _cause(error) from None
        raise UserError(f"the checkpoint {path} can't be used ({reason(_cause(error))}).") from None
    return state


def _remove(path: Path) -> None:
    """Rename it first, so that a half-deleted folder is never taken for a checkpoint."""
    gone = path.with_name(f".{path.name}.old.part")
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _cause(error: BaseException) -> BaseException:
    """What went wrong; torch wraps it together with the traceback of every process."""
    return next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error
