"""Well-known sets of images: one record for each, with everything that the rest of the code needs to know about it.

Nothing heavy is imported here, so that the command line's help can list the names; ``named_layouts`` reads the files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from crate_mae.errors import UserError

if TYPE_CHECKING:
    from crate_mae.data.source import ImageSource

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class NamedSet:
    """What is known about a set before it is opened."""

    title: str
    images: int
    """Training images."""
    classes: int
    splits: tuple[Split, ...]
    """The splits that the set itself has."""
    layout: str
    """What --data-root must contain, for messages."""
    marks: tuple[str, ...] = ()
    """If any of these is below the root, the set is there in its own layout; empty if it needs no files."""
    hub_id: str | None = None
    """Its name on the Hugging Face Hub."""
    mean: tuple[float, ...] | None = None
    """Mean of the pixels in [0, 1], for each channel; None for the model's default."""
    std: tuple[float, ...] | None = None

    def is_there(self, root: Path) -> bool:
        """Whether the set is below ``root`` in its own layout, or needs no files."""
        return not self.marks or any((root / mark).exists() for mark in self.marks)


NAMED: dict[str, NamedSet] = {
    "digits": NamedSet(
        title="scikit-learn's handwritten digits, 8 x 8 pixels",
        images=1_347,
        classes=10,
        splits=("train", "test"),
        layout="nothing: scikit-learn has it",
        mean=(0.305,),
        std=(0.376,),
    ),
    "cifar10": NamedSet(
        title="CIFAR-10",
        images=50_000,
        classes=10,
        splits=("train", "test"),
        layout="cifar-10-batches-py/",
        marks=("cifar-10-batches-py",),
        hub_id="uoft-cs/cifar10",
    ),
    "cifar100": NamedSet(
        title="CIFAR-100",
        images=50_000,
        classes=100,
        splits=("train", "test"),
        layout="cifar-100-python/",
        marks=("cifar-100-python",),
        hub_id="uoft-cs/cifar100",
    ),
    "flowers102": NamedSet(
        title="Oxford Flowers 102",
        images=1_020,
        classes=102,
        splits=("train", "val", "test"),
        layout="flowers-102/ with jpg/, imagelabels.mat and setid.mat",
        marks=("flowers-102",),
    ),
    "oxford_pets": NamedSet(
        title="Oxford-IIIT Pets",
        images=3_680,
        classes=37,
        splits=("train", "test"),
        layout="oxford-iiit-pet/ with images/ and annotations/",
        marks=("oxford-iiit-pet",),
        hub_id="timm/oxford-iiit-pet",
    ),
    "imagenette": NamedSet(
        title="Imagenette",
        images=9_469,
        classes=10,
        splits=("train", "val"),
        layout="imagenette2/, imagenette2-320/ or imagenette2-160/",
        marks=("imagenette2", "imagenette2-320", "imagenette2-160"),
        hub_id="frgfm/imagenette",
    ),
    "tiny_imagenet": NamedSet(
        title="Tiny ImageNet",
        images=100_000,
        classes=200,
        splits=("train", "val"),
        layout="tiny-imagenet-200/ with train/ and val/",
        marks=("tiny-imagenet-200",),
        hub_id="zh-plus/tiny-imagenet",
    ),
    "imagenet": NamedSet(
        title="ImageNet-1k",
        images=1_281_167,
        classes=1_000,
        splits=("train", "val"),
        layout="train/, val/ and meta.bin, or ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
        "ILSVRC2012_devkit_t12.tar.gz to unpack, there or in imagenet/",
        marks=("meta.bin", "imagenet/meta.bin"),
        hub_id="ILSVRC/imagenet-1k",
    ),
}
NAMES = ", ".join(NAMED)
"""For help texts and messages."""


def open_named(name: str, root: Path, split: Split, download: bool) -> "ImageSource":
    """A split of a set in its own layout."""
    from crate_mae.data.named_layouts import OPENERS

    if download:
        root.mkdir(parents=True, exist_ok=True)
    try:
        return OPENERS[name](root, split, download)
    except (RuntimeError, OSError, KeyError) as error:
        reason = " ".join(str(error).split())
        advice = (
            "check the network."
            if download
            else f"delete what is damaged, and fetch it: crate-mae data check {name} --download."
        )
        raise UserError(f"{name} in {root} is not complete ({reason}); {advice}") from None
