from itertools import pairwise

import numpy as np
import pytest
import torch

from crate_mae.analysis.completed_images import MASKED_COLOUR, RatioWatch, completion_panels, completions_at
from tests.conftest import small_model


def test_panels_show_what_they_say() -> None:
    model = small_model("crate_mae_tiny", mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    images = torch.randn(2, 3, 12, 24)
    mask = torch.zeros(2, 12, dtype=torch.bool)
    mask[0, 5] = True  # row 1, column 1 of a 3 x 4 grid of 4 x 6 pixels
    panels = completion_panels(model, images, mask)
    hole = np.s_[4:8, 6:12]
    assert (panels.masked[0][hole] == np.array(MASKED_COLOUR)).all()
    outside = panels.masked[0] != panels.original[0]
    outside[hole] = False
    assert not outside.any()
    assert np.array_equal(panels.masked[1], panels.original[1])
    assert np.array_equal(panels.completed[1], panels.original[1])
    assert panels.errors[1] == 0
    out = model(images, mask)
    np.testing.assert_allclose(panels.errors[0], out.loss.item(), rtol=1e-6)
    expected = (out.completed[0] * 0.25 + 0.5).clamp(0, 1).permute(1, 2, 0).detach().numpy()
    np.testing.assert_allclose(panels.completed[0], expected, atol=0.51 / 255)


def test_gray_images_get_a_mask_in_colour() -> None:
    model = small_model("crate_mae_tiny", channels=1)
    panels = completion_panels(model, torch.randn(1, 1, 12, 24), torch.arange(12) < 6)
    assert panels.masked[0].shape == (12, 24, 3)
    assert panels.original[0].shape == (12, 24, 1)
    assert (panels.masked[0][:4, :6] == np.array(MASKED_COLOUR)).all()


def test_several_ratios_mask_more_and_more_of_the_same() -> None:
    model, images = small_model("crate_mae_tiny"), torch.randn(4, 3, 12, 24)
    rows = completions_at(model, images, seed=3)
    hidden = [np.stack([(image == np.array(MASKED_COLOUR)).all(-1) for image in row.masked]) for row in rows]
    shares = [where.mean((1, 2)) for where in hidden]
    for share, count in zip(shares, (3, 6, 9, 11), strict=True):
        np.testing.assert_allclose(share, count / 12)
    for fewer, more in pairwise(hidden):
        assert (more | ~fewer).all()
    assert all(np.array_equal(a, b) for a, b in zip(rows[0].original, rows[3].original, strict=True))


def test_errors_of_a_stream_are_those_of_its_images() -> None:
    model, images = small_model("crate_mae_tiny"), torch.randn(5, 3, 12, 24)
    watch = RatioWatch(model, seed=3, ratios=(0.5, 0.9))
    watch.add(images)
    result = watch.result()
    panels = completions_at(model, images, (0.5, 0.9), seed=3)
    for index, (ratio, masked) in enumerate([(0.5, 6), (0.9, 11)]):
        assert (result.ratios[index], result.masked[index]) == (ratio, masked)
        assert result.error.mean[index] == pytest.approx(np.mean(panels[index].errors))
        assert result.error.spread[index] == pytest.approx(np.std(panels[index].errors), rel=1e-4)
    watch.add(images)
    assert watch.result().images == 10
    assert watch.result().error.mean[0] != result.error.mean[0]  # other masks for other images
