"""A tile of a picture, and its patches: which of them a region touches, by how much, and which pixels each has.

A region is an array (H, W), True for the pixels that are to be completed. A tile is a rectangle of the picture that the
model sees as one image. All of this is geometry: no model, no pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from crate_mae.completion.mask_regions import Region
from crate_mae.settings import Size

ROUNDING = 1e-6
Sums = Int[np.ndarray, "H_1 W_1"]
"""What ``summed`` gives: the number of a region's pixels in any rectangle then takes four look-ups."""
Box = tuple[tuple[int, int], tuple[int, int]]
"""The first row and the one after the last, and the same of the columns."""
Patches = Bool[np.ndarray, "h w"]
"""Some of a tile's patches, True on the model's grid."""


@dataclass(frozen=True)
class Tile:
    """A rectangle of a picture, in pixels; its edges need not lie between two of them."""

    top: float
    left: float
    height: float
    width: float

    @property
    def pixels(self) -> tuple[slice, slice]:
        """The rows and columns that it touches."""
        sides = (self.top, self.height), (self.left, self.width)
        rows, columns = (
            slice(math.floor(start + ROUNDING), math.ceil(start + length - ROUNDING)) for start, length in sides
        )
        return rows, columns


@dataclass(frozen=True)
class Plan:
    """What is completed of a picture, and by which tiles."""

    region: Region
    tiles: Sequence[Tile]
    masks: Bool[np.ndarray, "tiles patches"]
    """The patches of each tile that are masked."""
    grid: Size
    """Rows and columns of a tile's patches."""
    in_turns: Sequence[bool]
    """Whether some of the patches that the region touches in this tile are visible, to be masked in another tile."""
    thin: bool = False
    """Whether the region consists of thin pieces, so that its surroundings say what visible patches show of it."""

    def masked_pixels(self, number: int) -> Bool[np.ndarray, "rows columns"]:
        """The pixels of a tile that are in its masked patches, so that the model predicts them."""
        return pixels_in(self.masks[number].reshape(self.grid), self.tiles[number])


# --- the region ---


def summed(region: Region) -> Sums:
    """The number of the region's pixels above and left of each corner between pixels."""
    return np.pad(region.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32), ((1, 0), (1, 0)))


def bounds(region: Region) -> Box:
    """The first row and the one after the last, and the same of the columns."""
    rows, columns = (np.flatnonzero(region.any(axis)) for axis in (1, 0))
    return (int(rows[0]), int(rows[-1]) + 1), (int(columns[0]), int(columns[-1]) + 1)


def thickness(sums: Sums) -> int:
    """The side of the largest square inside a region."""

    def holds(side: int) -> bool:
        inside = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
        return bool((inside == side * side).any())

    low, high = 0, min(sums.shape) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


# --- the patches of a tile ---


def touched(sums: Sums, tile: Tile, grid: Size) -> Patches:
    """The patches of a tile that the region touches."""
    return touched_at(sums, [tile.top], [tile.left], tile, grid)[0, 0]


def touched_at(
    sums: Sums, tops: Sequence[float], lefts: Sequence[float], tile: Tile, grid: Size
) -> Bool[np.ndarray, "tops lefts h w"]:
    """The same for a tile of this size with each of these rows as its top and each of these columns as its left."""
    (up, down), (left, right) = (
        (np.floor(edges[:, :-1] + ROUNDING).astype(int), np.ceil(edges[:, 1:] - ROUNDING).astype(int))
        for edges in (
            np.array(starts)[:, None] + np.arange(count + 1) * side / count
            for starts, side, count in ((tops, tile.height, grid[0]), (lefts, tile.width, grid[1]))
        )
    )
    up, down = up[:, None, :, None], down[:, None, :, None]
    return (
        sums[down, right[:, None]] - sums[up, right[:, None]] - sums[down, left[:, None]] + sums[up, left[:, None]] > 0
    )


def coverage(region: Region, tile: Tile, grid: Size) -> Float[np.ndarray, "h w"]:
    """The fraction of each patch's area that lies in the region."""
    rows, columns = tile.pixels
    down = _overlap(rows, tile.top, tile.height, grid[0])
    across = _overlap(columns, tile.left, tile.width, grid[1])
    return down @ region[rows, columns].astype(np.float32) @ across.T


def _overlap(pixels: slice, start: float, length: float, cells: int) -> Float[np.ndarray, "cells pixels"]:
    """The fraction of each of a tile's equal cells that each pixel takes up along one side."""
    edges = np.arange(cells + 1)[:, None] / cells
    places = (np.arange(pixels.start, pixels.stop + 1) - start) / length
    inside = np.minimum(edges[1:], places[1:]) - np.maximum(edges[:-1], places[:-1])
    return (inside.clip(min=0) * cells).astype(np.float32)


# --- the pixels of a tile ---


def pixels_in(patches: Patches, tile: Tile) -> Bool[np.ndarray, "rows columns"]:
    """The pixels of a tile in these patches: each belongs to the patch at its centre, or to the nearest one."""
    rows, columns = (
        ((np.arange(side.start, side.stop) + 0.5 - start) / length * count + ROUNDING).astype(int).clip(0, count - 1)
        for side, start, length, count in zip(
            tile.pixels, (tile.top, tile.left), (tile.height, tile.width), patches.shape, strict=True
        )
    )
    return patches[rows][:, columns]


def tile_weights(tile: Tile) -> Float[np.ndarray, "h w"]:
    """The weight of a tile at each of its pixels: 1 in the middle, falling to its edges."""
    rows, columns = tile.pixels
    down, across = (
        (1 - abs(2 * (np.arange(pixels.start, pixels.stop) + 0.5 - start) / length - 1)).clip(min=1e-3)
        for pixels, start, length in ((rows, tile.top, tile.height), (columns, tile.left, tile.width))
    )
    return np.outer(down, across).astype(np.float32)
