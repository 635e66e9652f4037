"""Tiles against brute force: they cover the region, stay in the picture, and mask every patch that it touches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crate_mae.completion import tiles as tiles_module
from crate_mae.completion.mask_regions import Region
from crate_mae.completion.patches import Plan, Tile, bounds, coverage, summed, thickness
from crate_mae.completion.tiles import LEAST_VISIBLE, lay_tiles, overlapping, places, plan_region, surround, turns
from crate_mae.errors import UserError
from tests.completion.regions import blobs, box

IMAGE, GRID = (64, 64), (8, 8)


def predicted(plan: Plan) -> Region:
    """The pixels in the masked patches of any tile."""
    found = np.zeros_like(plan.region)
    for number, tile in enumerate(plan.tiles):
        found[tile.pixels] |= plan.masked_pixels(number)
    return found


def hatching(size: tuple[int, int], every: int, thick: int = 1) -> Region:
    return np.add.outer(np.arange(size[0]), np.arange(size[1])) % every < thick


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
    found = places(tile, bounds(region), summed(region), IMAGE, GRID)
    assert [(coverage(region, place, (8, 8)) > 0).sum() for place in [tile, *found]] == [16, *[9] * len(found)]
    assert len(found) == 4
    assert all(abs(place.top - tile.top) <= 4 and abs(place.left - tile.left) <= 4 for place in found)


def test_a_tile_is_seen_in_several_sizes_but_none_below_the_model_s() -> None:
    region = np.zeros((300, 300), dtype=bool)
    region[130:160, 130:160] = True
    for side, sizes in ((100.0, {100, 90, 80}), (70.0, {70, 64}), (50.0, {50})):
        tile = Tile(145 - side / 2, 145 - side / 2, side, side)
        assert {round(place.height) for place in places(tile, bounds(region), summed(region), IMAGE, GRID)} == sizes


def test_a_long_region_is_several_tiles_that_overlap_by_half() -> None:
    region = box((400, 1000), 180, 100, 40, 800)
    tiles = lay_tiles(region, 40, IMAGE)
    assert {(tile.top, tile.height) for tile in tiles} == {(140, 120)}
    steps = np.diff([tile.left for tile in tiles])
    assert len(steps) > 5
    assert steps.max() <= 60


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
    assert plan.tiles == [surround(bounds(region), region.shape)] == [Tile(0, 100, 100, 300)]
    assert 0.3 < plan.masks.mean() < 0.6
    nearly_all = box((100, 100), 6, 6, 88, 88)  # touches every patch, and covers those in the corners by less than half
    plan = plan_region(nearly_all, IMAGE, GRID)
    assert [tile.height for tile in plan.tiles] == [100] * 4
    assert plan.masks.sum(1).tolist() == [61] * 4
    assert predicted(plan)[nearly_all].all()


@pytest.mark.parametrize(("region", "words"), [(np.zeros, "empty"), (np.ones, "too little")])
def test_nothing_and_everything_are_refused(region: type, words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan_region(region((30, 40), dtype=bool), IMAGE, GRID)


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
    assert predicted(plan)[region].all()


# --- thin pieces ---


@pytest.mark.parametrize(("every", "thick"), [(6, 1), (6, 2), (12, 2), (20, 9), (30, 12)])
def test_every_pixel_of_a_hatched_region_is_in_a_masked_patch_of_a_tile(every: int, thick: int) -> None:
    """Nothing is stretched, some of each tile is visible, and no mask is empty."""
    region = hatching((150, 220), every, thick)
    plan = plan_region(region, IMAGE, GRID)
    assert predicted(plan)[region].all()
    assert plan.masks.any(1).all()
    assert not plan.masks.all(1).any()
    if thick < every / 2:  # no patch is covered by half
        assert (1 - plan.masks.mean(1) >= LEAST_VISIBLE).all()
        assert {tile.height / tile.width for tile in plan.tiles} == {1.0}


def test_lines_that_cover_no_patch_by_half_are_masked_in_turns() -> None:
    region = np.zeros((64, 64), dtype=bool)
    region[::6] = True
    plan = plan_region(region, IMAGE, GRID)
    assert plan.tiles == [Tile(0, 0, 64, 64)] * 4
    assert all(plan.in_turns)
    assert plan.masks.sum(1).tolist() == [16] * 4
    assert (plan.masks.sum(0) == 1).all()  # each patch once


def test_patches_that_a_region_covers_by_half_are_masked_in_every_turn() -> None:
    region = hatching((64, 64), 10)
    region[:8, :16] = True
    found = turns(Tile(0, 0, 64, 64), region, summed(region), GRID)
    assert (np.sum([view.mask for view in found], 0) == np.where(np.arange(64).reshape(8, 8) < 2, 4, 1)).all()


def test_a_hatched_corner_does_not_change_the_tiles_of_the_rest() -> None:
    alone = box((400, 600), 250, 400, 60, 60)
    both = alone.copy()
    both[:70, :70] = hatching((70, 70), 6)
    plans = [plan_region(region, IMAGE, GRID) for region in (alone, both)]
    far = [tile for tile in plans[1].tiles if tile.top > 100 or tile.left > 200]
    assert {(tile.height, tile.width) for tile in far} == {(tile.height, tile.width) for tile in plans[0].tiles}
    assert len(far) >= len(plans[0].tiles)
    assert max(tile.height for tile in plans[1].tiles) == 180
    assert predicted(plans[1])[both].all()


def test_only_the_tiles_of_one_part_are_replaced_by_a_wider_one() -> None:
    region = box((100, 1000), 0, 200, 100, 100) | box((100, 1000), 40, 900, 20, 20)
    plan = plan_region(region, IMAGE, GRID)
    assert plan.tiles[0] == Tile(0, 100, 100, 300)
    assert len(plan.tiles) > 1
    assert all(tile.left > 800 and tile.height <= 100 for tile in plan.tiles[1:])
    assert predicted(plan)[region].all()


def test_no_tile_is_without_a_masked_patch() -> None:
    """Tiles are as large as the blob asks for, and a thin scratch far away can lie at the rim of one."""
    region = box((427, 640), 100, 100, 80, 100) | box((427, 640), 400, 500, 2, 100)
    plan = plan_region(region, IMAGE, GRID)
    assert plan.masks.any(1).all()
    assert predicted(plan)[region].all()


def test_a_shift_leaves_nothing_out_at_the_edge_of_the_picture() -> None:
    region = box((200, 300), 1, 100, 10, 10)  # at a shift of 3 pixels fewer patches are touched, without the first rows
    plan = plan_region(region, IMAGE, GRID)
    assert predicted(plan)[region].all()


def test_tiles_that_overlap_are_one_group_also_through_others() -> None:
    tiles = [Tile(0, left, 10, 10) for left in (0, 5, 10, 30, 35)] + [Tile(9, 44, 10, 10)]
    assert overlapping(tiles) == [tiles[:3], tiles[3:]]
    assert overlapping([]) == []


# --- time ---


def test_many_thin_lines_over_a_large_picture_need_no_more_than_so_many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_module, "MOST_TILES", 20)
    region = hatching((700, 900), 60, 2)
    tiles = lay_tiles(region, 2, IMAGE)
    assert 5 < len(tiles) <= 20
    assert tiles[0].height > 64
    covered = np.zeros_like(region)
    for tile in tiles:
        covered[tile.pixels] = True
    assert covered[region].all()


def test_a_plan_looks_at_the_whole_region_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each tile: over a large picture that takes minutes."""
    looked = []

    def count(region: Region) -> tuple[tuple[int, int], tuple[int, int]]:
        looked.append(region.shape)
        return bounds(region)

    monkeypatch.setattr(tiles_module, "bounds", count)
    plan = plan_region(hatching((400, 400), 40), IMAGE, GRID)
    assert len(plan.tiles) > 100
    assert len(looked) <= 3
