"""Verbs for images."""

import sys
from pathlib import Path

import tyro

from crate_mae.cli.arguments import Data
from crate_mae.errors import UserError


def data_pack(folder: tyro.conf.Positional[Path], out: Path, shard_size: str = "1GB") -> None:
    """Pack a folder of images into tar shards that --data takes, for sets too large to keep as single files.

    Args:
        folder: The images, with or without class folders, with or without train/, val/ and test/.
        out: Folder for the shards; it must be new or empty.
        shard_size: A shard ends before it would be larger: 500MB, 1GB.
    """
    from rich.console import Console

    from crate_mae.data.packing import pack

    pack(folder, out, shard_size, Console())


def data_check(data: tyro.conf.Positional[Data], data_root: Path | None = None, workers: int | None = None) -> None:
    """Read every image of a set and list those that can't be read; exit with code 1 where there are any.

    Args:
        data_root: Where named sets are; data/ unless given.
        workers: Processes that read; as many as there are processors unless given.
    """
    from rich.console import Console

    from crate_mae.data.checking import check

    if workers is not None and workers < 1:
        raise UserError(f"--workers is {workers}; choose a whole number from 1 up.")
    if check(data, data_root, workers, Console()):
        sys.exit(1)
