"""From an image to what the model takes: augmented for training, only resized for evaluation.

Everything random comes from a generator that is passed in; the global generators are left as they were.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import get_worker_info

from crate_mae import image_files, image_tensors
from crate_mae.data.jpeg import ColourJpeg
from crate_mae.data.randaugment import rand_augment
from crate_mae.errors import UserError
from crate_mae.image_files import ImageInput
from crate_mae.models.config import ModelConfig
from crate_mae.settings import Size

Box = tuple[int, int, int, int]  # left, top, right, bottom
ASPECTS = (3 / 4, 4 / 3)
TRIES = 10
REDUCED = 2
"""If a crop is at least this number of times as large as the model's image, a JPEG is decoded at a half, a quarter or
an eighth of its size, which takes less time. The result then differs slightly from that of the full-size image."""
FLIP = Image.Transpose.FLIP_LEFT_RIGHT


def sample_generator(*numbers: int) -> torch.Generator:
    """A generator seeded by (seed, epoch, index), or any other integers: the same on any machine, in any process."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest) >> 1)


@dataclass(frozen=True)
class Transform(ABC):
    """What the model takes: height and width, channels, and the mean and standard deviation of each."""

    size: Size
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @abstractmethod
    def __call__(self, source: ImageInput, generator: torch.Generator) -> UInt8[Tensor, "c H W"]:
        """Pixels from 0 to 255; a ``UserError`` if the image can't be read."""

    def normalised(self, images: Sequence[UInt8[Tensor, "c H W"]]) -> Float[Tensor, "b c H W"]:
        """These images as a batch, minus the mean, divided by the standard deviation; a worker's is in shared memory.

        Each is written directly to its place: float images that are stacked later would be copied once more.
        """
        batch = _empty(len(images), self.channels, *self.size)
        for pixels, place in zip(images, batch, strict=True):
            image_tensors.normalise(pixels, self.mean, self.std, into=place)
        return batch


@dataclass(frozen=True)
class Evaluation(Transform):
    """The whole image, resized, as ``model.preprocess`` does it."""

    @classmethod
    def of(cls, config: ModelConfig) -> "Evaluation":
        """For a model of this configuration."""
        return cls(config.image_size, config.channels, config.mean, config.std)

    def __call__(self, source: ImageInput, generator: torch.Generator | None = None) -> UInt8[Tensor, "c H W"]:
        """Nothing is drawn."""
        return image_tensors.planes(image_files.read(source), self.channels, self.size)


@dataclass(frozen=True)
class Augmentation(Transform):
    """The paper's preprocessing: a random resized crop, a horizontal flip, RandAugment(2, 14).

    The paper gives no details. Ours are torchvision's defaults: the crop's area and aspect, bilinear resampling
    (evaluation and the model's ``preprocess`` are bicubic), and its RandAugment with 31 bins.
    """

    crop_area: tuple[float, float] = (0.08, 1.0)
    """The smallest and the largest fraction of the image that a crop takes."""
    flip: bool = True
    """Mirror half of the images; digits and text should not be mirrored."""
    randaugment: tuple[int, int] | None = (2, 14)
    """The number of operations and their strength, from 0 to 30; None for no RandAugment."""

    def __post_init__(self) -> None:
        low, high = self.crop_area
        if not 0 < low <= high <= 1:
            raise UserError(f"crop_area is {self.crop_area}; choose two fractions, 0 < smallest <= largest <= 1.")
        if self.randaugment is not None:
            operations, strength = self.randaugment
            if operations < 1 or not 0 <= strength <= 30:
                raise UserError(
                    f"randaugment is {self.randaugment}; choose 1 or more operations and a strength from 0 to 30."
                )
            if self.channels not in (1, 3):
                raise UserError(f"RandAugment takes 1 or 3 channels, not {self.channels}; set randaugment to None.")

    def __call__(self, source: ImageInput, generator: torch.Generator) -> UInt8[Tensor, "c H W"]:
        draws = torch.rand(2 * TRIES + 4, generator=generator, dtype=torch.float64).tolist()
        crop, flip, seed = draws[:-2], draws[-2] < 0.5, int(draws[-1] * 2**32)
        image = self._cropped_jpeg(source, crop) or self._cropped(source, crop)
        if self.flip and flip:
            image = image.transpose(FLIP)
        if self.randaugment is not None:
            image = rand_augment(image, *self.randaugment, torch.Generator().manual_seed(seed))
        return image_tensors.planes(image, self.channels, self.size)

    def _cropped(self, source: ImageInput, crop: list[float]) -> Image.Image:
        """The crop at the model's size."""
        height, width = self.size

        def decode_no_larger_than_needed(opened: Image.Image) -> None:
            shrink = self._shrink(crop_box(_upright_size(opened), self.crop_area, crop))
            if shrink >= REDUCED:
                opened.draft(None, (math.ceil(opened.width / shrink), math.ceil(opened.height / shrink)))

        image = image_files.read(source, before=decode_no_larger_than_needed)
        image = image_files.in_mode(image, image_files.MODES[self.channels])
        box = crop_box(image.size, self.crop_area, crop)
        if image.size != (width, height) or box != (0, 0, width, height):
            image = resized_crop(image, box, self.size)
        return image

    def _cropped_jpeg(self, source: ImageInput, crop: list[float]) -> Image.Image | None:
        """The same image, bit for bit, with fewer copies; None where Pillow has to read it, or is faster."""
        jpeg = ColourJpeg.of(source) if self.channels == 3 else None
        if jpeg is None:
            return None
        box = crop_box(jpeg.size, self.crop_area, crop)
        if self._shrink(box) >= REDUCED or (jpeg.size == box[2:] == self.size[::-1] and box[:2] == (0, 0)):
            return None
        pixels = jpeg.pixels()
        if pixels is None:
            return None
        left, top, right, bottom = box
        return resized(pixels[top:bottom, left:right], self.size, "RGB", "RGBX")

    def _shrink(self, box: Box) -> float:
        """The size of the box relative to the model's image, along the side where that is smaller."""
        height, width = self.size
        left, top, right, bottom = box
        return min((right - left) / width, (bottom - top) / height)


