"""A course's images as bytes in memory, decoded once for all contestants, and batches of them."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from rich.console import Console
from torch import Tensor

from crate_mae.bench.race.recipes import Course
from crate_mae.data.open import find_images
from crate_mae.data.source import ImageSource, carve
from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig
from crate_mae.progress import progress

SHIFT = 4
"""Pixels by which a training crop may lie off the middle; beyond the border, its pixels are repeated."""


@dataclass(frozen=True)
class RaceImages:
    """Training and test images of a course. The arrays are mapped from files, which all processes share."""

    train: UInt8[np.ndarray, "n H W c"]
    train_labels: Int[np.ndarray, " n"]
    held_out: Bool[np.ndarray, " n"]
    """Training images that no pretraining sees: they measure the loss and choose the probe's C."""
    test: UInt8[np.ndarray, "m H W c"]
    test_labels: Int[np.ndarray, " m"]
    class_names: tuple[str, ...]


ARRAYS = ("train", "train_labels", "held_out", "test", "test_labels")
CLASSES = "classes.json"  # written last


def prepare(course: Course, data_root: Path | None, folder: Path, console: Console) -> None:
    """Decode a course's images into ``folder``, unless they are there.

    The test images are the set's own test split, or its validation split where it has no other.
    """
    if (folder / CLASSES).is_file():
        return
    images = find_images(course.data, data_root)
    if not {"test", "val"} & set(images.own):
        raise UserError(f"{course.data} has no test images; put them in a folder test/ beside train/.")
    train, test = images.open("train"), images.split("test")
    if not train.class_names or train.class_names != test.class_names:
        raise UserError(f"{course.data} needs the same class folders in its training and test images.")
    held_out = np.zeros(len(train), dtype=bool)
    held_out[carve(train)[1].chosen] = True
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "held_out.npy", held_out)
    for name, source in (("train", train), ("test", test)):
        np.save(folder / f"{name}.npy", decoded(source, course, f"{course.data}, {name} images", console))
        np.save(folder / f"{name}_labels.npy", np.array([source.label(index) for index in range(len(source))]))
    (folder / CLASSES).write_text(json.dumps(train.class_names))


def decoded(source: ImageSource, course: Course, label: str, console: Console) -> UInt8[np.ndarray, "n H W 3"]:
    """Every image as a square: the shorter side resized, the middle cut out."""
    side = course.stored_size
    found = np.empty((len(source), side, side, 3), dtype=np.uint8)
    with progress(label, len(source), console) as advance:
        for index in range(len(source)):
            image = source.read(index).convert("RGB")
            scale = side / min(image.size)
            if scale != 1:
                size = (max(side, round(image.width * scale)), max(side, round(image.height * scale)))
                image = image.resize(size, Image.Resampling.BICUBIC)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            found[index] = np.asarray(image.crop((left, top, left + side, top + side)))
            advance()
    return found


def load(folder: Path) -> RaceImages:
    """What ``prepare`` wrote."""
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
    return RaceImages(**arrays, class_names=tuple(json.loads((folder / CLASSES).read_text())))


def batch(
    pixels: UInt8[np.ndarray, "n H W c"],
    chosen: Int[np.ndarray, " b"],
    config: ModelConfig,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "b c h w"]:
    """These images, normalised: the middle, or with a generator a shifted crop, mirrored or not."""
    b, size = len(chosen), config.image_size[0]
    first = np.full((2, b, 1), (pixels.shape[1] - size) // 2)
    if generator is not None:
        first = first + torch.randint(-SHIFT, SHIFT + 1, (2, b, 1), generator=generator).numpy()
    rows, columns = (first + np.arange(size)).clip(0, pixels.shape[1] - 1)
    if generator is not None:
        mirrored = torch.rand(b, generator=generator).numpy() < 0.5
        columns[mirrored] = columns[mirrored, ::-1]
    cut = pixels[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
    mean, std = (255 * torch.tensor(values)[:, None, None] for values in (config.mean, config.std))
    return (torch.from_numpy(cut).permute(0, 3, 1, 2).float() - mean) / std
