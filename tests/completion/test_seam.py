"""The correction at a region's border against a direct solution of Laplace's equation."""

import numpy as np
import pytest
from jaxtyping import Float
from scipy.sparse import lil_matrix
from scipy.sparse.linalg import spsolve

from crate_mae.completion.mask_regions import Region
from crate_mae.completion.seam import without_seam
from crate_mae.completion.tiles import bounds


def region_of(shape: str, size: tuple[int, int]) -> Region:
    region = np.zeros(size, dtype=bool)
    height, width = size
    region[height // 4 : height // 2, width // 5 : width // 2] = True
    if shape == "corner":
        region[height // 3 :, width // 3 :] = True
    if shape == "specks":
        region &= np.random.default_rng(0).random(size) > 0.1
    if shape == "ring":
        region[height // 3 : height // 3 + 3, width // 4 : width // 3] = False
    return region


def waves(height: int, width: int) -> Float[np.ndarray, "H W 3"]:
    y, x = np.mgrid[:height, :width] / max(height, width)
    return np.stack([0.5 + 0.4 * np.sin(9 * x + 5 * y), 0.5 + 0.4 * np.cos(7 * y), x * y], -1).astype(np.float32)


def solved(
    picture: Float[np.ndarray, "H W c"], region: Region, whole: Float[np.ndarray, "H W c"]
) -> Float[np.ndarray, "n c"]:
    """The fill plus the correction on the region's pixels, from one linear system."""
    places = np.argwhere(region)
    number = {tuple(place): index for index, place in enumerate(places)}
    matrix, right = lil_matrix((len(places), len(places))), np.zeros((len(places), picture.shape[2]))

    def around(row: int, column: int) -> list[tuple[int, int]]:
        four = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        return [place for place in four if all(0 <= p < side for p, side in zip(place, region.shape, strict=True))]

    for index, place in enumerate(places):
        for other in around(*place):
            matrix[index, index] += 1
            if region[other]:
                matrix[index, number[other]] = -1
            else:
                continued = np.mean([whole[near] for near in around(*other) if region[near]], 0)
                right[index] += picture[other] - continued
    return whole[region] + spsolve(matrix.tocsc(), right)


@pytest.mark.parametrize("shape", ["rectangle", "corner", "specks", "ring"])
@pytest.mark.parametrize("size", [(40, 60), (61, 47)])
def test_the_correction_is_harmonic(shape: str, size: tuple[int, int]) -> None:
    picture, region = waves(*size), region_of(shape, size)
    whole = waves(*size)[::-1, ::-1] * 0.5
    box = tuple(slice(*side) for side in bounds(region))
    result = without_seam(picture, region, whole[box])
    expected = solved(picture, region, whole)
    assert np.abs(expected - whole[region]).max() > 0.2  # there is something to correct
    tolerance = 0.04 if shape == "corner" else 0.005  # along the picture's edge it converges slowly
    np.testing.assert_allclose(result[region[box]], expected, atol=tolerance)


def test_parts_that_lie_far_apart_are_corrected_as_one_would_be() -> None:
    picture, region = waves(300, 400), np.zeros((300, 400), dtype=bool)
    region[10:30, 10:40] = region[220:260, 330:400] = region[222, 200:220] = True
    box = tuple(slice(*side) for side in bounds(region))
    whole = waves(300, 400)[::-1, ::-1] * 0.5
    result = without_seam(picture, region, whole[box])
    np.testing.assert_allclose(result[region[box]], solved(picture, region, whole), atol=0.01)


def test_a_fill_of_the_wrong_brightness_is_set_right() -> None:
    """The picture plus a constant comes back as the picture, up to the continuation by one pixel."""
    picture, region = waves(80, 100), region_of("corner", (80, 100))
    box = tuple(slice(*side) for side in bounds(region))
    result = without_seam(picture, region, picture[box] + 0.3)
    np.testing.assert_allclose(result[region[box]], picture[region], atol=0.1)


def test_what_lies_in_the_region_does_not_matter() -> None:
    picture, region = waves(40, 60), region_of("ring", (40, 60))
    box = tuple(slice(*side) for side in bounds(region))
    other = picture.copy()
    other[region] = np.nan
    fill = np.zeros_like(picture[box])
    np.testing.assert_array_equal(without_seam(other, region, fill), without_seam(picture, region, fill))


def test_a_region_without_a_border_is_left_as_it_is() -> None:
    fill = waves(8, 9)
    np.testing.assert_array_equal(without_seam(np.ones((8, 9, 3), np.float32), np.ones((8, 9), bool), fill), fill)
