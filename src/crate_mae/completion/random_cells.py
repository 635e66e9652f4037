"""A plan with a mask drawn at random: cells over a whole picture that are the patches of its tiles."""

import math

import numpy as np
import torch

from crate_mae.completion.patches import Plan, Tile
from crate_mae.errors import UserError
from crate_mae.settings import Size
from crate_mae.tokens import random_mask


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
    return Plan(region, tiles, masks, grid, [False] * len(tiles))


def _cell_starts(cells: int, side: int) -> list[int]:
    """The starts of tiles of ``side`` cells that cover all cells and overlap by at least half a tile."""
    count = 1 + math.ceil((cells - side) / max(side // 2, 1))
    return sorted({round(place) for place in np.linspace(0, cells - side, count)})
