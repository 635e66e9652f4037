import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crate_mae.errors import UserError
from crate_mae.tokens import (
    Mask,
    interpolate_table,
    masked_count,
    normalise_patches,
    patchify,
    random_mask,
    sine_cosine_table,
    unpatchify,
)
from tests.conftest import small_model

CPU = torch.device("cpu")


def test_patchify_takes_the_pixels_that_it_should() -> None:
    images = torch.randn(2, 3, 8, 12)
    patches = patchify(images, (4, 6))
    for row in range(2):
        for column in range(2):
            block = images[:, :, 4 * row : 4 * row + 4, 6 * column : 6 * column + 6]
            expected = block.permute(0, 2, 3, 1).reshape(2, -1)  # (row, column, channel)
            assert torch.equal(patches[:, 2 * row + column], expected)
    assert torch.equal(unpatchify(patches, (4, 6), (2, 2)), images)


def test_normalised_patches_use_the_unbiased_variance() -> None:
    patches = torch.randn(2, 3, 10) * 3 + 1
    expected = torch.stack([(p - p.mean()) / (p.var(unbiased=True) + 1e-6) ** 0.5 for p in patches.flatten(0, 1)])
    torch.testing.assert_close(normalise_patches(patches).flatten(0, 1), expected)


@given(st.integers(2, 300), st.floats(0, 1))
def test_the_masked_count_is_rounded_and_leaves_both_kinds(num_patches: int, ratio: float) -> None:
    count = masked_count(num_patches, ratio)
    assert 1 <= count <= num_patches - 1
    assert count == round(ratio * num_patches) or count in (1, num_patches - 1)


def test_random_masks_come_from_the_generator_alone() -> None:
    def draw(seed: int) -> torch.Tensor:
        return random_mask(64, 10, 0.75, generator=torch.Generator().manual_seed(seed))

    torch.manual_seed(1)
    first = draw(0)
    torch.manual_seed(2)
    assert torch.equal(first, draw(0))
    assert not torch.equal(first, draw(1))
    assert first.dtype == torch.bool
    assert (first.sum(1) == 8).all()  # round(7.5) = 8
    assert first.float().mean(0).std() < 0.12  # every patch is masked about as often


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_outside_zero_to_one_is_an_error(ratio: float) -> None:
    with pytest.raises(UserError, match="ratio"):
        random_mask(1, 10, ratio)


def test_one_patch_can_t_be_masked() -> None:
    with pytest.raises(UserError, match="smaller patch"):
        random_mask(1, 1, 0.5)


def test_take_and_put_are_inverse_with_unequal_counts() -> None:
    masked = torch.tensor([[True, False, True, False, False], [True, True, True, False, True]])
    mask = Mask.of(masked, 2, 5, CPU)
    patches = torch.randn(2, 5, 3)
    visible = mask.take(patches)
    assert torch.equal(visible[0], patches[0, [1, 3, 4]])
    assert torch.equal(visible[1, :1], patches[1, [3]])
    assert mask.present is not None
    assert mask.present.tolist() == [[True, True, True], [True, False, False]]
    fill = torch.tensor([7.0, 8.0, 9.0])
    back = mask.put(visible, fill)
    assert torch.equal(back[~masked], patches[~masked])
    assert (back[masked] == fill).all()


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.zeros(4, dtype=torch.bool), "shape"),
        (torch.zeros(3, 5, dtype=torch.bool), "shape"),
        (torch.zeros(1, 2, 5, dtype=torch.bool), "shape"),
        (torch.ones(5, dtype=torch.bool), "nothing visible"),
        (torch.zeros(5), "boolean"),
        ([True, False, False, False, False], "boolean tensor, True where masked, not list"),
        (None, "not NoneType"),
    ],
)
def test_bad_masks_get_one_sentence(mask: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Mask.of(mask, 2, 5, CPU)


def test_the_sine_cosine_table_place_by_place() -> None:
    grid, dim = (3, 5), 16
    table = sine_cosine_table(grid, dim)
    for row in range(3):
        for column in range(5):
            vector = table[row * 5 + column].double()
            for part, place in [(vector[:8], column), (vector[8:], row)]:  # the column comes first
                angles = place / 10000.0 ** (torch.arange(4, dtype=torch.float64) / 4)
                torch.testing.assert_close(part, torch.cat([angles.sin(), angles.cos()]), rtol=0, atol=1e-6)


def test_a_table_needs_a_dim_that_four_divides() -> None:
    with pytest.raises(UserError, match="learned"):
        sine_cosine_table((2, 2), 6)


def test_interpolation_keeps_a_table_of_the_same_grid_and_smooth_ones_nearly() -> None:
    table = sine_cosine_table((8, 8), 16)
    assert interpolate_table(table, (8, 8), (8, 8)) is table
    rows = torch.linspace(0, 1, 8)[:, None].expand(8, 8).reshape(64, 1)
    finer = interpolate_table(rows, (8, 8), (16, 4)).reshape(16, 4)
    assert (finer.diff(dim=0) > 0).all()  # a slope stays one
    torch.testing.assert_close(finer[:, 0], finer[:, 3])


@pytest.mark.parametrize("masked", [(9, 9), (9, 5)], ids=["equal counts", "unequal"])
def test_a_mask_from_the_cpu_is_counted_there(masked: tuple[int, int]) -> None:
    # Nothing can be read back from the meta device: a pass that would wait for its device fails on it.
    model = small_model("crate_mae_tiny_visible").to("meta")
    mask = torch.arange(12).expand(2, -1) < torch.tensor(masked)[:, None]
    assert model(torch.empty(2, 3, 12, 24, device="meta"), mask).prediction.shape == (2, 12, 72)
