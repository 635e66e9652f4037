import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

import crate_mae
from crate_mae import CrateFeatures, UserError
from tests.conftest import small_model

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (5, 12, 24, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def colour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model("crate_mae_tiny").save(tmp_path_factory.mktemp("colour"))


@pytest.fixture(scope="module")
def gray(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights for 8 x 8 digits."""
    shape = {"channels": 1, "image_size": 8, "patch_size": 2, "mean": (0.3,), "std": (0.4,)}
    return small_model("crate_mae_tiny", **shape).save(tmp_path_factory.mktemp("gray"))


def by_hand(checkpoint: Path, array: np.ndarray, layer: int = -1, pool: str = "mean") -> np.ndarray:
    """Features of uint8 images of the model's own size, with nothing of ``images`` or ``preprocess``."""
    model = crate_mae.load(checkpoint)
    pixels = torch.tensor(array).reshape(len(array), *model.config.image_size, -1).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (model.config.mean, model.config.std))
    with torch.no_grad():
        return model.features((pixels - mean) / std, layer, pool).numpy()


@pytest.mark.parametrize(("layer", "pool"), [(-1, "mean"), (1, "cls"), (0, "mean")])
def test_the_features_are_the_model_s(colour: Path, layer: int, pool: str) -> None:
    features = CrateFeatures(colour, layer=layer, pool=pool, batch_size=2).fit_transform(COLOURS)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, by_hand(colour, COLOURS, layer, pool), rtol=1e-4, atol=1e-5)


def test_every_form_of_the_same_images_gives_the_same(colour: Path, tmp_path: Path) -> None:
    step = CrateFeatures(colour, batch_size=4)
    expected = step.fit_transform(COLOURS)
    pictures = [Image.fromarray(each) for each in COLOURS]
    paths = [tmp_path / f"{index}.png" for index in range(len(pictures))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    words = [str(path) for path in paths]
    forms: list[Any] = [
        COLOURS / 255,
        (COLOURS / 255).astype(np.float32),
        COLOURS.reshape(5, -1),
        COLOURS.reshape(5, -1) / 255,
        list(COLOURS),
        pictures,
        tuple(pictures),
        paths,
        words,
        [*paths[:2], *pictures[2:4], words[4]],
        np.array(words),
        np.array(paths, dtype=object),
        np.array(words, dtype=object)[:, None],  # a table's only column
    ]
    for form in forms:
        np.testing.assert_array_equal(clone(step).fit(form).transform(form), expected)
    np.testing.assert_array_equal(step.transform(words), expected)  # fitted on arrays, given paths


def test_gray_and_colour_and_size_become_what_the_model_takes(colour: Path, gray: Path) -> None:
    images = RNG.integers(0, 256, (3, 12, 24), dtype=np.uint8)
    shown = CrateFeatures(colour).fit_transform(images)
    for form in (np.repeat(images[..., None], 3, -1), images[..., None], images.reshape(3, -1)):
        np.testing.assert_array_equal(CrateFeatures(colour).fit_transform(form), shown)
    model = crate_mae.load(gray)
    with torch.no_grad():
        expected = model.features(
            torch.stack([model.preprocess(Image.fromarray(each)) for each in COLOURS]), pool="mean"
        )
    step = CrateFeatures(gray).fit(COLOURS)
    np.testing.assert_allclose(step.transform(COLOURS), expected.numpy(), rtol=1e-5)
    assert step.transform(COLOURS[:, :9, :9]).shape == (5, 16)  # other sizes than it was fitted on


def test_a_pipeline_learns_searches_clones_and_pickles(gray: Path) -> None:
    images, labels = load_digits(return_X_y=True)
    images, labels = images[:200] / 16, labels[:200]
    pipeline = make_pipeline(CrateFeatures(gray), LogisticRegression(C=100.0, max_iter=2000))
    search = GridSearchCV(pipeline, {"cratefeatures__layer": np.arange(2), "cratefeatures__pool": ["mean"]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a solver that has not come to its end
        search.fit(images, labels)
    layer = int(search.best_params_["cratefeatures__layer"])
    features = by_hand(gray, (images * 255).round().astype(np.uint8), layer)
    np.testing.assert_allclose(search.best_estimator_[0].transform(images), features, rtol=1e-4, atol=1e-5)
    assert search.score(images, labels) > 0.5  # ten classes; the weights are random
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(images), search.predict(images))
    assert clone(pipeline)[0].get_params() == pipeline[0].get_params()


def test_the_columns_have_names(gray: Path) -> None:
    step = CrateFeatures(gray).set_output(transform="default").fit(np.zeros((2, 64), dtype=np.uint8))
    assert list(step.get_feature_names_out()) == [f"cratefeatures{n}" for n in range(16)]
    assert step.n_features_in_ == 64


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (COLOURS.astype(np.float64), "floats from 0 to 255; give floats from 0 to 1"),
        (COLOURS / 127.5 - 1, "floats from -1 to 1"),
        (COLOURS.astype(np.int64), "values of int64; give uint8"),
        (COLOURS > 127, "values of bool"),
        (COLOURS[0], r"X of shape \(12, 24, 3\) may be one image"),
        (COLOURS.transpose(0, 3, 1, 2), r"24 channels; .* channels last, X.transpose\(0, 2, 3, 1\)"),
        (COLOURS[..., [0, 1]], "2 channels; give 1, 3 or 4"),
        (COLOURS[None], r"shape \(1, 5, 12, 24, 3\)"),
        (COLOURS.reshape(5, -1)[:, :100], "100 values a row, and .* 12 x 24 have 288 or 864"),
        (np.full((2, 12, 24), np.nan), "NaN"),
        (COLOURS[:0], "0 sample"),
        ([], "0 sample|Expected 2D"),
        (["missing.png"], None),
        ("photo.png", "X is one image"),
        (Image.new("L", (8, 8)), "X is one image"),
        ([Image.new("L", (8, 8)), 3], "also int"),
    ],
)
def test_what_could_mean_several_things_is_refused(colour: Path, X: Any, words: str | None) -> None:
    if words is None:
        with pytest.raises(UserError, match="no image"):
            CrateFeatures(colour).fit(X).transform(X)
        return
    with pytest.raises(ValueError, match=words):
        CrateFeatures(colour).fit(X)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layer": 3}, "no layer 3 in 2"),
        ({"layer": "last"}, "no layer 'last'"),
        ({"pool": "grid"}, "'mean', 'cls'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"checkpoint": "/nowhere/at/all"}, "/nowhere/at/all is no checkpoint"),
    ],
)
def test_wrong_settings_are_errors_of_fit(colour: Path, settings: dict[str, Any], words: str) -> None:
    step = CrateFeatures(**({"checkpoint": colour} | settings))  # the constructor only stores
    with pytest.raises(UserError, match=words):
        step.fit(COLOURS)


