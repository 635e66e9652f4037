"""A checkpoint is a folder: ``model.safetensors``, and a ``config.json`` with what the weights don't say."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig

FORMAT = "crate-mae"
FORMAT_VERSION = 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
BEST = Path("checkpoints") / "best"  # where a run folder keeps its best checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it lies on disk."""

    path: Path
    kind: str
    config: ModelConfig
    extras: dict[str, Any]
    tensors: dict[str, Tensor]


def write_checkpoint(
    path: str | Path, kind: str, config: ModelConfig, tensors: dict[str, Tensor], extras: dict[str, Any]
) -> Path:
    """Write a checkpoint folder, each file aside first and then in one rename."""
    folder = Path(path)
    if folder.is_file():
        raise UserError(f"{folder} is a file; a checkpoint is a folder: choose another name.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        description = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "written_by": f"crate-mae {version('crate-mae')}",
            "kind": kind,
            **extras,
            "model": config.to_dict(),
        }
        plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(plain, folder / f"{WEIGHTS}.part", metadata={"format": "pt"})
        (folder / f"{CONFIG}.part").write_text(json.dumps(description, indent=2) + "\n")
        shutil.copymode(folder / f"{CONFIG}.part", folder / f"{WEIGHTS}.part")  # safetensors writes for the owner alone
        os.replace(folder / f"{WEIGHTS}.part", folder / WEIGHTS)
        os.replace(folder / f"{CONFIG}.part", folder / CONFIG)
    except (OSError, SafetensorError) as error:
        for name in (WEIGHTS, CONFIG):
            with suppress(OSError):
                (folder / f"{name}.part").unlink()
        raise UserError(f"the checkpoint {folder} could not be written ({error}).") from None
    return folder


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint folder, or the best checkpoint of a run folder. Runs no code from any file."""
    folder = Path(path)
    if not (folder / WEIGHTS).is_file() and (folder / BEST / CONFIG).is_file():
        folder = folder / BEST
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} is no checkpoint: a checkpoint is a folder with {CONFIG} and {WEIGHTS} "
                f"(crate-mae convert makes one from other projects' files)."
            )
    description = _read_description(folder / CONFIG)
    config = description.pop("model")
    kind = description.pop("kind")
    extras = {name: value for name, value in description.items() if name not in _HEADER}
    if unknown := extras.keys() - {"class_names", "pool"}:
        raise UserError(f"{folder / CONFIG} has the unknown fields {', '.join(sorted(unknown))}.")
    try:
        return Checkpoint(folder, kind, ModelConfig.from_dict(config), extras, read_tensors(folder / WEIGHTS))
    except UserError as error:
        raise UserError(f"the checkpoint {folder} can't be used: {error}") from None


_HEADER = ("format", "format_version", "written_by")


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{path} can't be read as JSON; the checkpoint is damaged: take another copy.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise UserError(f"{path} was not written by crate-mae; crate-mae convert imports other projects' files.")
    if description.get("format_version") != FORMAT_VERSION:
        raise UserError(
            f"{path} has format version {description.get('format_version')!r} and this crate-mae reads "
            f"{FORMAT_VERSION}; install the crate-mae that wrote it ({description.get('written_by')})."
        )
    if not isinstance(description.get("kind"), str) or not isinstance(description.get("model"), dict):
        raise UserError(f"{path} lacks the fields kind and model; the checkpoint is damaged: take another copy.")
    return description


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path.name} is truncated or no safetensors file ({error}); take another copy.") from None
