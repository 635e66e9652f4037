"""Regions of a picture, pixel by pixel."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crate_mae.errors import UserError
from crate_mae.mask_regions import read_marks, region_by_picture, region_by_rectangle


def test_a_rectangle_is_the_pixels_whose_centres_lie_in_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        (left, right), (top, bottom) = np.sort(rng.random((2, 2)))
        region = region_by_rectangle((left, top, right, bottom), (30, 40))
        for row in range(30):
            for column in range(40):
                inside = top <= (row + 0.5) / 30 < bottom and left <= (column + 0.5) / 40 < right
                assert region[row, column] == inside
    assert region_by_rectangle((0, 0, 1, 1), (3, 4)).all()
    assert np.argwhere(region_by_rectangle((0.4, 0.9, 0.401, 0.901), (10, 5))).tolist() == [[9, 2]]  # below a pixel


def test_marks_of_any_size_are_laid_over_the_whole() -> None:
    marks = np.random.default_rng(1).random((7, 10)) < 0.4
    assert (region_by_picture(marks, (21, 40)) == marks.repeat(3, 0).repeat(4, 1)).all()
    assert (region_by_picture(marks.repeat(3, 0).repeat(5, 1), (7, 10)) == marks).all()


def test_a_picture_that_marks_nothing_is_refused(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "black.png")
    with pytest.raises(UserError, match="marks nothing"):
        read_marks(tmp_path / "black.png")


@pytest.mark.parametrize("rectangle", [(0.5, 0, 0.5, 1), (0, 0.6, 1, 0.4), (-0.1, 0, 1, 1), (10, 10, 50, 50)])
def test_a_rectangle_is_left_top_right_bottom_as_fractions(rectangle: tuple[float, float, float, float]) -> None:
    with pytest.raises(UserError, match="from 0 to 1"):
        region_by_rectangle(rectangle, (3, 4))


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
