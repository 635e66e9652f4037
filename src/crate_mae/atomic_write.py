"""Atomic writes: after a kill or a power cut, a file or folder is either complete or as it was before."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crate_mae.errors import UserError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path``, under which the block writes a file or a folder; it is renamed after the block.

    If the block fails, ``path`` stays as it was. The temporary name contains the process id. A device, which an
    administrator's rename would replace by a file for all programs, and a pipe are refused.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path} is a device or a pipe; choose the name of a file.")
    if not path.name:
        raise UserError(f"{path} is a folder; choose the name of a file in it.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        commit(temporary, path)
    finally:
        remove(temporary)


def commit(temporary: Path, path: Path) -> None:
    """Flush a file, or a folder with all files in it, to the disk, then rename it to ``path``."""
    for file in [*temporary.rglob("*"), temporary]:
        _flush(file)
    os.replace(temporary, path)
    _flush(path.parent)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it exists and as far as the system allows."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
