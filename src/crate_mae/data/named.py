"""Well-known sets by name, through torchvision's classes: their files, their checksums, their splits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from crate_mae.data.folders import printable
from crate_mae.data.source import ImageSource, Pictures, file_stamp
from crate_mae.errors import UserError

Split = Literal["train", "val", "test"]
Opener = Callable[[Path, Split, bool], ImageSource]


@dataclass(frozen=True)
class NamedSet:
    """How one set is found and opened."""

    layout: str
    """What --data-root must hold, for people."""
    splits: tuple[Split, ...]
    """Those that the set has."""
    marks: tuple[str, ...]
    """Any of these below the root says that the set is there in its own layout; none where it needs no files."""
    open: Opener

    def is_there(self, root: Path) -> bool:
        return not self.marks or any((root / mark).exists() for mark in self.marks)


class Files(ImageSource):
    """Image files in a list, with labels."""

    def __init__(self, files: Sequence[Path], labels: Sequence[int], class_names: Sequence[str] | None):
        self.files, self.labels = list(files), np.asarray(labels)
        count = int(self.labels.max(initial=-1)) + 1
        self.class_names = tuple(class_names or map(str, range(count)))

    def __len__(self) -> int:
        return len(self.files)

    def stored(self, index: int) -> bytes:
        return self.files[index].read_bytes()

    def label(self, index: int) -> int:
        return int(self.labels[index])

    def name(self, index: int) -> str:
        return printable(str(self.files[index]))

    def key(self, index: int) -> str:
        return f"{self.files[index].parent.name}/{self.files[index].stem}"

    def stamp(self, index: int) -> str:
        return file_stamp(self.files[index])


def _digits(root: Path, split: Split, download: bool) -> ImageSource:
    """scikit-learn's handwritten digits, 8 x 8, gray in steps of 1/16: three quarters for training, stratified."""
    values, digits = load_digits(return_X_y=True)
    parts = train_test_split(
        (values / 16).astype(np.float32).reshape(-1, 8, 8), digits, test_size=0.25, random_state=0, stratify=digits
    )
    images, labels = parts[0::2] if split == "train" else parts[1::2]
    return Pictures(f"digits/{split}", (images * 255).round().astype(np.uint8), labels, [str(n) for n in range(10)])


def _cifar(class_name: str) -> Opener:
    def open_cifar(root: Path, split: Split, download: bool) -> ImageSource:
        # The files are pickles: torchvision compares every checksum before it loads the first.
        data = _torchvision(class_name, root, train=split == "train", download=download)
        return Pictures(f"{class_name}/{split}", data.data, np.asarray(data.targets), data.classes)

    return open_cifar


def _flowers(root: Path, split: Split, download: bool) -> ImageSource:
    data = _torchvision("Flowers102", root, split=split, download=download, loader=Path)
    return Files(*_listed(data), getattr(data, "classes", None))  # older ones don't name the flowers


def _pets(root: Path, split: Split, download: bool) -> ImageSource:
    own = "trainval" if split == "train" else split
    data = _torchvision("OxfordIIITPet", root, split=own, target_types="category", download=download)
    return Files(data._images, data._labels, data.classes)  # this class takes no loader that would give the paths


def _imagenette(root: Path, split: Split, download: bool) -> ImageSource:
    sizes = {"imagenette2": "full", "imagenette2-320": "320px", "imagenette2-160": "160px"}
    size = next((size for folder, size in sizes.items() if (root / folder).is_dir()), "full")
    data = _torchvision("Imagenette", root, split=split, size=size, download=download, loader=Path)
    return Files(*_listed(data), [names[0] for names in data.classes])


def _imagenet(root: Path, split: Split, download: bool) -> ImageSource:
    root = root / "imagenet" if (root / "imagenet").is_dir() else root
    if not download and not ((root / "meta.bin").is_file() and (root / split).is_dir()):
        raise RuntimeError(f"{root} has no meta.bin or no {split}/")  # torchvision would unpack 150 GB unasked
    data = _torchvision("ImageNet", root, split=split, loader=Path)
    return Files(*_listed(data), [names[0] for names in data.classes])


def _torchvision(class_name: str, root: Path, **options: Any) -> Any:
    from crate_mae.torchvision_fix import torchvision

    return getattr(torchvision.datasets, class_name)(str(root), **options)


def _listed(data: Any) -> tuple[list[Path], list[int]]:
    """Paths and labels of a torchvision set whose loader gives back the path."""
    pairs = [data[index] for index in range(len(data))]
    return [path for path, _ in pairs], [label for _, label in pairs]


NAMED: dict[str, NamedSet] = {
    "digits": NamedSet("nothing: scikit-learn has it", ("train", "test"), (), _digits),
    "cifar10": NamedSet("cifar-10-batches-py/", ("train", "test"), ("cifar-10-batches-py",), _cifar("CIFAR10")),
    "cifar100": NamedSet("cifar-100-python/", ("train", "test"), ("cifar-100-python",), _cifar("CIFAR100")),
    "flowers102": NamedSet(
        "flowers-102/ with jpg/, imagelabels.mat and setid.mat",
        ("train", "val", "test"),
        ("flowers-102",),
        _flowers,
    ),
    "oxford_pets": NamedSet(
        "oxford-iiit-pet/ with images/ and annotations/",
        ("train", "test"),
        ("oxford-iiit-pet",),
        _pets,
    ),
    "imagenette": NamedSet(
        "imagenette2/, imagenette2-320/ or imagenette2-160/",
        ("train", "val"),
        ("imagenette2", "imagenette2-320", "imagenette2-160"),
        _imagenette,
    ),
    "imagenet": NamedSet(
        "train/, val/ and meta.bin, or ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
        "ILSVRC2012_devkit_t12.tar.gz to unpack, there or in imagenet/",
        ("train", "val"),
        ("meta.bin", "imagenet/meta.bin"),
        _imagenet,
    ),
}


def open_named(name: str, root: Path, split: Split, download: bool) -> ImageSource:
    """A split of a set in its own layout, as torchvision reads it."""
    named = NAMED[name]
    if download:
        root.mkdir(parents=True, exist_ok=True)
    try:
        return named.open(root, split, download)
    except (RuntimeError, OSError, KeyError) as error:
        reason = " ".join(str(error).split())
        advice = "is the network there?" if download else "delete what is damaged and use --download to fetch it anew."
        raise UserError(f"{name} in {root} is not whole ({reason}); {advice}") from None
