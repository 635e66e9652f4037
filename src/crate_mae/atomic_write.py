"""Atomic writes: whenever a kill or a power cut comes, a file is either complete or what it was before."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path``, for the block to write to; after the block, the file gets its name.

    When the block fails, ``path`` stays as it was. The temporary name is this process's own.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        commit(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def commit(temporary: Path, path: Path) -> None:
    """Flush a file, or a folder with all files in it, to the disk, then rename it to ``path``."""
    for file in [*temporary.rglob("*"), temporary]:
        _flush(file)
    os.replace(temporary, path)
    _flush(path.parent)


def clean(folder: Path) -> None:
    """Remove the temporary files and folders that a kill left below ``folder``."""
    for left in sorted(folder.rglob(".*.part")):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
