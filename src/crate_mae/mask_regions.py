"""Masks from regions of a picture: a rectangle, or a mask image.

A patch is masked if the region covers a large enough fraction of its area.
"""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from crate_mae import image_io
from crate_mae.errors import UserError
from crate_mae.tokens import Size

Rectangle = tuple[float, float, float, float]
"""Left, top, right, bottom, as fractions of the picture's width and height."""
HALF = 128  # of 256 levels: a pixel at or above it counts as white, or opaque
ROUNDING = 1e-9


def mask_where_covered(coverage: Float[Tensor, "h w"], threshold: float = 0.5) -> Bool[Tensor, " n"]:
    """True for each patch, in row-major order, of which at least the fraction ``threshold`` is covered."""
    if not 0 < threshold <= 1:
        raise UserError(f"the mask threshold is {threshold}; choose a fraction above 0 and at most 1.")
    masked = (coverage >= threshold - ROUNDING).flatten()
    if not masked.any():
        raise UserError(
            f"the region covers no patch by {threshold:g} of its area; the largest fraction is {coverage.max():.2g}. "
            "Choose a larger region or a lower threshold."
        )
    if masked.all():
        raise UserError("the region covers every patch, so that none is left visible; choose a smaller region.")
    return masked


def cover_by_rectangle(rectangle: Rectangle, grid: Size) -> Float[Tensor, "h w"]:
    """The fraction of each patch's area inside a rectangle."""
    left, top, right, bottom = rectangle
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise UserError(
            f"the rectangle {' '.join(f'{side:g}' for side in rectangle)} is not valid; give left, top, right, bottom "
            "from 0 to 1, as fractions of the picture's size, left below right and top below bottom."
        )
    sides = torch.tensor([[top, bottom], [left, right]], dtype=torch.float64)
    down, across = (overlap(start[None], end[None], cells) for (start, end), cells in zip(sides, grid, strict=True))
    return down @ across.mT


def cover_by_picture(marks: Bool[Tensor, "H W"], grid: Size) -> Float[Tensor, "h w"]:
    """The fraction of each patch's area marked by a mask image of any size, stretched over the whole picture."""
    edges = [torch.arange(pixels + 1, dtype=torch.float64) / pixels for pixels in marks.shape]
    down, across = (overlap(of[:-1], of[1:], cells) for of, cells in zip(edges, grid, strict=True))
    return down @ marks.double() @ across.mT


def overlap(starts: Float[Tensor, " k"], ends: Float[Tensor, " k"], cells: int) -> Float[Tensor, "cells k"]:
    """The fraction of each of ``cells`` equal parts of [0, 1] that lies in each interval."""
    edges = torch.arange(cells + 1, dtype=torch.float64)[:, None] / cells
    inside = torch.minimum(edges[1:], ends) - torch.maximum(edges[:-1], starts)
    return inside.clamp(min=0) * cells


def read_marks(path: str | Path) -> Bool[Tensor, "H W"]:
    """The marked pixels of a mask image: the opaque ones if any pixel is transparent, else the white ones."""
    picture = image_io.read(path)
    level = _opacity(picture)
    if level is None:
        level = np.asarray(image_io.in_mode(picture, "L"))
    return torch.from_numpy(level >= HALF)


def _opacity(picture: Image.Image) -> np.ndarray | None:
    """The alpha channel; None if every pixel is opaque."""
    if not picture.has_transparency_data:
        return None
    level = np.asarray(picture.convert("RGBA").getchannel("A"))
    return None if (level == 255).all() else level
