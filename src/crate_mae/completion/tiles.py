"""How a model of fixed size is laid over a picture of any size: tiles, their masked patches, and blending weights.

A region is an array (H, W), True for the pixels that are to be completed. A tile is a rectangle of the picture that the
model sees as one image. All of this is geometry: no model, no pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from crate_mae.completion.mask_regions import Region
from crate_mae.errors import UserError
from crate_mae.settings import Size
from crate_mae.tokens import random_mask

CONTEXT = 3
"""A tile's side over the region's thickness: as much context on each side as the region is thick."""
LEAST_VISIBLE = 0.25
"""The smallest fraction of visible patches in a tile; with fewer, a larger part of the picture is used."""
ZOOMS = (1.0, 0.9, 0.8)
"""Sizes of a tile at which its completions are averaged; none is smaller than the model's image."""
SHIFTS = np.arange(-4, 4) / 8
"""The shifts of a tile that are tried in each direction, in patches."""
VIEWS = 4
"""The largest number of shifts that are used for a tile of one size."""
ROUNDING = 1e-6
Sums = Int[np.ndarray, "H_1 W_1"]
"""What ``summed`` gives: the number of a region's pixels in any rectangle then takes four look-ups."""


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


# --- a region of any shape ---


def plan_region(region: Region, image: Size, grid: Size) -> Plan:
    """Tiles of the model's aspect ratio that cover a region, each with context around it.

    Every patch that the region touches is masked, so each tile is shifted by up to half a patch to where the fewest
    patches are masked (``views``). Where this leaves too little of a tile visible, because the region fills the picture
    from edge to edge, a single tile takes the region with context in both directions, stretched to the model's aspect
    ratio.
    """
    if not region.any():
        raise UserError("the region is empty; mark at least one pixel of the picture.")
    sums = summed(region)
    tiles = [
        view for tile in lay_tiles(region, thickness(sums), image) for view in views(tile, region, sums, image, grid)
    ]
    masks = [coverage(region, tile, grid) > ROUNDING for tile in tiles]
    if min(np.mean(~mask) for mask in masks) < LEAST_VISIBLE:
        tiles = [surround(region)]
        covered = coverage(region, tiles[0], grid)
        masks = [covered > ROUNDING]
        if np.mean(~masks[0]) < LEAST_VISIBLE:
            masks = [covered >= 0.5]
    if any(mask.all() for mask in masks):
        raise UserError("the region leaves too little of the picture to complete it from; choose a smaller one.")
    return Plan(region, tiles, np.stack([mask.flatten() for mask in masks]))


def summed(region: Region) -> Sums:
    """The number of the region's pixels above and left of each corner between pixels."""
    return np.pad(region.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32), ((1, 0), (1, 0)))


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


def lay_tiles(region: Region, thick: int, image: Size) -> list[Tile]:
    """Overlapping tiles of one size and the model's aspect ratio, inside the picture, that cover the region.

    A tile is three times as large as the region is thick, but no smaller than the model's image (no detail is gained
    by enlarging the input) and no larger than the picture. Neighbours overlap by half at least.
    """
    scale = max(CONTEXT * thick / min(image), 1.0)
    scale = min(scale, *(have / need for have, need in zip(region.shape, image, strict=True)))
    height, width = (scale * side for side in image)
    (top, bottom), (left, right) = bounds(region)
    starts = [
        _starts(top, bottom, height, region.shape[0]),
        _starts(left, right, width, region.shape[1]),
    ]
    tiles = [Tile(row, column, height, width) for row in starts[0] for column in starts[1]]
    return [tile for tile in tiles if region[tile.pixels].any()]


def _starts(start: float, end: float, side: float, whole: int) -> list[float]:
    """The starts of tiles of this side that cover [start, end), with a sixth of a tile to spare at both ends."""
    first, last = start - side / 6, end + side / 6 - side
    if last <= first:
        places = np.array([(start + end - side) / 2])
    else:
        places = np.linspace(first, last, 1 + math.ceil((last - first) / (side / 2)))
    return np.unique(places.clip(0, whole - side)).tolist()


def views(tile: Tile, region: Region, sums: Sums, image: Size, grid: Size) -> list[Tile]:
    """The tile in a few sizes, each at those places up to half a patch away where the region touches fewest patches.

    A patch that the region only touches is masked whole. The completions of these views are averaged: the mean has no
    sharp edges between patches, and it is closer to the original (docs/log.md).
    """
    found: dict[Tile, None] = {}  # a set that keeps its order
    smallest = min(1.0, image[0] / tile.height)
    for zoom in dict.fromkeys(max(zoom, smallest) for zoom in ZOOMS):
        height, width = zoom * tile.height, zoom * tile.width
        middle = Tile(tile.top + (tile.height - height) / 2, tile.left + (tile.width - width) / 2, height, width)
        found |= dict.fromkeys(_best_places(middle, region, sums, grid))
    return list(found)


