"""Masks from regions of a picture: a rectangle, or another picture that marks what is masked.

A region covers each patch by some share of its area; the patch is masked where that share is large enough.
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
"""Left, top, right, bottom, in shares of a picture's width and height."""
HALF = 128  # of 256 levels: from here on a pixel is white, or opaque
ROUNDING = 1e-9


def mask_where_covered(coverage: Float[Tensor, "h w"], threshold: float = 0.5) -> Bool[Tensor, " n"]:
    """True for the patches that are covered by at least ``threshold``, in row-major order."""
    if not 0 < threshold <= 1:
        raise UserError(f"the mask threshold is {threshold}; choose a share above 0 and up to 1.")
    masked = (coverage >= threshold - ROUNDING).flatten()
    if not masked.any():
        raise UserError(
            f"the region covers no patch by {threshold:g} of its area, the most is {coverage.max():.2g}; "
            "take a larger region or a lower threshold."
        )
    if masked.all():
        raise UserError("the region covers every patch and leaves nothing to complete from; take a smaller one.")
    return masked


def cover_by_rectangle(rectangle: Rectangle, grid: Size) -> Float[Tensor, "h w"]:
    """The share of each patch's area inside a rectangle."""
    left, top, right, bottom = rectangle
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise UserError(
            f"the rectangle {' '.join(f'{side:g}' for side in rectangle)} is no left, top, right and bottom in shares "
            "of the picture; choose numbers from 0 to 1, left below right and top below bottom."
        )
    sides = torch.tensor([[top, bottom], [left, right]], dtype=torch.float64)
    down, across = (overlap(start[None], end[None], cells) for (start, end), cells in zip(sides, grid, strict=True))
    return down @ across.mT


def cover_by_picture(marks: Bool[Tensor, "H W"], grid: Size) -> Float[Tensor, "h w"]:
    """The share of each patch's area that is marked in a picture laid over the whole, of any size."""
    edges = [torch.arange(pixels + 1, dtype=torch.float64) / pixels for pixels in marks.shape]
    down, across = (overlap(of[:-1], of[1:], cells) for of, cells in zip(edges, grid, strict=True))
    return down @ marks.double() @ across.mT


def overlap(starts: Float[Tensor, " k"], ends: Float[Tensor, " k"], cells: int) -> Float[Tensor, "cells k"]:
    """The share of each of the equal cells of [0, 1] that lies in each interval."""
    edges = torch.arange(cells + 1, dtype=torch.float64)[:, None] / cells
    inside = torch.minimum(edges[1:], ends) - torch.maximum(edges[:-1], starts)
    return inside.clamp(min=0) * cells


def read_marks(path: str | Path) -> Bool[Tensor, "H W"]:
    """What a picture marks: its opaque pixels where any is transparent, its white ones where none is."""
    picture = image_io.read(path)
    level = _opacity(picture)
    if level is None:
        level = np.asarray(image_io.in_mode(picture, "L"))
    return torch.from_numpy(level >= HALF)


def _opacity(picture: Image.Image) -> np.ndarray | None:
    """None where every pixel is opaque."""
    if not picture.has_transparency_data:
        return None
    level = np.asarray(picture.convert("RGBA").getchannel("A"))
    return None if (level == 255).all() else level
