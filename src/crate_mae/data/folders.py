"""Folders of images, with a folder for each class or without."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from crate_mae.data.source import ImageSource, file_stamp
from crate_mae.errors import UserError
from crate_mae.usable_path import printable, usable

SUFFIXES = frozenset(
    ".avif .bmp .gif .jfif .jp2 .jpeg .jpg .pbm .pgm .png .pnm .ppm .tif .tiff .webp".split()  # noqa: SIM905
)
"""Files with these suffixes, in either case, are taken for images; everything else in a folder is ignored."""


class Folder(ImageSource):
    """The images below a folder.

    With class names, an image's class is the first folder on its path below this one, however deep it is.
    """

    def __init__(self, path: Path, class_names: Sequence[str] | None, files: Sequence[str] | None = None):
        """``files`` are relative to the folder; by default all images below it."""
        self.path = path
        self.files = list(walk_relative(path) if files is None else files)
        if not self.files:
            raise no_images(path)
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
    """A path without its suffix, as the name of a sample in a shard: there the name ends at the first dot."""
    folder, name = os.path.split(file)
    stem = os.path.splitext(name)[0].replace(".", "_")
    return f"{folder}/{stem}".replace(os.sep, "/").lstrip("/")


def class_folders(splits: Iterable[Sequence[str]]) -> list[str] | None:
    """The classes of a set from the relative paths of the images in each of its splits: the folders at the top.

    None if an image lies in no folder: then no image of the set has a label.
    """
    files = [file for split in splits for file in split]
    if any(os.sep not in file for file in files):
        return None
    return sorted({file.split(os.sep, 1)[0] for file in files}) or None


def list_images(paths: Iterable[Path]) -> list[Path]:
    """Image files as they are named, and the images below each folder; an error if one of them is not there."""
    files: list[Path] = []
    for path in map(usable, paths):
        found = [Path(file) for file in walk(path)] if path.is_dir() else [path]
        if not found:
            raise no_images(path)
        if not path.exists():
            raise UserError(f"there is no image or folder {printable(str(path))}.")
        files += found
    if not files:
        raise UserError("name at least one image or folder.")
    return files


def no_images(folder: Path) -> UserError:
    """For a folder without any."""
    return UserError(
        f"there are no images in {printable(str(folder))}; files that end in {', '.join(sorted(SUFFIXES))} count."
    )


def walk(folder: Path) -> Iterator[str]:
    """The images below a folder, in an order that depends only on their names.

    Hidden files and files that are no images are ignored; links are followed, each folder once.
    """
    visited = {_identity(str(folder))}
    open_folders = [iter(_entries(str(folder)))]
    while open_folders:  # no recursion: folders may be nested more deeply than Python's calls
        entry = next(open_folders[-1], None)
        if entry is None:
            open_folders.pop()
        elif _is(entry.is_dir):
            if (identity := _identity(entry.path)) not in visited:  # a link to a parent would never end
                visited.add(identity)
                open_folders.append(iter(_entries(entry.path)))
        elif _is_image(entry):
            yield entry.path


def walk_relative(folder: Path) -> Iterator[str]:
    """The same, as paths below the folder."""
    return (os.path.relpath(file, folder) for file in walk(folder))


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".") and entry.name != "__MACOSX"]
    return sorted(seen, key=lambda entry: entry.name)


def _is(kind: Callable[[], bool]) -> bool:
    """What an entry says it is; a link that leads to itself is nothing, as one that leads nowhere."""
    try:
        return kind()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _is_image(entry: os.DirEntry[str]) -> bool:
    return os.path.splitext(entry.name)[1].lower() in SUFFIXES and _is(entry.is_file)
