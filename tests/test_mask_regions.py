"""Masks from regions, against counting pixels."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from crate_mae.errors import UserError
from crate_mae.mask_regions import cover_by_picture, cover_by_rectangle, mask_where_covered, read_marks

GRID = (3, 4)


def test_a_rectangle_covers_what_a_fine_raster_of_it_covers() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        (left, right), (top, bottom) = torch.rand(2, 2, generator=generator).sort().values.tolist()
        y, x = ((torch.arange(size, dtype=torch.float64) + 0.5) / size for size in (900, 1200))
        inside = ((y > top) & (y < bottom))[:, None] & ((x > left) & (x < right))
        counted = inside.double().reshape(3, 300, 4, 300).mean((1, 3))
        torch.testing.assert_close(cover_by_rectangle((left, top, right, bottom), GRID), counted, atol=0.01, rtol=0)


def test_a_picture_of_any_size_covers_by_area() -> None:
    marks = torch.rand(7, 10, generator=torch.Generator().manual_seed(1)) < 0.4
    fine = marks.repeat_interleave(12, 0).repeat_interleave(12, 1)  # 84 x 120 divides into 3 x 4
    counted = fine.double().reshape(3, 28, 4, 30).mean((1, 3))
    torch.testing.assert_close(cover_by_picture(marks, GRID), counted)
    small = torch.tensor([[True, False]])  # fewer pixels than patches
    torch.testing.assert_close(cover_by_picture(small, GRID), torch.tensor([[1.0, 1, 0, 0]] * 3).double())


def test_the_threshold_is_a_share_of_a_patch() -> None:
    coverage = cover_by_rectangle((0.1, 0, 0.45, 1), GRID)  # 0.6 of the first column, 0.8 of the second
    columns = {0.5: [1, 1, 0, 0], 0.6: [1, 1, 0, 0], 0.7: [0, 1, 0, 0], 0.01: [1, 1, 0, 0]}
    for threshold, expected in columns.items():
        assert mask_where_covered(coverage, threshold).int().tolist() == expected * 3
    for threshold in (0, 1.1, float("nan")):
        with pytest.raises(UserError, match="above 0 and up to 1"):
            mask_where_covered(coverage, threshold)
    with pytest.raises(UserError, match=r"covers no patch by 0.9 of its area, the most is 0.8"):
        mask_where_covered(coverage, 0.9)
    with pytest.raises(UserError, match="leaves nothing"):
        mask_where_covered(cover_by_rectangle((0, 0, 1, 1), GRID))


@pytest.mark.parametrize("rectangle", [(0.5, 0, 0.5, 1), (0, 0.6, 1, 0.4), (-0.1, 0, 1, 1), (10, 10, 50, 50)])
def test_a_rectangle_is_left_top_right_bottom_in_shares(rectangle: tuple[float, float, float, float]) -> None:
    with pytest.raises(UserError, match="from 0 to 1"):
        cover_by_rectangle(rectangle, GRID)


def test_what_a_picture_marks(tmp_path: Path) -> None:
    where = np.array([[1, 0, 0], [0, 1, 1]], dtype=bool)
    gray = np.where(where, 200, 30).astype(np.uint8)
    clear = np.zeros((2, 3, 4), dtype=np.uint8)  # black, and opaque where marked
    clear[..., 3] = 255 * where
    opaque = np.dstack([gray] * 3 + [np.full_like(gray, 255)])  # has an alpha that says nothing
    pictures = {
        "gray": Image.fromarray(gray),
        "two levels": Image.fromarray(where),
        "colour": Image.fromarray(np.dstack([gray] * 3)),
        "16 bits": Image.fromarray(gray.astype(np.uint16) * 257),
        "clear": Image.fromarray(clear),
        "opaque": Image.fromarray(opaque),
        "palette": Image.fromarray(gray).convert("P"),
    }
    for name, picture in pictures.items():
        picture.save(tmp_path / "mask.png")
        assert read_marks(tmp_path / "mask.png").tolist() == where.tolist(), name
