"""Where a checkpoint is: a shipped model, a folder, the best checkpoint of a run folder, or a model on the Hub."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crate_mae.errors import UserError
from crate_mae.models.shipped import shipped_folder, shipped_names
from crate_mae.usable_path import usable

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
BEST = Path("checkpoints") / "best"  # in a run folder
HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
"""owner/name; ./NAME and ../NAME are folders."""


def locate(name: str | Path, **hub: Any) -> Path:
    """The checkpoint folder of that name. ``hub`` are arguments of huggingface_hub's ``snapshot_download``.

    The name of a shipped model comes first (``shipped_folder``). A folder on this machine comes before a model of the
    same name, as owner/name, on the Hub.
    """
    folder = shipped_folder(name) or usable(name)
    if not folder.exists() and HUB_NAME.fullmatch(str(name)):
        folder = _download(str(name), **hub)
    if not (folder / WEIGHTS).is_file() and (folder / BEST / CONFIG).is_file():
        folder = folder / BEST
    if not all((folder / file).is_file() for file in (CONFIG, WEIGHTS)):
        shipped = f", or one of {', '.join(shipped_names())}" if shipped_names() else ""
        raise UserError(
            f"{folder} is no checkpoint: a checkpoint is a folder with {CONFIG} and {WEIGHTS} "
            f"(crate-mae convert makes one from other projects' files){shipped}."
        )
    return folder


def _download(name: str, **hub: Any) -> Path:
    from huggingface_hub import snapshot_download

    with in_one_sentence(
        f"there is no folder {name}, and the Hugging Face Hub gave no model of that name; check the name, the network "
        "or your token"
    ):
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS], **hub))


@contextmanager
def in_one_sentence(problem: str) -> Iterator[None]:
    """Turn whatever the Hub, the network and their libraries raise into a ``UserError``."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # depending on their versions, from requests, httpx or the Hub's library
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(f"{problem} ({reason}).") from None
