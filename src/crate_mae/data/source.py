"""Sources of images: a number of images, each with a name and perhaps a label."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int
from PIL import Image

from crate_mae import image_files
from crate_mae.errors import UserError
from crate_mae.usable_path import printable

CARVED = 0.05
"""The fraction of the training images that serves as validation split if a set has none."""
SHOWN = 20  # names in an error

SAMPLED = 32
"""Images of a set whose content is part of its fingerprint."""


class ImageSource(ABC):
    """Images by index, decoded when they are read."""

    class_names: tuple[str, ...] | None = None
    """None if the images have no labels."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def stored(self, index: int) -> bytes | Image.Image:
        """The file's bytes, or the image itself if there is no file."""

    @abstractmethod
    def label(self, index: int) -> int | None:
        """The index of the class in ``class_names``."""

    @abstractmethod
    def name(self, index: int) -> str:
        """The location of the image, for messages."""

    @abstractmethod
    def key(self, index: int) -> str:
        """What decides the split: it does not depend on where the set is, nor on whether it is packed into shards."""

    def stamp(self, index: int) -> str:
        """What changes when the image's file is overwritten; empty if there is no file."""
        return ""

    def encoded(self, index: int) -> image_files.Encoded | Image.Image:
        """The image, not decoded yet if it is a file's; a ``UserError`` if the file can't be opened."""
        try:
            stored = self.stored(index)
        except OSError as error:
            raise UserError(f"{self.name(index)} can't be read ({error.strerror}).") from None
        return image_files.Encoded(stored, self.name(index)) if isinstance(stored, bytes) else stored

    def read(self, index: int) -> Image.Image:
        """The image, decoded and upright, not resized; a ``UserError`` with its name if that fails."""
        return image_files.read(self.encoded(index))


def file_stamp(path: str | Path) -> str:
    """A file's size and the time of its last change."""
    try:
        status = os.stat(path)
    except OSError:  # it does not exist
        return "none"
    return f"{status.st_size} {status.st_mtime_ns}"


class ArrayImages(ImageSource):
    """Images in one array."""

    def __init__(self, set_name: str, images: np.ndarray, labels: Int[np.ndarray, " n"], class_names: Sequence[str]):
        self.set_name, self.images = set_name, images
        self.labels, self.class_names = labels, tuple(class_names)

    def __len__(self) -> int:
        return len(self.images)

    def stored(self, index: int) -> Image.Image:
        return Image.fromarray(self.images[index])

    def label(self, index: int) -> int:
        return int(self.labels[index])

    def name(self, index: int) -> str:
        return f"image {index} of {self.set_name}"

    def key(self, index: int) -> str:
        return f"{index:08d}"


class Files(ImageSource):
    """Image files in a list, with labels or without."""

    def __init__(
        self, files: Sequence[Path], labels: Sequence[int] | None = None, class_names: Sequence[str] | None = None
    ):
        self.files, self.labels = list(files), None if labels is None else np.asarray(labels)
        if self.labels is not None:
            count = int(self.labels.max(initial=-1)) + 1
            self.class_names = tuple(class_names or map(str, range(count)))

    def __len__(self) -> int:
        return len(self.files)

    def stored(self, index: int) -> bytes:
        return self.files[index].read_bytes()

    def label(self, index: int) -> int | None:
        return None if self.labels is None else int(self.labels[index])

    def name(self, index: int) -> str:
        return printable(str(self.files[index]))

    def key(self, index: int) -> str:
        return f"{self.files[index].parent.name}/{self.files[index].stem}"

    def stamp(self, index: int) -> str:
        return file_stamp(self.files[index])


class Subset(ImageSource):
    """Some of the images of another source."""

    def __init__(self, whole: ImageSource, chosen: Int[np.ndarray, " n"]):
        self.whole, self.chosen = whole, chosen
        self.class_names = whole.class_names

    def __len__(self) -> int:
        return len(self.chosen)

    def stored(self, index: int) -> bytes | Image.Image:
        return self.whole.stored(int(self.chosen[index]))

    def label(self, index: int) -> int | None:
        return self.whole.label(int(self.chosen[index]))

    def name(self, index: int) -> str:
        return self.whole.name(int(self.chosen[index]))

    def key(self, index: int) -> str:
        return self.whole.key(int(self.chosen[index]))

    def stamp(self, index: int) -> str:
        return self.whole.stamp(int(self.chosen[index]))


class Relabelled(Subset):
    """All images of another source, with labels that index another list of the same class names."""

    def __init__(self, whole: ImageSource, class_names: Sequence[str]):
        super().__init__(whole, np.arange(len(whole)))
        own = whole.class_names or ()
        names = {label: own[label] for label in map(whole.label, range(len(whole))) if label is not None}
        if unknown := sorted(set(names.values()) - set(class_names)):
            shown = ", ".join(unknown[:SHOWN]) + (f" and {len(unknown) - SHOWN} more" if unknown[SHOWN:] else "")
            raise UserError(f"the model has no class {shown}; name classes as the model does, or leave these out.")
        if twice := sorted({name for name in names.values() if own.count(name) > 1 or class_names.count(name) > 1}):
            raise UserError(f"several classes are called {', '.join(twice)}; give each class a name of its own.")
        self.places = {label: class_names.index(name) for label, name in names.items()}
        self.class_names = tuple(class_names)

    def label(self, index: int) -> int | None:
        label = super().label(index)
        return None if label is None else self.places[label]


def relabel(source: ImageSource, class_names: Sequence[str]) -> ImageSource:
    """A source with labels that index these classes; a class of the source that is not among them is an error."""
    return source if source.class_names == tuple(class_names) else Relabelled(source, class_names)


def carve(whole: ImageSource) -> tuple[Subset, Subset]:
    """Split a source without a validation split: training and validation images.

    An image is for validation if the hash of its key, as a number in [0, 1), is below ``CARVED``; if none is, the one
    with the lowest hash. So it stays in its split when others are added or the set is moved.
    """
    if len(whole) < 2:
        raise UserError("one image can't be split into training and validation; add more, or a folder val/.")
    draws = np.array([_unit_hash(whole.key(index)) for index in range(len(whole))])
    held_out = draws < max(CARVED, np.nextafter(draws.min(), 1))
    if held_out.all():  # a few images with the same key, or the same hash
        held_out[draws.argmax()] = False
    return Subset(whole, np.flatnonzero(~held_out)), Subset(whole, np.flatnonzero(held_out))


def _unit_hash(key: str) -> float:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


def fingerprint(source: ImageSource) -> str:
    """A hash of a set: the key and the label of every image, the classes, and the content of a few.

    It does not depend on where the set is. An image that is overwritten under its old name is noticed only if it is
    one of the ``SAMPLED`` ones; after such a change, delete the cache.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([len(source), source.class_names]).encode())
    for index in range(len(source)):
        digest.update(f"{source.key(index)}\0{source.label(index)}\n".encode("utf-8", "surrogateescape"))
    for index in np.unique(np.linspace(0, len(source) - 1, SAMPLED).astype(int)):
        try:
            stored = source.stored(int(index))
        except OSError:  # it is replaced when it is read
            continue
        digest.update(stored if isinstance(stored, bytes) else stored.tobytes())
    return digest.hexdigest()
