"""Regions of a picture that are to be completed: a rectangle, or what another picture marks.

A region is an array (H, W) of the picture's size, True for the pixels that are masked.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Bool
from PIL import Image

from crate_mae import image_files
from crate_mae.errors import UserError
from crate_mae.settings import Size

Rectangle = tuple[float, float, float, float]
"""Left, top, right, bottom, as fractions of a picture's width and height."""
Region = Bool[np.ndarray, "H W"]
HALF = 128  # of 256 levels: from here on a pixel is white, or opaque


def region_by_rectangle(rectangle: Rectangle, size: Size) -> Region:
    """The pixels whose centres lie in a rectangle; the nearest one if it is smaller than a pixel."""
    check_rectangle(rectangle)
    left, top, right, bottom = rectangle
    rows, columns = (
        _between(start, end, pixels) for (start, end), pixels in zip(((top, bottom), (left, right)), size, strict=True)
    )
    return rows[:, None] & columns


def check_rectangle(rectangle: Rectangle) -> None:
    """Refuse numbers that are not a rectangle inside a picture."""
    left, top, right, bottom = rectangle
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise UserError(
            f"the rectangle {' '.join(f'{side:g}' for side in rectangle)} is not left, top, right and bottom as "
            "fractions of the picture; choose numbers from 0 to 1, left below right and top below bottom."
        )


def _between(start: float, end: float, pixels: int) -> Bool[np.ndarray, " n"]:
    centres = (np.arange(pixels) + 0.5) / pixels
    inside = (centres >= start) & (centres < end)
    return inside if inside.any() else np.arange(pixels) == int((start + end) / 2 * pixels)


def region_by_picture(marks: Bool[np.ndarray, "h w"], size: Size) -> Region:
    """Marks of any size laid over the whole picture: each pixel takes the mark at its centre."""
    rows, columns = (
        ((np.arange(pixels) + 0.5) * have / pixels).astype(int) for pixels, have in zip(size, marks.shape, strict=True)
    )
    return marks[rows[:, None], columns]


def read_marks(path: str | Path) -> Bool[np.ndarray, "h w"]:
    """What a picture marks: its opaque pixels if any pixel is transparent, otherwise its white ones."""
    picture = image_files.read(path)
    level = _opacity(picture)
    if level is None:
        level = np.asarray(image_files.in_mode(picture, "L"))
    if not (level >= HALF).any():
        raise UserError(f"{path} marks nothing: it has no white pixel; mark in white what is to be completed.")
    return level >= HALF


def _opacity(picture: Image.Image) -> np.ndarray | None:
    """The opacity of each pixel; None if every pixel is opaque."""
    if not picture.has_transparency_data:
        return None
    level = np.asarray(picture.convert("RGBA").getchannel("A"))
    return None if (level == 255).all() else level
