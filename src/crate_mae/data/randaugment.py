"""RandAugment (Cubuk et al., 2020) on Pillow images: bit for bit torchvision's, and faster (docs/log.md).

The operations, their strengths and the order of the draws are torchvision's; the tests compare each.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageEnhance, ImageOps

BINS = 31
Operation = Callable[[Image.Image, float], Image.Image]


def rand_augment(image: Image.Image, operations: int, strength: int, generator: torch.Generator) -> Image.Image:
    """A number of operations in sequence, each drawn from ``OPERATIONS``, at a strength from 0 to 30."""
    amounts = magnitudes(strength, image.size)
    # All at once: a draw below 14 gives one below 2 as well, since both are remainders of the same number.
    draws = iter(torch.randint(len(OPERATIONS), (2 * operations,), generator=generator).tolist())
    for _ in range(operations):
        number = next(draws)
        amount, signed = amounts[number]
        if signed and next(draws) % 2:
            amount = -amount
        image = OPERATIONS[number](image, amount)
    return image


@cache
def magnitudes(strength: int, size: tuple[int, int]) -> list[tuple[float, bool]]:
    """The argument of each operation at a strength, for images of (width, height), and whether its sign is drawn."""

    def up_to(most: float) -> float:
        return torch.linspace(0.0, most, BINS)[strength].item()

    width, height = size
    nothing, shear, blend = (0.0, False), (up_to(0.3), True), (up_to(0.9), True)
    shifts = [(up_to(150 / 331 * side), True) for side in (width, height)]
    bits = (8 - round(strength / ((BINS - 1) / 4)), False)
    threshold = (torch.linspace(255.0, 0.0, BINS)[strength].item(), False)
    return [nothing, shear, shear, *shifts, (up_to(30.0), True), *[blend] * 4, bits, threshold, nothing, nothing]


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    """Pixel (x, y) of the result is that at (a x + b y + c, d x + e y + f); black outside. ``matrix`` is a to f."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def contrast(image: Image.Image, amount: float) -> Image.Image:
    """Blend with the mean gray: away from it or towards it."""
    gray = image.convert("L").histogram()
    mean = int(np.dot(gray, np.arange(256)) / sum(gray) + 0.5)
    return Image.blend(Image.new(image.mode, image.size, (mean,) * len(image.getbands())), image, 1.0 + amount)


def sharpness(image: Image.Image, amount: float) -> Image.Image:
    """Blend with the smoothed image: away from it or towards it."""
    pixels = np.asarray(image)
    return Image.blend(Image.fromarray(smooth(pixels)), image, 1.0 + amount)


def smooth(pixels: UInt8[np.ndarray, "h w *c"]) -> UInt8[np.ndarray, "h w *c"]:
    """Pillow's ``SMOOTH``, (sum of the 3 x 3 pixels + 4 times the middle one) / 13, rounded; the border stays."""
    if min(pixels.shape[:2]) < 3:
        return pixels
    wide = pixels.astype(np.uint16)
    rows = wide[:-2] + wide[1:-1]
    rows += wide[2:]
    total = 4 * wide[1:-1, 1:-1]
    for part in (rows[:, :-2], rows[:, 1:-1], rows[:, 2:]):
        total += part
    total += 6  # then // 13 rounds to the nearest: there are no ties
    total //= 13
    result = pixels.copy()
    result[1:-1, 1:-1] = total
    return result


OPERATIONS: list[Operation] = [
    lambda image, _: image,
    lambda image, slope: affine(image, 1, slope, 0, 0, 1, 0),
    lambda image, slope: affine(image, 1, 0, 0, slope, 1, 0),
    lambda image, shift: affine(image, 1, 0, -int(shift), 0, 1, 0),
    lambda image, shift: affine(image, 1, 0, 0, 0, 1, -int(shift)),
    lambda image, degrees: image.rotate(degrees, Image.Resampling.NEAREST),
    lambda image, amount: ImageEnhance.Brightness(image).enhance(1.0 + amount),
    lambda image, amount: ImageEnhance.Color(image).enhance(1.0 + amount),
    contrast,
    sharpness,
    lambda image, bits: ImageOps.posterize(image, int(bits)),
    lambda image, threshold: ImageOps.solarize(image, threshold),  # type: ignore[arg-type]  # it takes any number
    lambda image, _: ImageOps.autocontrast(image),
    lambda image, _: ImageOps.equalize(image),
]
"""Identity; shear and translate, each across and down; rotate; brightness, colour, contrast, sharpness; posterise,
solarise, automatic contrast, equalise."""
