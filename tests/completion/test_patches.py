"""The patches of a tile against brute force: which a region touches, how much of each, and which pixels are in them."""

import numpy as np

from crate_mae.completion.patches import (
    ROUNDING,
    Tile,
    coverage,
    pixels_in,
    summed,
    thickness,
    tile_weights,
    touched,
    touched_at,
)
from tests.completion.regions import blobs, box

GRID = (8, 8)


def test_thickness_is_the_side_of_the_largest_square_inside() -> None:
    assert thickness(summed(box((50, 60), 3, 4, 17, 30))) == 17
    assert thickness(summed(np.ones((20, 30), dtype=bool))) == 20
    assert thickness(summed(np.eye(20, dtype=bool))) == 1
    region = blobs((40, 50), 3)
    squares = [
        side
        for side in range(1, 41)
        for row in range(41 - side)
        for column in range(51 - side)
        if region[row : row + side, column : column + side].all()
    ]
    assert thickness(summed(region)) == max(squares)


def test_coverage_is_that_of_a_fine_raster() -> None:
    region, tile = blobs((60, 80), 1), Tile(3.3, 10.7, 36.5, 48.25)
    fine = region.repeat(20, 0).repeat(20, 1)
    rows = ((np.arange(900) + 0.5) / 900 * tile.height + tile.top) * 20
    columns = ((np.arange(1200) + 0.5) / 1200 * tile.width + tile.left) * 20
    counted = fine[rows.astype(int)[:, None], columns.astype(int)].reshape(3, 300, 4, 300).mean((1, 3))
    np.testing.assert_allclose(coverage(region, tile, (3, 4)), counted, atol=0.01)


def test_weights_fall_from_the_middle_of_a_tile_to_its_edges() -> None:
    weights = tile_weights(Tile(0, 0, 10, 20))
    assert weights.shape == (10, 20)
    assert (weights > 0).all()
    assert (np.diff(weights[:5], axis=0) > 0).all()
    np.testing.assert_allclose(weights, weights[::-1, ::-1], rtol=1e-5)


def test_the_patches_that_a_region_touches_are_counted() -> None:
    rng = np.random.default_rng(0)
    region = blobs((120, 150), 1)
    for _ in range(50):
        side = rng.uniform(20, 110)
        tile = Tile(rng.uniform(0, 120 - side), rng.uniform(0, 150 - side), side, side)
        expected = np.count_nonzero(coverage(region, tile, GRID) > ROUNDING)
        assert touched(summed(region), tile, GRID).sum() == expected


def test_many_places_of_a_tile_at_once_are_as_one_by_one() -> None:
    sums, tile = summed(blobs((120, 150), 2)), Tile(0, 0, 61.5, 70.25)
    tops, lefts = [0.0, 3.3, 40.0], [1.7, 22.0, 50.5, 79.75]
    together = touched_at(sums, tops, lefts, tile, (4, 6))
    for row, top in enumerate(tops):
        for column, left in enumerate(lefts):
            alone = touched(sums, Tile(top, left, tile.height, tile.width), (4, 6))
            assert (together[row, column] == alone).all()


def test_a_pixel_is_in_the_patch_at_its_centre() -> None:
    tile, patches = Tile(3.3, 10.7, 36.5, 48.25), np.random.default_rng(0).random((3, 4)) < 0.5
    rows, columns = tile.pixels
    inside = pixels_in(patches, tile)
    assert inside.shape == (rows.stop - rows.start, columns.stop - columns.start)
    for row in range(4, 39):
        for column in range(11, 58):
            patch = int((row + 0.5 - tile.top) / tile.height * 3), int((column + 0.5 - tile.left) / tile.width * 4)
            assert inside[row - rows.start, column - columns.start] == patches[patch]
