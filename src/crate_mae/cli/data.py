"""Verbs for images: data pack, data check."""

import sys
from pathlib import Path

import tyro

from crate_mae.cli.arguments import Data
from crate_mae.errors import check_at_least


def data_pack(folder: tyro.conf.Positional[Path], out: Path, shard_size: str = "1GB") -> None:
    """Pack a folder of images into tar shards that --data takes, for sets too large to keep as single files.

    Args:
        folder: The images, with or without class folders, with or without train/, val/ and test/.
        out: Folder for the shards; it must be new or empty.
        shard_size: The largest size of a shard: 500MB, 1GB.
    """
    from rich.console import Console

    from crate_mae.data.packing import pack

    pack(folder, out, shard_size, Console())


def data_check(
    data: tyro.conf.Positional[Data],
    data_root: Path | None = None,
    download: bool = False,
    workers: int | None = None,
) -> None:
    """Read every image of a set and list the unreadable ones; exit with code 1 if there are any.

    Args:
        data_root: The folder of the named sets; data/ by default.
        download: Download a named set that is missing.
        workers: Processes that load images; the default is one for each processor.
    """
    if workers is not None:
        check_at_least("--workers", workers, 1)

    from rich.console import Console

    from crate_mae.data.checking import check

    if check(data, data_root, workers, Console(), download):
        sys.exit(1)
