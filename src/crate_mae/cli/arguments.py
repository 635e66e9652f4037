"""Words that several verbs take."""

from pathlib import Path
from typing import Annotated

import tyro

from crate_mae.data.named import NAMES
from crate_mae.errors import UserError

Data = Annotated[str, tyro.conf.arg(help=f"A name ({NAMES}), a folder or shards.")]
"""``--data``, or the first word."""
Settings = Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE"), tyro.conf.UseAppendAction]
"""``--set KEY=VALUE``, any number of times."""


def data_settings(data: str | None, root: Path | None) -> list[str]:
    """--data and --data-root as settings of a run."""
    return [f"{key}={value}" for key, value in (("data", data), ("data_root", root)) if value is not None]


def checked_seed(seed: int) -> int:
    """A seed that every generator takes."""
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed is {seed}; choose a whole number from 0 up to {2**32 - 1}.")
    return seed


def check_checkpoint(path: Path) -> None:
    """Refuse a checkpoint that is not there before torch is imported; what it holds is for ``load`` to say."""
    if not path.exists():
        raise UserError(
            f"{path} is no checkpoint: a checkpoint is a folder with config.json and model.safetensors (crate-mae "
            "convert makes one from other projects' files)."
        )