def test_it_tells_its_progress_where_asked(colour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = CrateFeatures(colour, batch_size=2).fit(COLOURS)
    step.transform(COLOURS)
    assert capsys.readouterr().out == ""
    step.set_params(verbose=True).transform(COLOURS)
    assert "features 3/3  5 images" in capsys.readouterr().out
    with pytest.raises(NotFittedError):
        clone(step).transform(COLOURS)


# --- scikit-learn's own checks ---


class OnTables(CrateFeatures):
    """Any table of numbers as images of 8 x 8 pixels: scikit-learn's checks know no pictures."""

    def _images(self, X: Any, config: Any, reset: bool) -> list[Any]:
        table = validate_data(self, X, reset=reset)[:, :64]
        pixels = np.zeros((len(table), 64))
        pixels[:, : table.shape[1]] = 1 / (1 + np.exp(-table))
        return [Image.fromarray(each) for each in (pixels * 255).astype(np.uint8).reshape(-1, 8, 8)]


def test_scikit_learn_s_checks_pass_on_tables_made_images(gray: Path) -> None:
    marks = check_estimator(OnTables(gray), on_skip=None)
    assert sum(mark["status"] == "passed" for mark in marks) > 35


def test_of_scikit_learn_s_checks_only_those_fail_whose_tables_are_no_images(gray: Path) -> None:
    marks = check_estimator(CrateFeatures(gray), on_fail=None, on_skip=None)
    assert sum(mark["status"] == "passed" for mark in marks) > 15
    for mark in marks:
        if mark["status"] == "failed":
            error: BaseException | None = mark["exception"]
            causes = []
            while error is not None:
                causes.append(str(error))
                error = error.__cause__ or error.__context__
            assert any(re.search("values a row|floats from -", cause) for cause in causes), mark