def crop_box(size: tuple[int, int], area: tuple[float, float], draws: list[float]) -> Box:
    """A random box in an image of (width, height): its fraction of the area uniform, its aspect log-uniform.

    ``draws`` are numbers in [0, 1): ``TRIES`` pairs, of which the first that fits is taken, and the position. If none
    fits, the box is the largest in the middle whose aspect is allowed.
    """
    width, height = size
    low, high = (math.log(aspect) for aspect in ASPECTS)
    across, down = draws[-2:]
    for share, aspect in zip(draws[:-2:2], draws[1:-2:2], strict=True):
        pixels = width * height * (area[0] + share * (area[1] - area[0]))
        ratio = math.exp(low + aspect * (high - low))
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(across * (width - w + 1)), int(down * (height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * ASPECTS[1])))
    h = min(height, max(1, round(width / ASPECTS[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def resized_crop(image: Image.Image, box: Box, size: Size) -> Image.Image:
    """The part of an image in the box, at height and width ``size``: bilinear, antialiased when it shrinks.

    By torch, which is faster than Pillow. A value may differ from Pillow's by 1 of 255, by rounding.
    """
    if image.mode == "RGBA":  # colours are weighted by alpha while resizing, as Pillow does it
        return resized_crop(image.convert("RGBa"), box, size).convert("RGBA")
    part = image.crop(box)
    layout = "RGBX" if image.mode == "RGB" else image.mode  # as Pillow stores it; torch is twice as fast on four bytes
    pixels = torch.frombuffer(bytearray(part.tobytes("raw", layout)), dtype=torch.uint8)
    return resized(pixels.view(part.height, part.width, -1), size, image.mode, layout)


def resized(pixels: UInt8[Tensor, "h w bytes"], size: Size, mode: str, layout: str) -> Image.Image:
    """These pixels at height and width ``size`` as an image of a mode; ``layout`` is Pillow's name for their bytes."""
    planes = pixels[None].permute(0, 3, 1, 2)
    found = F.interpolate(planes, size, mode="bilinear", antialias=True).permute(0, 2, 3, 1)
    return Image.frombytes(mode, size[::-1], found.numpy(), "raw", layout)


def _empty(*shape: int) -> Float[Tensor, "..."]:
    if get_worker_info() is None:
        return torch.empty(shape)
    memory = torch.UntypedStorage._new_shared(math.prod(shape) * torch.float32.itemsize)
    return torch.empty(0).set_(memory).view(shape)


def _upright_size(opened: Image.Image) -> tuple[int, int]:
    try:
        on_its_side = opened.getexif().get(image_files.ORIENTATION, 1) >= 5
    except Exception:  # a damaged EXIF block: the image is taken as it is stored
        on_its_side = False
    return opened.size[::-1] if on_its_side else opened.size
