"""What is shown, against the library and against slow computation of its own, without a server."""

import base64
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from crate_mae import MaskedAutoencoder, UserError, random_mask
from crate_mae.analysis.attention import attention_maps
from crate_mae.analysis.components import components
from crate_mae.theory import rates
from crate_mae.tokens import normalise_patches
from crate_mae.web import views
from crate_mae.web.samples import samples
from crate_mae.web.views import choose_mask
from tests.conftest import small_model
from tests.web.conftest import CRATE, SERVED, VIT, photo

BOTH = pytest.mark.parametrize("model", [CRATE, VIT], ids=["crate", "vit"])


def picture_in(url: str) -> Image.Image:
    return Image.open(BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))


@BOTH
@torch.no_grad()
def test_a_completion_is_the_models_and_its_error_that_of_the_masked_patches(model: MaskedAutoencoder) -> None:
    mask = choose_mask(model, "0110" * 4)
    answer = views.complete(model, photo(), mask)
    image = model.preprocess(photo())[None]
    made = model(image, mask)
    error = (made.prediction - model.patches(image)).square().mean(-1)[mask].mean()
    assert answer.error == pytest.approx(error.item(), rel=1e-5)
    assert (answer.mask, answer.masked_patches, answer.patches) == ("0110" * 4, 8, 16)
    shown = np.asarray(picture_in(answer.completed))
    assert np.array_equal(shown, np.asarray(model.to_image(model.complete(image, mask)[0])))
    hidden = np.asarray(picture_in(answer.masked))[:2, 2:4]
    assert (hidden == [178, 199, 230]).all()  # the one colour of masked patches