def _best_places(tile: Tile, region: Region, sums: Sums, grid: Size) -> list[Tile]:
    """Up to ``VIEWS`` of the places where the region touches the fewest patches, spread over all of these."""
    touched: dict[Tile, int] = {}
    (first, last), (start, end) = bounds(region)
    tops = _shifted(tile.top, tile.height, grid[0], region.shape[0], first == 0, last == region.shape[0])
    lefts = _shifted(tile.left, tile.width, grid[1], region.shape[1], start == 0, end == region.shape[1])
    for top, left in product(tops, lefts):
        place = replace(tile, top=top, left=left)
        touched[place] = touches(sums, place, grid)
    best = [place for place, count in touched.items() if count == min(touched.values())]
    return [best[number] for number in np.unique(np.linspace(0, len(best) - 1, VIEWS).round().astype(int))]


def touches(sums: Sums, tile: Tile, grid: Size) -> int:
    """The number of a tile's patches that the region touches."""
    (up, down), (left, right) = (
        (np.floor(edges[:-1] + ROUNDING).astype(int), np.ceil(edges[1:] - ROUNDING).astype(int))
        for edges in (
            tile.top + np.arange(grid[0] + 1) * tile.height / grid[0],
            tile.left + np.arange(grid[1] + 1) * tile.width / grid[1],
        )
    )
    inside = sums[down[:, None], right] - sums[up[:, None], right] - sums[down[:, None], left] + sums[up[:, None], left]
    return int(np.count_nonzero(inside))


def _shifted(start: float, length: float, patches: int, whole: int, at_start: bool, at_end: bool) -> list[float]:
    """The starts of a shifted tile along one side, inside the picture.

    Other tiles cover what a shift uncovers, but not at the picture's own edge: a tile there stays at it if the region
    reaches the edge (``at_start``, ``at_end``).
    """
    starts = (start + SHIFTS * length / patches).clip(0, whole - length)
    if at_start and start <= ROUNDING:
        starts = starts[starts <= ROUNDING]
    if at_end and start + length >= whole - ROUNDING:
        starts = starts[starts + length >= whole - ROUNDING]
    return np.unique(starts).tolist()


def surround(region: Region) -> Tile:
    """The region's bounding box with as much context around it as it is large, clipped to the picture."""
    sides = []
    for (start, end), whole in zip(bounds(region), region.shape, strict=True):
        length = min(CONTEXT * (end - start), whole)
        sides.append((min(max((start + end - length) / 2, 0), whole - length), length))
    (top, height), (left, width) = sides
    return Tile(top, left, height, width)


def bounds(region: Region) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first row and the one after the last, and the same of the columns."""
    rows, columns = (np.flatnonzero(region.any(axis)) for axis in (1, 0))
    return (int(rows[0]), int(rows[-1]) + 1), (int(columns[0]), int(columns[-1]) + 1)


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


# --- random cells ---


def plan_random(size: Size, image: Size, grid: Size, ratio: float, generator: torch.Generator) -> Plan:
    """A mask drawn at random over the whole picture, from cells of the model's patches.

    The picture's shorter side holds as many cells as the model's image; a tile is as many cells as the model has
    patches, so that cells and patches agree. A picture of the model's aspect ratio needs one tile.
    """
    scale = min(have / need for have, need in zip(size, image, strict=True))
    cells = [
        max(count, round(have / (scale * side / count))) for have, side, count in zip(size, image, grid, strict=True)
    ]
    mask = random_mask(1, cells[0] * cells[1], ratio, generator)[0].numpy().reshape(cells)
    rows, columns = (
        ((np.arange(have) + 0.5) * count / have).astype(int) for have, count in zip(size, cells, strict=True)
    )
    height, width = (have / count for have, count in zip(size, cells, strict=True))
    corners = [
        (row, column)
        for row in _cell_starts(cells[0], grid[0])
        for column in _cell_starts(cells[1], grid[1])
        if mask[row : row + grid[0], column : column + grid[1]].any()
    ]
    masks = np.stack([mask[row : row + grid[0], column : column + grid[1]].flatten() for row, column in corners])
    if masks.all(1).any():
        raise UserError(f"a mask ratio of {ratio:g} leaves nothing to complete from; choose a lower --mask-ratio.")
    region = mask[rows[:, None], columns]
    tiles = [Tile(row * height, column * width, grid[0] * height, grid[1] * width) for row, column in corners]
    if not region.any() or any(region[tile.pixels].all() for tile in tiles):
        raise UserError(f"a picture of {size[1]} x {size[0]} pixels is too small for a random mask; use --rectangle.")
    return Plan(region, tiles, masks)


def _cell_starts(cells: int, side: int) -> list[int]:
    """The starts of tiles of ``side`` cells that cover all cells and overlap by at least half a tile."""
    count = 1 + math.ceil((cells - side) / max(side // 2, 1))
    return sorted({round(place) for place in np.linspace(0, cells - side, count)})


# --- blending ---


def tile_weights(tile: Tile) -> Float[np.ndarray, "h w"]:
    """The weight of a tile at each of its pixels: 1 in the middle, falling to its edges."""
    rows, columns = tile.pixels
    down, across = (
        (1 - abs(2 * (np.arange(pixels.start, pixels.stop) + 0.5 - start) / length - 1)).clip(min=1e-3)
        for pixels, start, length in ((rows, tile.top, tile.height), (columns, tile.left, tile.width))
    )
    return np.outer(down, across).astype(np.float32)
