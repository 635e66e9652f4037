"""Regions for tests."""

import numpy as np

from crate_mae.completion.mask_regions import Region


def box(size: tuple[int, int], top: int, left: int, height: int, width: int) -> Region:
    region = np.zeros(size, dtype=bool)
    region[top : top + height, left : left + width] = True
    return region


def blobs(size: tuple[int, int], seed: int) -> Region:
    rng = np.random.default_rng(seed)
    region = np.zeros(size, dtype=bool)
    for _ in range(rng.integers(1, 5)):
        top, left = rng.integers(0, size[0]), rng.integers(0, size[1])
        region |= box(size, top, left, rng.integers(1, 60), rng.integers(1, 60))
    return region
