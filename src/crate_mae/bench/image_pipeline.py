"""The image pipeline, from a JPEG file to a normalised tensor with RandAugment, against decoding alone.

Both use the same loader and the same processes; decoding alone passes a single pixel on for each image. The JPEG files
are made here: 500 x 375, with the 1 / f spectrum of photographs, at quality 90.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from rich.console import Console
from torch import Tensor

from crate_mae.allocator import freed_memory_kept
from crate_mae.bench.harness import Run, race
from crate_mae.bench.table import Row, at_least
from crate_mae.data.folders import Folder
from crate_mae.data.loader import LabelledSamples, training_batches
from crate_mae.data.transforms import Augmentation, Transform
from crate_mae.image_files import Encoded, ImageInput
from crate_mae.models.config import IMAGENET_MEAN, IMAGENET_STD

PIPELINE, DECODING = "pipeline", "decoding alone"


@dataclass(frozen=True)
class Sizes:
    """Images, batch and workers of the measurement."""

    images: int = 256
    width: int = 500
    height: int = 375
    size: int = 224
    batch: int = 32
    workers: tuple[int, ...] = (0, 2)
    rounds: int = 9


WHOLE, QUICK = Sizes(), Sizes(images=64, rounds=2)


class Decoding(Transform):
    """Decode the image in full and in colour, with Pillow only, and discard it."""

    def __call__(self, source: ImageInput, generator: torch.Generator) -> UInt8[Tensor, "c H W"]:
        assert isinstance(source, Encoded)
        with Image.open(BytesIO(source.content)) as opened:
            opened.load()
        return torch.zeros(self.channels, *self.size, dtype=torch.uint8)


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """A row for each number of workers."""
    colours = 3, IMAGENET_MEAN, IMAGENET_STD
    with tempfile.TemporaryDirectory() as folder:
        for number in range(sizes.images):
            photo(number, sizes.width, sizes.height).save(Path(folder) / f"{number:04d}.jpg", quality=90)
        source = Folder(Path(folder), None)
        samples = {
            PIPELINE: LabelledSamples(source, Augmentation((sizes.size, sizes.size), *colours)),
            DECODING: LabelledSamples(source, Decoding((1, 1), *colours)),
        }
        steps = range(sizes.images // sizes.batch)
        for workers in sizes.workers:

            def read(name: str, workers: int = workers) -> None:
                for _ in training_batches(samples[name], sizes.batch, steps, workers=workers):
                    pass

            way = f"{sizes.width} x {sizes.height} JPEG to {sizes.size} px with RandAugment"
            contestants: dict[str, Run] = {name: partial(read, name) for name in samples}
            with freed_memory_kept():  # as a run does
                laps = race(f"image pipeline, {words(workers)}", contestants, sizes.rounds, console)
            count = len(steps) * sizes.batch
            yield Row(
                f"image pipeline, {workers or 'no'} workers",
                f"image pipeline, {way}, {words(workers)}",
                "decoding alone",
                laps.speedup(PIPELINE, DECODING),
                goal=at_least(0.6),
                note=", ".join(f"{name} {count / laps.spread(name).middle:.0f} images/s" for name in samples),
                seconds=laps.spreads(),
            )


def words(workers: int) -> str:
    """The number of workers in words."""
    return f"{workers} worker processes" if workers else "in the process itself"


def photo(seed: int, width: int, height: int) -> Image.Image:
    """Noise whose amplitude falls as 1 / f in every direction, as in photographs, with correlated colours."""
    rng = np.random.default_rng(seed)
    across, down = np.fft.rfftfreq(width), np.fft.fftfreq(height)
    frequency = np.hypot(down[:, None], across[None, :])
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(rng.normal(size=(3, height, width))) / frequency
    planes = np.fft.irfft2(spectrum, s=(height, width))
    mixed = np.einsum("ij,jhw->hwi", np.array([[1, 0.2, 0.1], [1, 0, 0], [1, -0.1, 0.2]]), planes)
    values = 120 + 55 * (mixed - mixed.mean()) / mixed.std()
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))
