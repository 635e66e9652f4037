"""Tiles against brute force: they cover the region, stay in the picture, and mask every patch that it touches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crate_mae.completion.mask_regions import Region
from crate_mae.completion.tiles import (
    LEAST_VISIBLE,
    ROUNDING,
    Tile,
    coverage,
    lay_tiles,
    plan_random,
    plan_region,
    summed,
    surround,
    thickness,
    tile_weights,
    touches,
    views,
)
from crate_mae.errors import UserError

IMAGE, GRID = (64, 64), (8, 8)


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


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 300), st.integers(20, 300), st.integers(0, 10**6))
def test_tiles_cover_the_region_and_lie_in_the_picture(height: int, width: int, seed: int) -> None:
    region = blobs((height, width), seed)
    tiles = lay_tiles(region, thickness(summed(region)), (12, 24))
    covered = np.zeros_like(region)
    for tile in tiles:
        assert tile.height / tile.width == pytest.approx(0.5)  # the model's aspect ratio
        assert min(tile.top, tile.left) >= 0
        assert tile.top + tile.height <= height + 1e-6
        assert tile.left + tile.width <= width + 1e-6
        covered[tile.pixels] = True
        assert region[tile.pixels].any()
    assert covered[region].all()


def test_a_square_region_is_one_tile_with_as_much_context_on_each_side() -> None:
    (tile,) = lay_tiles(box((400, 600), 150, 250, 100, 100), 100, IMAGE)
    assert tile == Tile(50, 150, 300, 300)
    (tile,) = lay_tiles(box((400, 600), 0, 500, 100, 100), 100, IMAGE)  # in a corner it is shifted
    assert tile == Tile(0, 300, 300, 300)
    (tile,) = lay_tiles(box((400, 600), 100, 200, 200, 200), 200, IMAGE)  # no larger than the picture
    assert tile == Tile(0, 100, 400, 400)
    (tile,) = lay_tiles(box((400, 600), 200, 300, 4, 4), 4, IMAGE)  # no smaller than the model's image
    assert tile == Tile(170, 270, 64, 64)


def test_a_tile_moves_to_where_the_region_masks_the_fewest_patches() -> None:
    """Of patches of 8 pixels: a square of 20 pixels can lie in 3 x 3 of them."""
    region = np.zeros((100, 120), dtype=bool)
    region[40:60, 50:70] = True
    tile = Tile(18, 28, 64, 64)  # the region touches 4 x 4 patches
    places = views(tile, region, summed(region), (64, 64), (8, 8))
    assert [(coverage(region, place, (8, 8)) > 0).sum() for place in [tile, *places]] == [16, *[9] * len(places)]
    assert len(places) == 4
    assert all(abs(place.top - tile.top) <= 4 and abs(place.left - tile.left) <= 4 for place in places)


def test_a_tile_is_seen_in_several_sizes_but_none_below_the_model_s() -> None:
    region = np.zeros((300, 300), dtype=bool)
    region[130:160, 130:160] = True
    for side, sizes in ((100.0, {100, 90, 80}), (70.0, {70, 64}), (50.0, {50})):
        tile = Tile(145 - side / 2, 145 - side / 2, side, side)
        assert {round(place.height) for place in views(tile, region, summed(region), (64, 64), (8, 8))} == sizes


def test_a_long_region_is_several_tiles_that_overlap_by_half() -> None:
    region = box((400, 1000), 180, 100, 40, 800)
    tiles = lay_tiles(region, 40, IMAGE)
    assert {(tile.top, tile.height) for tile in tiles} == {(140, 120)}
    steps = np.diff([tile.left for tile in tiles])
    assert len(steps) > 5
    assert steps.max() <= 60


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


@pytest.mark.parametrize("seed", range(5))
def test_every_patch_that_the_region_touches_is_masked_and_no_other(seed: int) -> None:
    region = blobs((120, 160), seed)
    plan = plan_region(region, IMAGE, GRID)
    for tile, mask in zip(plan.tiles, plan.masks, strict=True):
        rows, columns = tile.pixels
        for row in range(rows.start, rows.stop):
            for column in range(columns.start, columns.stop):
                patch = int((row + 0.5 - tile.top) / tile.height * 8), int((column + 0.5 - tile.left) / tile.width * 8)
                if region[row, column] and max(patch) < 8 and min(patch) >= 0:
                    assert mask.reshape(8, 8)[patch]
        assert (mask.reshape(8, 8) == (coverage(region, tile, GRID) > 1e-6)).all()
        assert np.mean(~mask) >= LEAST_VISIBLE


def test_a_region_from_edge_to_edge_gets_a_wider_view() -> None:
    region = box((100, 500), 0, 200, 100, 100)
    plan = plan_region(region, IMAGE, GRID)
    assert plan.tiles == [surround(region)] == [Tile(0, 100, 100, 300)]
    assert 0.3 < plan.masks.mean() < 0.6
    nearly_all = box((100, 100), 6, 6, 88, 88)  # touches every patch, and leaves half of those at the edge
    assert 0.5 < plan_region(nearly_all, IMAGE, GRID).masks.mean() < 1


@pytest.mark.parametrize(("region", "words"), [(np.zeros, "empty"), (np.ones, "too little")])
def test_nothing_and_everything_are_refused(region: type, words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan_region(region((30, 40), dtype=bool), IMAGE, GRID)


@pytest.mark.parametrize("size", [(64, 64), (427, 640), (640, 427), (30, 200), (500, 501), (5, 5)])
def test_random_cells_are_the_patches_of_every_tile(size: tuple[int, int]) -> None:
    plan = plan_random(size, IMAGE, GRID, 0.5, torch.Generator().manual_seed(0))
    assert 0.3 < plan.region.mean() < 0.7
    covered = np.zeros(size, dtype=bool)
    for tile, mask in zip(plan.tiles, plan.masks, strict=True):
        covered[tile.pixels] = True
        if min(size) >= 64:  # a patch has pixels: it is masked where they are
            np.testing.assert_allclose(coverage(plan.region, tile, GRID).flatten(), mask, atol=0.3)
    assert covered[plan.region].all()


@pytest.mark.parametrize("ratio", [0.01, 0.99])
def test_a_picture_of_few_pixels_may_have_none_to_mask_or_none_to_see(ratio: float) -> None:
    with pytest.raises(UserError, match="1 x 1 pixels is too small"):
        plan_random((1, 1), IMAGE, GRID, ratio, torch.Generator().manual_seed(0))


def test_a_picture_of_the_models_shape_gets_the_mask_of_the_seed() -> None:
    plan = plan_random((128, 128), IMAGE, GRID, 0.75, torch.Generator().manual_seed(3))
    from crate_mae import random_mask

    expected = random_mask(1, 64, 0.75, torch.Generator().manual_seed(3)).numpy()
    assert (plan.masks == expected).all()
    assert (plan.region == expected.reshape(8, 8).repeat(16, 0).repeat(16, 1)).all()


def test_weights_fall_from_the_middle_of_a_tile_to_its_edges() -> None:
    weights = tile_weights(Tile(0, 0, 10, 20))
    assert weights.shape == (10, 20)
    assert (weights > 0).all()
    assert (np.diff(weights[:5], axis=0) > 0).all()
    np.testing.assert_allclose(weights, weights[::-1, ::-1], rtol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_every_pixel_of_a_region_is_in_a_tile(seed: int) -> None:
    """Also at the picture's edges, where a tile can't reach further out, for discs, rectangles and their outsides."""
    rng = np.random.default_rng(seed)
    size = tuple(rng.integers(90, 430, 2).tolist())
    y, x = np.mgrid[: size[0], : size[1]]
    row, column, radius = rng.uniform(0, size[0]), rng.uniform(0, size[1]), rng.uniform(5, 130)
    if seed % 2:
        region = (y - row) ** 2 + (x - column) ** 2 <= radius**2
    else:
        region = (abs(y - row) <= radius) & (abs(x - column) <= radius * rng.uniform(0.2, 2))
    region = ~region if seed % 10 == 0 else region
    region = ~region if region.mean() > 0.7 else region  # something must stay visible
    plan = plan_region(region, IMAGE, GRID)
    covered = np.zeros(size, dtype=bool)
    for tile in plan.tiles:
        covered[tile.pixels] = True
    assert covered[region].all()


def test_the_patches_that_a_region_touches_are_counted() -> None:
    rng = np.random.default_rng(0)
    region = blobs((120, 150), 1)
    for _ in range(50):
        side = rng.uniform(20, 110)
        tile = Tile(rng.uniform(0, 120 - side), rng.uniform(0, 150 - side), side, side)
        expected = np.count_nonzero(coverage(region, tile, GRID) > ROUNDING)
        assert touches(summed(region), tile, GRID) == expected
