"""How a model of fixed size is laid over a picture of any size: tiles that cover a region, and their masked patches."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from crate_mae.completion.mask_regions import Region
from crate_mae.completion.patches import (
    ROUNDING,
    Box,
    Patches,
    Plan,
    Sums,
    Tile,
    bounds,
    coverage,
    pixels_in,
    summed,
    thickness,
    touched,
    touched_at,
)
from crate_mae.errors import UserError
from crate_mae.settings import Size

CONTEXT = 3
"""A tile's side over the region's thickness: as much context on each side as the region is thick."""
LEAST_VISIBLE = 0.25
"""The smallest fraction of visible patches in a tile; with fewer, its patches take turns, or it is made larger."""
MOST_TILES = 1000
"""With more tiles than this number, all are larger: hatching over a large photograph would need tens of thousands."""
GROWTH = 1.25
"""The smallest factor by which tiles grow until they are few enough."""
ZOOMS = (1.0, 0.9, 0.8)
"""Sizes of a tile at which its completions are averaged; none is smaller than the model's image."""
SHIFTS = np.arange(-4, 4) / 8
"""The shifts of a tile that are tried in each direction, in patches."""
VIEWS = 4
"""The largest number of shifts that are used for a tile of one size."""


class View(NamedTuple):
    """A tile as a model completes it."""

    tile: Tile
    mask: Patches
    in_turns: bool = False
    """Whether other views mask some of the patches that the region touches."""


def plan_region(region: Region, image: Size, grid: Size) -> Plan:
    """Tiles of the model's aspect ratio that cover a region, each with context around it.

    Every patch that the region touches is masked, so each tile is shifted by up to half a patch to where the fewest
    patches are masked (``places``). This can leave too little of a tile visible, for two reasons:

    - The region is thick: the picture is too small for the context around it. Then the tiles of this part of the region
      are replaced by one that takes it with context in both directions, stretched to the model's aspect ratio.
    - Thin pieces lie side by side, as in text and hatching. Then the tile's patches take turns (``turns``). Only if
      this too leaves too little visible, the tile is replaced as above.

    Each pixel of the region is in a masked patch of some tile.
    """
    if not region.any():
        raise UserError("the region is empty; mark at least one pixel of the picture.")
    sums = summed(region)
    thick = thickness(sums)
    laid = lay_tiles(region, thick, image)
    thick_for_picture = min(laid[0].height, laid[0].width) < CONTEXT * thick - ROUNDING
    box = bounds(region)
    seen: dict[Tile, list[View]] = {}
    crowded = []
    for tile in laid:
        seen[tile] = [View(place, touched(sums, place, grid)) for place in places(tile, box, sums, image, grid)]
        if not enough_visible(seen[tile]) and not thick_for_picture:
            seen[tile] = turns(tile, region, sums, grid)
        if not enough_visible(seen[tile]):
            crowded.append(tile)
    for part in overlapping(laid if thick_for_picture else crowded):
        if not set(part).isdisjoint(crowded):
            seen |= {tile: [] for tile in part} | {part[0]: wider(part, region, sums, grid)}
    missed = _missed(region, [view for each in seen.values() for view in each])
    for tile in laid if missed.any() else []:
        if missed[tile.pixels].any():
            seen[tile] = seen[tile] + in_place(tile, region, sums, grid)
    views = [view for each in seen.values() for view in each]
    if any(view.mask.all() for view in views):
        raise UserError("the region leaves too little of the picture to complete it from; choose a smaller one.")
    tiles, masks, in_turns = zip(*views, strict=True)
    return Plan(
        region, list(tiles), np.stack([mask.flatten() for mask in masks]), grid, in_turns, not thick_for_picture
    )


def enough_visible(views: Iterable[View]) -> bool:
    """Whether each view leaves enough patches visible to complete the others from."""
    return all(np.mean(~view.mask) >= LEAST_VISIBLE for view in views)


def _missed(region: Region, views: Iterable[View]) -> Region:
    """The pixels of the region that no view masks: those that a shift leaves out at the picture's edge."""
    missed = region.copy()
    for view in views:
        missed[view.tile.pixels] &= ~pixels_in(view.mask, view.tile) if view.in_turns else False
    return missed


# --- tiles of one size ---


def lay_tiles(region: Region, thick: int, image: Size) -> list[Tile]:
    """Overlapping tiles of one size and the model's aspect ratio, inside the picture, that cover the region.

    A tile is three times as large as the region is thick, but no smaller than the model's image (no detail is gained
    by enlarging the input) and no larger than the picture. Neighbours overlap by half at least.
    """
    largest = min(have / need for have, need in zip(region.shape, image, strict=True))
    scale = min(max(CONTEXT * thick / min(image), 1.0), largest)
    box = bounds(region)
    while len(tiles := _tiles_of(scale, region, box, image)) > MOST_TILES:
        scale = min(max(GROWTH, math.sqrt(len(tiles) / MOST_TILES)) * scale, largest)
    return tiles


