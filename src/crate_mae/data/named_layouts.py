"""How the files of each named set are read: by torchvision's class, with its checksums and splits, if it has one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from crate_mae.data.folders import walk
from crate_mae.data.named import Split
from crate_mae.data.source import ArrayImages, Files, ImageSource

Opener = Callable[[Path, Split, bool], ImageSource]
"""From the root, the split and whether to download."""
TINY_IMAGENET_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


class Digits(NamedTuple):
    """Gray values in [0, 1], in steps of 1/16."""

    train: Float[np.ndarray, "n 8 8"]
    train_labels: Int[np.ndarray, " n"]
    test: Float[np.ndarray, "m 8 8"]
    test_labels: Int[np.ndarray, " m"]


def split_digits() -> Digits:
    """scikit-learn's handwritten digits: three quarters for training, stratified."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.25, random_state=0, stratify=labels
    )
    return Digits(train, train_labels, test, test_labels)


def _digits(root: Path, split: Split, download: bool) -> ImageSource:
    digits = split_digits()
    images, labels = (digits.train, digits.train_labels) if split == "train" else (digits.test, digits.test_labels)
    return ArrayImages(f"digits/{split}", (images * 255).round().astype(np.uint8), labels, [str(n) for n in range(10)])


def _cifar(class_name: str) -> Opener:
    def open_cifar(root: Path, split: Split, download: bool) -> ImageSource:
        # The files are pickles: torchvision compares every checksum before it loads the first.
        data = _torchvision(class_name, root, train=split == "train", download=download)
        return ArrayImages(f"{class_name}/{split}", data.data, np.asarray(data.targets), data.classes)

    return open_cifar


def _flowers(root: Path, split: Split, download: bool) -> ImageSource:
    data = _torchvision("Flowers102", root, split=split, download=download, loader=Path)
    return Files(*_listed(data), getattr(data, "classes", None))  # older versions don't name the flowers


def _pets(root: Path, split: Split, download: bool) -> ImageSource:
    own = "trainval" if split == "train" else split
    data = _torchvision("OxfordIIITPet", root, split=own, target_types="category", download=download)
    return Files(data._images, data._labels, data.classes)  # this class takes no loader that would give the paths


def _imagenette(root: Path, split: Split, download: bool) -> ImageSource:
    sizes = {"imagenette2": "full", "imagenette2-320": "320px", "imagenette2-160": "160px"}
    size = next((size for folder, size in sizes.items() if (root / folder).is_dir()), "full")
    data = _torchvision("Imagenette", root, split=split, size=size, download=download, loader=Path)
    return Files(*_listed(data), [names[0] for names in data.classes])


def _tiny_imagenet(root: Path, split: Split, download: bool) -> ImageSource:
    """train/WNID/images/*.JPEG, and val/images/*.JPEG with their classes in val/val_annotations.txt.

    Some copies have class folders in val instead. The classes are the folders of train in the order of their names,
    and are called by their first name in words.txt.
    """
    folder = root / "tiny-imagenet-200"
    if download and not folder.is_dir():
        utils = _torchvision_datasets().utils
        utils.download_and_extract_archive(TINY_IMAGENET_URL, str(root), md5=TINY_IMAGENET_MD5)
    wnids = sorted(entry.name for entry in (folder / "train").iterdir() if entry.is_dir())
    place = {wnid: number for number, wnid in enumerate(wnids)}
    files = [Path(file) for file in walk(folder / split)]
    annotations = folder / "val" / "val_annotations.txt"
    if split == "val" and annotations.is_file():
        lines = (line.split("\t") for line in annotations.read_text().splitlines())
        wnid_of = {line[0]: line[1] for line in lines if len(line) > 1}
        labels = [place[wnid_of[file.name]] for file in files]
    else:
        labels = [place[file.relative_to(folder / split).parts[0]] for file in files]
    if not files:
        raise RuntimeError(f"there are no images in {folder / split}")
    return Files(files, labels, _first_names(folder / "words.txt", wnids))


def _first_names(words: Path, wnids: list[str]) -> list[str]:
    """For each WordNet id its first name, by lines "ID<tab>name, another name"; the id itself if it has none."""
    lines = (line.partition("\t") for line in words.read_text().splitlines()) if words.is_file() else ()
    names = {wnid: name.partition(",")[0] for wnid, _, name in lines}
    return [names.get(wnid, wnid) for wnid in wnids]


def _imagenet(root: Path, split: Split, download: bool) -> ImageSource:
    root = root / "imagenet" if (root / "imagenet").is_dir() else root
    if not download and not ((root / "meta.bin").is_file() and (root / split).is_dir()):
        raise RuntimeError(f"{root} has no meta.bin or no {split}/")  # or torchvision would unpack 150 GB
    data = _torchvision("ImageNet", root, split=split, loader=Path)
    return Files(*_listed(data), [names[0] for names in data.classes])


def _torchvision_datasets() -> Any:
    from crate_mae.torchvision_fix import torchvision

    return torchvision.datasets


def _torchvision(class_name: str, root: Path, **options: Any) -> Any:
    return getattr(_torchvision_datasets(), class_name)(str(root), **options)


def _listed(data: Any) -> tuple[list[Path], list[int]]:
    """Paths and labels of a torchvision set whose loader returns the path."""
    pairs = [data[index] for index in range(len(data))]
    return [path for path, _ in pairs], [label for _, label in pairs]


OPENERS: dict[str, Opener] = {
    "digits": _digits,
    "cifar10": _cifar("CIFAR10"),
    "cifar100": _cifar("CIFAR100"),
    "flowers102": _flowers,
    "oxford_pets": _pets,
    "imagenette": _imagenette,
    "tiny_imagenet": _tiny_imagenet,
    "imagenet": _imagenet,
}
