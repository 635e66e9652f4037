"""Random cells of a picture are the patches of its tiles."""

import numpy as np
import pytest
import torch

from crate_mae.completion.patches import coverage
from crate_mae.completion.random_cells import plan_random
from crate_mae.errors import UserError
from crate_mae.tokens import random_mask

IMAGE, GRID = (64, 64), (8, 8)


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
    expected = random_mask(1, 64, 0.75, torch.Generator().manual_seed(3)).numpy()
    assert (plan.masks == expected).all()
    assert (plan.region == expected.reshape(8, 8).repeat(16, 0).repeat(16, 1)).all()