def test_a_mask_is_drawn_as_the_command_draws_it() -> None:
    for ratio, seed in [(0.5, 3), (0.9, 0)]:
        drawn = random_mask(1, 16, ratio, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(choose_mask(CRATE, None, ratio, seed), drawn)


def test_nothing_masked_has_no_error_and_all_masked_is_one() -> None:
    answer = views.complete(CRATE, photo(), choose_mask(CRATE, "0" * 16))
    assert answer.error is None
    assert answer.masked_patches == 0
    with pytest.raises(UserError, match="nothing visible"):
        views.complete(CRATE, photo(), choose_mask(CRATE, "1" * 16))
    with pytest.raises(UserError, match="15 entries"):
        choose_mask(CRATE, "1" * 15)


@BOTH
@torch.no_grad()
def test_the_numbers_of_a_layer_are_the_theorys_of_this_very_picture(model: MaskedAutoencoder) -> None:
    answer = views.layers(model, photo())
    tokens = model.embed(model.preprocess(photo())[None])
    for block, step, place in zip(model.encoder.blocks, model.encoder.steps(tokens), range(2), strict=True):
        half = step.half.double().mT
        assert answer.curves["rate"][place] == pytest.approx(rates.coding_rate(half, 0.1).item(), rel=1e-6)
        assert answer.curves["sparsity"][place] == (step.code != 0).double().mean().item()
        if block.bases is not None:
            rate = rates.compression_rate(half, block.bases.double(), 0.1).item()
            assert answer.curves["compression"][place] == pytest.approx(rate, rel=1e-6)


def test_what_an_ordinary_model_has_not_is_said() -> None:
    answer = views.layers(VIT, photo())
    assert answer.curves.keys() == {"rate", "sparsity"}
    assert "this family has none" in answer.left_out["compression"]
    assert not views.layers(CRATE, photo()).left_out


@BOTH
@pytest.mark.parametrize("convention", ["paper", "authors"])
def test_attention_and_components_are_the_librarys_at_that_layer(model: MaskedAutoencoder, convention: str) -> None:
    image = model.preprocess(photo())[None]
    for number in (1, 2):
        answer = views.layer(model, photo(), number, convention, threshold=0.1)
        expected = attention_maps(model, image, number, convention)
        assert answer.layer == number
        assert np.array_equal(answer.attention, expected.maps[0])
        assert np.array_equal(answer.on_itself, expected.on_itself[0])
        assert np.sum(answer.attention, (1, 2)) + answer.on_itself == pytest.approx(1)
        found = components(model, image, number, 0.1)
        assert answer.components is not None
        assert np.array_equal(answer.components.kept, found.kept[0])
        assert np.array_equal(answer.components.energy, found.energy)
        for row, (kept, colours) in enumerate(zip(found.kept[0], found.colours[0], strict=True)):
            for column, (keep, colour) in enumerate(zip(kept, colours, strict=True)):
                shown = answer.components.colours[row][column]
                assert shown == (pytest.approx(colour.tolist()) if keep else None)


def test_no_components_is_no_reason_to_show_no_attention() -> None:
    answer = views.layer(CRATE, photo(), 1, threshold=10)
    assert answer.components is None
    assert "keeps 0 of 16 patches, fewer than three" in (answer.components_missing or "")
    assert len(answer.attention) == 4
    for number in (0, 3):
        with pytest.raises(UserError, match="layers 1 to 2"):
            views.layer(CRATE, photo(), number)


@BOTH
def test_a_picture_as_the_model_takes_it_gives_the_same_numbers(model: MaskedAutoencoder) -> None:
    taken = Image.open(BytesIO(views.original(model, photo())))
    assert taken.size == (8, 8)
    assert torch.equal(model.preprocess(taken), model.preprocess(photo()))
    assert views.layers(model, taken) == views.layers(model, photo())


def test_the_picture_to_keep_shows_every_model_and_knows_its_mask() -> None:
    masks = [choose_mask(CRATE, None, 0.5, 7)] * 2
    both = Image.open(BytesIO(views.sheet(SERVED, [photo()] * 2, masks, 0.5, 7)))
    one = Image.open(BytesIO(views.sheet(SERVED[:1], [photo()], masks[:1])))
    assert both.format == one.format == "PNG"
    assert both.width / one.width == pytest.approx(4 / 3, abs=0.1)
    assert one.height > 400
    assert (both.text["mask ratio"], both.text["seed"]) == ("0.5", "7")
    assert both.text["mask"] == one.text["mask"] == views.as_text(masks[0])
    assert "seed" not in one.text
    answer = views.complete(CRATE, photo(), masks[0])
    reference = f"the mean patch gives {answer.mean_patch_error:.4f}"
    assert f"CRATE-MAE white-box: error {answer.error:.4f}; {reference}" in both.text["Description"]


def test_the_picture_to_keep_has_the_models_pixels_and_stripes_where_masked() -> None:
    mask = choose_mask(CRATE, "01" * 8)
    found = np.asarray(Image.open(BytesIO(views.sheet(SERVED[:1], [photo()], [mask]))))
    taken = np.asarray(CRATE.to_image(CRATE.preprocess(photo())))
    top = found.shape[0] - 440 - 4 - 24 - 24  # below each image a line of words
    left = {name: 24 + number * 464 for number, name in enumerate(["masked", "completed", "original"])}
    for row in range(8):
        for column in range(8):
            y, x = top + 55 * row + 27, 55 * column + 27
            assert (found[y, left["original"] + x] == taken[row, column]).all()
            if column % 4 < 2:  # visible
                assert (found[y, left["masked"] + x] == taken[row, column]).all()
    hidden = found[top : top + 110, left["masked"] + 110 : left["masked"] + 220]
    assert len(np.unique(hidden.reshape(-1, 3), axis=0)) == 2


def test_any_name_can_be_written() -> None:
    for name in ("a folder with $\\frac$ in its name", "文件夹" * 40, "x" * 500, ""):
        views.sheet([views.Served(name, CRATE)], [photo()], [choose_mask(CRATE, "0" * 16)])


@BOTH
@torch.no_grad()
def test_the_errors_patch_by_patch_and_what_the_mean_patch_would_give(model: MaskedAutoencoder) -> None:
    mask = choose_mask(model, "0110" * 4)
    answer = views.complete(model, photo(), mask)
    patches = model.patches(model.preprocess(photo())[None])[0].double()
    filled = torch.stack([patches[index] for index in range(16) if not mask[0, index]]).mean(0)
    reference = [((patches[index] - filled) ** 2).mean().item() for index in range(16) if mask[0, index]]
    assert answer.mean_patch_error == pytest.approx(sum(reference) / 8, rel=1e-5)
    each = [error for row in answer.errors for error in row]
    assert [error is not None for error in each] == mask[0].tolist()
    assert sum(error for error in each if error is not None) / 8 == pytest.approx(answer.error, rel=1e-5)
    nothing = views.complete(model, photo(), choose_mask(model, "0" * 16))
    assert nothing.mean_patch_error is None
    assert nothing.errors == [[None] * 4] * 4


@torch.no_grad()
def test_the_mean_patch_of_a_model_with_normalised_targets_is_of_these() -> None:
    model = small_model("crate_mae_tiny", norm_pix_loss=True)
    mask = random_mask(1, model.num_patches, 0.5, generator=torch.Generator().manual_seed(0))
    answer = views.complete(model, photo(), mask)
    targets = normalise_patches(model.patches(model.preprocess(photo())[None]))[0].double()
    filled = targets[~mask[0]].mean(0)
    assert answer.mean_patch_error == pytest.approx((targets[mask[0]] - filled).square().mean().item(), rel=1e-5)


def test_samples_fit_the_model() -> None:
    digits = samples(CRATE.config)
    assert list(digits) == [f"digit-{label}" for label in range(10)]
    assert len({one.picture.tobytes() for one in digits.values()}) == 10
    photos = samples(small_model("crate_mae_tiny").config)  # 12 x 24 pixels
    assert list(photos) == ["temple", "flower", "shapes"]
    for one in photos.values():
        assert one.picture.size == (640, 320)
        assert one.picture.convert("L").getextrema() != (0, 0)