def _tiles_of(scale: float, region: Region, box: Box, image: Size) -> list[Tile]:
    height, width = (scale * side for side in image)
    (top, bottom), (left, right) = box
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


# --- the places of a tile ---


def places(tile: Tile, box: Box, sums: Sums, image: Size, grid: Size) -> list[Tile]:
    """The tile in a few sizes, each at those places up to half a patch away where the region touches fewest patches.

    A patch that the region only touches is masked whole. The completions at these places are averaged: the mean has no
    sharp edges between patches, and it is closer to the original (docs/log.md). ``box`` has the bounds of the region.
    """
    found: dict[Tile, None] = {}  # a set that keeps its order
    smallest = min(1.0, image[0] / tile.height)
    for zoom in dict.fromkeys(max(zoom, smallest) for zoom in ZOOMS):
        height, width = zoom * tile.height, zoom * tile.width
        middle = Tile(tile.top + (tile.height - height) / 2, tile.left + (tile.width - width) / 2, height, width)
        found |= dict.fromkeys(_best_places(middle, box, sums, grid))
    return list(found)


def _best_places(tile: Tile, box: Box, sums: Sums, grid: Size) -> list[Tile]:
    """Up to ``VIEWS`` of the places where the region touches the fewest patches, spread over all of these.

    None if it touches no patch at one of them: what there is of it at the tile's rim is further inside other tiles.
    """
    (first, last), (start, end) = box
    height, width = sums.shape[0] - 1, sums.shape[1] - 1
    tops = _shifted(tile.top, tile.height, grid[0], height, first == 0, last == height)
    lefts = _shifted(tile.left, tile.width, grid[1], width, start == 0, end == width)
    counts = touched_at(sums, tops, lefts, tile, grid).sum((2, 3))
    if counts.min() == 0:
        return []
    best = np.argwhere(counts == counts.min())
    spread = best[np.unique(np.linspace(0, len(best) - 1, VIEWS).round().astype(int))]
    return [replace(tile, top=tops[row], left=lefts[column]) for row, column in spread]


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


# --- tiles of which too little stays visible ---


def in_place(tile: Tile, region: Region, sums: Sums, grid: Size) -> list[View]:
    """The tile where it is, with every patch masked that the region touches; in turns if too little stays visible."""
    whole = [View(tile, touched(sums, tile, grid))]
    return whole if enough_visible(whole) else turns(tile, region, sums, grid)


def turns(tile: Tile, region: Region, sums: Sums, grid: Size) -> list[View]:
    """The tile up to four times: each patch that the region touches is masked in one of them at least.

    A patch that the region covers by half is masked in all. Of the others, every second one in each direction is masked
    in the same turn, so that its neighbours are visible.
    """
    covered = coverage(region, tile, grid) >= 0.5
    partly = touched(sums, tile, grid) & ~covered
    row, column = np.indices(grid) % 2
    shares = [partly & (2 * row + column == turn) for turn in range(4)]
    return [View(tile, covered | share, True) for share in shares if share.any()] or [View(tile, covered)]


def wider(part: Sequence[Tile], region: Region, sums: Sums, grid: Size) -> list[View]:
    """One tile for the region in these tiles, with context around it; the whole picture if that is not enough."""
    rows, columns = (
        slice(min(side.start for side in sides), max(side.stop for side in sides))
        for sides in zip(*(tile.pixels for tile in part), strict=True)
    )
    (top, bottom), (left, right) = bounds(region[rows, columns])
    around = surround(
        ((top + rows.start, bottom + rows.start), (left + columns.start, right + columns.start)), region.shape
    )
    view = View(around, touched(sums, around, grid))
    return [view] if enough_visible([view]) else in_place(Tile(0, 0, *region.shape), region, sums, grid)


def surround(box: Box, size: Size) -> Tile:
    """A box with as much context around it as it is large, clipped to the picture."""
    sides = []
    for (start, end), whole in zip(box, size, strict=True):
        length = min(CONTEXT * (end - start), whole)
        sides.append((min(max((start + end - length) / 2, 0), whole - length), length))
    (top, height), (left, width) = sides
    return Tile(top, left, height, width)


def overlapping(tiles: Sequence[Tile]) -> list[list[Tile]]:
    """The tiles, all of one size, in groups: two that overlap are in the same one."""
    if not tiles:
        return []
    tops, lefts = np.array([(tile.top, tile.left) for tile in tiles]).T
    near = (abs(tops[:, None] - tops) < tiles[0].height) & (abs(lefts[:, None] - lefts) < tiles[0].width)
    count, numbers = connected_components(near)
    groups: list[list[Tile]] = [[] for _ in range(count)]
    for tile, number in zip(tiles, numbers, strict=True):
        groups[number].append(tile)
    return groups
