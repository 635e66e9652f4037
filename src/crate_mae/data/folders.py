"""Folders of images, with a folder for each class or without."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from crate_mae.data.source import ImageSource, file_stamp, printable
from crate_mae.errors import UserError

SUFFIXES = frozenset(
    ".avif .bmp .gif .jfif .jp2 .jpeg .jpg .pbm .pgm .png .pnm .ppm .tif .tiff .webp".split()  # noqa: SIM905
)
"""The files that are taken for images, in either case; everything else in a folder is passed over."""


class Folder(ImageSource):
    """The images below a folder.

    Where no image lies in the folder itself, its subfolders are the classes and the images below them, however deep,
    have their labels. Where one does, nothing has a label. Hidden files and files that are no images are passed over;
    links are followed, each folder once.
    """

    def __init__(self, path: Path, class_names: Sequence[str] | None):
        self.path = path
        self.files = [os.path.relpath(file, path) for file in walk(path)]
        if not self.files:
            raise UserError(f"there are no images in {path}; files that end in {', '.join(sorted(SUFFIXES))} count.")
        self.labels = None
        if class_names is not None:
            place = {name: number for number, name in enumerate(class_names)}
            self.class_names = tuple(map(printable, class_names))
            self.labels = np.array([place[file.split(os.sep, 1)[0]] for file in self.files])

    def __len__(self) -> int:
        return len(self.files)

    def stored(self, index: int) -> bytes:
        return (self.path / self.files[index]).read_bytes()

    def label(self, index: int) -> int | None:
        return None if self.labels is None else int(self.labels[index])

    def name(self, index: int) -> str:
        return printable(str(self.path / self.files[index]))

    def key(self, index: int) -> str:
        return as_key(self.files[index])

    def stamp(self, index: int) -> str:
        return file_stamp(self.path / self.files[index])


def as_key(file: str) -> str:
    """A path without its suffix, fit to name a sample in a shard: there the name ends at the first dot."""
    folder, name = os.path.split(file)
    stem = os.path.splitext(name)[0].replace(".", "_")
    return f"{folder}/{stem}".replace(os.sep, "/").lstrip("/")


def classes(folders: Sequence[Path]) -> list[str] | None:
    """The class folders of one set that lies in several folders (its splits), or None where it has no classes."""
    found = set()
    for folder in folders:
        above = {_identity(folder)}
        entries = _entries(folder)
        if any(_is_image(entry) for entry in entries):
            return None
        found |= {entry.name for entry in entries if entry.is_dir() and any(_walk(entry.path, set(above)))}
    return sorted(found) or None


def walk(folder: Path) -> Iterator[str]:
    """The images below a folder, in an order that depends on their names alone."""
    yield from _walk(str(folder), set())


def _walk(folder: str, been: set[tuple[int, int]]) -> Iterator[str]:
    if _identity(folder) in been:  # a link back up would never end
        return
    been.add(_identity(folder))
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _walk(entry.path, been)
        elif _is_image(entry):
            yield entry.path


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".") and entry.name != "__MACOSX"]
    return sorted(seen, key=lambda entry: entry.name)


def _is_image(entry: os.DirEntry[str]) -> bool:
    return os.path.splitext(entry.name)[1].lower() in SUFFIXES and entry.is_file()
