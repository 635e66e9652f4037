"""Tar shards in webdataset's layout, read by random access.

A sample is the members that share a name up to the first dot: ``a/b.jpg``, with its class in ``a/b.cls`` (a number) or
in ``a/b.json`` (``{"label": 3}``). Each shard's headers are read once; after that an image is one seek and one read,
so shuffling, resuming and seeing each sample once an epoch work as for a folder. Nothing is unpacked to disk.
"""

import glob
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from crate_mae.data.folders import SUFFIXES
from crate_mae.data.source import ImageSource, file_stamp
from crate_mae.errors import UserError
from crate_mae.json_files import parse_json, read_json
from crate_mae.usable_path import is_unicode, printable, shown

CLASSES = "classes.json"
"""Beside the shards or one folder up: a list of the class names."""
SMALL = 1 << 20  # bytes; a label is not longer
MOST_CLASSES = 1_000_000
"""Without a list of names: one damaged label would ask for billions of them."""
RANGE = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")


class Shards(ImageSource):
    """The images in a list of tar files."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(paths)
        self.keys: list[str] = []
        places, labels = [], []
        for number, path in enumerate(self.paths):
            for key, offset, size, label in _samples(path):
                self.keys.append(key)
                places.append((number, offset, size))
                labels.append(label)
        if not places:
            raise UserError(f"there are no images in {printable(str(self.paths[0]))} or the shards beside it.")
        self.places = np.array(places, dtype=np.int64)
        self.unique = len(set(self.keys)) == len(self.keys)
        known = [label for label in labels if label is not None]
        self.labels = np.array(labels, dtype=np.int64) if len(known) == len(labels) else None
        if self.labels is not None:
            self.class_names = _class_names(self.paths[0], int(self.labels.max()) + 1)

    def __len__(self) -> int:
        return len(self.keys)

    def stored(self, index: int) -> bytes:
        number, offset, size = map(int, self.places[index])
        with open(self.paths[number], "rb") as shard:
            shard.seek(offset)
            return shard.read(size)

    def label(self, index: int) -> int | None:
        return None if self.labels is None else int(self.labels[index])

    def name(self, index: int) -> str:
        return printable(f"{self.paths[self.places[index, 0]]}: {self.keys[index]}")

    def key(self, index: int) -> str:
        return self.keys[index] if self.unique else f"{self.paths[self.places[index, 0]].name}/{self.keys[index]}"

    def stamp(self, index: int) -> str:
        number, offset, size = map(int, self.places[index])
        return f"{self._shard_stamps[number]} {offset} {size}"

    @cached_property
    def _shard_stamps(self) -> list[str]:
        return list(map(file_stamp, self.paths))


def find_shards(pattern: str) -> list[Path]:
    """The shards that match a pattern: ``*``, ``?`` and ``[..]`` as in a shell, ``{000..009}`` for a range."""
    found: list[Path] = []
    for name in _ranges(os.path.expanduser(pattern)):
        matches = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else [name]
        if not matches:
            raise UserError(f"no shard matches {name}.")
        for path in matches:
            if not os.path.isfile(path):  # at the first that is missing: a range may have billions
                raise UserError(f"there is no shard {shown(path)}.")
        found += map(Path, matches)
    if not found:
        raise UserError(f"no shard matches {pattern}: a range goes from the lower number to the higher one.")
    return found


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern of shards."""
    return bool(RANGE.search(name)) or (glob.has_magic(name) and name.endswith(".tar"))


def _ranges(pattern: str) -> Iterator[str]:
    found = RANGE.search(pattern)
    if not found:
        yield pattern
        return
    first, last = found.groups()
    for number in range(int(first), int(last) + 1):
        yield from _ranges(f"{pattern[: found.start()]}{number:0{len(first)}d}{pattern[found.end() :]}")


def _samples(path: Path) -> Iterator[tuple[str, int, int, int | None]]:
    """Key, offset, size and label of each image of a shard, in its order."""
    places: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    name = printable(str(path))
    try:
        with tarfile.open(path, "r:") as shard:
            for member in shard:
                if member.size < 0:  # tarfile would read the same headers forever
                    raise tarfile.ReadError("a size is negative")
                if not member.isreg() or member.issparse():
                    continue
                folder, _, file = member.name.rpartition("/")
                stem, _, suffix = file.partition(".")
                if not stem:  # hidden
                    continue
                key, suffix = f"{folder}/{stem}".lstrip("/"), suffix.lower()
                if f".{suffix.rpartition('.')[2]}" in SUFFIXES:
                    places.setdefault(key, (member.offset_data, member.size))
                elif suffix in ("cls", "json") and member.size < SMALL:
                    content = shard.extractfile(member)
                    label = _label(content.read() if content else b"", suffix)
                    if label is not None:
                        labels[key] = label
    except tarfile.TarError as error:
        raise UserError(
            f"{name} can't be read as a tar file ({error}); it must be complete and not compressed."
        ) from None
    for key, (offset, size) in places.items():
        yield key, offset, size, labels.get(key)


def _label(content: bytes, suffix: str) -> int | None:
    """The class in a .cls or .json member; None if there is none."""
    try:
        value = parse_json(content)
    except ValueError:
        return None
    if suffix == "json":
        value = value.get("label", value.get("cls")) if isinstance(value, dict) else None
    return value if type(value) is int and 0 <= value < 2**31 else None


def _class_names(shard: Path, least: int) -> tuple[str, ...]:
    for folder in (shard.parent, shard.parent.parent):
        file = folder / CLASSES
        if file.is_file():
            try:
                names = read_json(file)
            except ValueError:
                names = None
            if not isinstance(names, list) or not all(isinstance(name, str) and is_unicode(name) for name in names):
                raise UserError(f"{file} must hold a JSON list of class names.")
            if len(names) < least:
                raise UserError(f"{file} names {len(names)} classes, but the shards have labels up to {least - 1}.")
            return tuple(names)
    if least > MOST_CLASSES:
        raise UserError(
            f"{printable(str(shard))} or a shard beside it has the label {least - 1:,}; without a {CLASSES} labels go "
            f"up to {MOST_CLASSES - 1:,}."
        )
    return tuple(map(str, range(least)))
