"""A checkpoint is a folder: ``model.safetensors``, and a ``config.json`` with what the weights don't tell."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from crate_mae.atomic_write import atomic_write
from crate_mae.disk_errors import reason, remedy
from crate_mae.errors import UserError
from crate_mae.json_files import read_json
from crate_mae.models.config import ModelConfig
from crate_mae.models.locate import CONFIG, WEIGHTS, locate
from crate_mae.settings import FORMAT_VERSION, check_version
from crate_mae.usable_path import usable

FORMAT = "crate-mae"


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint folder."""

    path: Path
    kind: str
    config: ModelConfig
    extras: dict[str, Any]
    """What a kind of model records beyond its configuration, such as the names of the classes."""
    tensors: dict[str, Tensor]
    step: int | None = None
    """Steps done when a run wrote it; None for a checkpoint of no run, or of crate-mae 0.1.0."""
    steps: int | None = None
    """Steps of the whole run."""


def write_checkpoint(
    path: str | Path, kind: str, config: ModelConfig, tensors: Mapping[str, Tensor], extras: Mapping[str, Any]
) -> Path:
    """Write a checkpoint folder, each file atomically. A run's ``extras`` have ``step`` and ``steps`` too."""
    folder = usable(path)
    if folder.is_file():
        raise UserError(f"{folder} is a file; a checkpoint is a folder: choose another name.")
    description = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "written_by": f"crate-mae {version('crate-mae')}",
        "kind": kind,
        **extras,
        "model": config.to_dict(),
    }
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / CONFIG) as text, atomic_write(folder / WEIGHTS) as weights:
            save_file(plain, weights, metadata={"format": "pt"})
            text.write_text(json.dumps(description, indent=2) + "\n")
            shutil.copymode(text, weights)  # safetensors lets only the owner read its files
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"the checkpoint {folder} could not be written ({reason(error)}); {remedy(error)} and try again."
        ) from None
    return folder


def read_checkpoint(path: str | Path, **hub: Any) -> Checkpoint:
    """Read what ``locate`` finds: a checkpoint folder, a run's best, a model on the Hub. Runs no code from any file."""
    folder = locate(path, **hub)
    description = _read_description(folder / CONFIG)
    known: dict[str, Any] = {
        name: description[name] for name in ("class_names", "pool", "step", "steps") if name in description
    }
    if unknown := description.keys() - known - _HEADER:
        raise UserError(f"{folder / CONFIG} has the unknown fields {', '.join(sorted(unknown))}.")
    step, steps = known.pop("step", None), known.pop("steps", None)
    try:
        config = ModelConfig.from_dict(description["model"], description["format_version"])
        return Checkpoint(folder, description["kind"], config, known, read_tensors(folder / WEIGHTS), step, steps)
    except UserError as error:
        raise UserError(f"the checkpoint {folder} can't be used: {error}") from None


_HEADER = {"format", "format_version", "written_by", "kind", "model"}


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = read_json(path)
    except (OSError, ValueError):
        raise UserError(f"{path} can't be read as JSON; the checkpoint is damaged: take another copy.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise UserError(f"{path} was not written by crate-mae; crate-mae convert imports other projects' files.")
    check_version(path, description.get("format_version"), description.get("written_by"))
    if not isinstance(description.get("kind"), str) or not isinstance(description.get("model"), dict):
        raise UserError(f"{path} lacks the fields kind and model; the checkpoint is damaged: take another copy.")
    at = [description[name] for name in ("step", "steps") if name in description]
    if len(at) == 1 or not all(isinstance(number, int) for number in at):
        raise UserError(f"{path} needs whole numbers for step and steps; the checkpoint is damaged: take another copy.")
    return description


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path.name} is truncated or no safetensors file ({error}); take another copy.") from None
