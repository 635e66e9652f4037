"""Layer by layer: each number against the analysis and a probe by hand, and their table."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from crate_mae import UserError
from crate_mae.analysis.layerwise import layer_curves
from crate_mae.bench.race import features, layers
from crate_mae.bench.race.images import RaceImages, batch
from crate_mae.bench.race.job import Job
from crate_mae.bench.race.measurements import measurements
from crate_mae.bench.race.recipes import CRATE_MAE, PAPER_FORM, VIT_MAE, Course, Recipe, chosen
from crate_mae.bench.race.table import layers_markdown
from crate_mae.models.autoencoder import MaskedAutoencoder

SMALL = {"dim": 16, "heads": 2, "depth": 3, "decoder_dim": 16, "decoder_depth": 1, "decoder_heads": 2}
COURSE = Course("toys", 8, 2, stored_size=8)


@pytest.fixture
def images() -> RaceImages:
    """Bright and dark images."""
    rng = np.random.default_rng(0)
    labels = [np.arange(count) % 2 for count in (60, 30)]
    train, test = (
        (rng.integers(0, 128, (len(of), 8, 8, 3)) + 127 * of[:, None, None, None]).astype(np.uint8) for of in labels
    )
    return RaceImages(train, labels[0], np.arange(60) < 3, test, labels[1], ("dark", "bright"))


def model_of(recipe: Recipe, seed: int = 0) -> MaskedAutoencoder:
    config = COURSE.config(replace(recipe, settings={**recipe.settings, **SMALL}))
    return MaskedAutoencoder(config, torch.Generator().manual_seed(seed)).eval()


def ridge(train: np.ndarray, labels: np.ndarray, test: np.ndarray, truth: np.ndarray) -> float:
    """By scikit-learn, on standardised features."""
    from sklearn.linear_model import RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    found = RidgeClassifier(alpha=1e-2 * len(train)).fit(scaler.transform(train), labels)
    return 100 * float(found.score(scaler.transform(test), truth))


@torch.no_grad()
def test_each_layer_against_the_analysis_and_scikit_learn(images: RaceImages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "EVALUATED_AT_ONCE", 7)
    model, shares = model_of(CRATE_MAE), []
    found = layers.by_layer(model, images, 5, lambda share, note: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1
    for weights, one in (("trained", model), ("untrained", model_of(CRATE_MAE, seed=5))):
        train, test = (batch(pixels, np.arange(len(pixels)), one.config) for pixels in (images.train, images.test))
        curves = layer_curves(one.encoder, [one.embed(test)])
        for name in layers.WATCHED:
            assert found[weights][name] == pytest.approx(curves[name].mean.tolist(), rel=1e-5, abs=1e-4)
        for layer in (1, 2, 3):
            expected = ridge(
                one.features(train, layer).numpy(),
                images.train_labels,
                one.features(test, layer).numpy(),
                images.test_labels,
            )
            assert found[weights]["probe"][layer - 1] == pytest.approx(expected)
    assert found["trained"] != found["untrained"]


def test_a_family_without_subspaces_is_probed(images: RaceImages) -> None:
    found = layers.by_layer(model_of(VIT_MAE), images, 0, lambda share, note: None)
    assert found["trained"].keys() == {"sparsity", "probe"}


def test_the_paper_s_form_is_the_same_model_but_for_the_skip() -> None:
    ours, paper = (COURSE.config(recipe) for recipe in (CRATE_MAE, PAPER_FORM))
    assert replace(ours, encoder_skip="none") == paper != ours
    assert replace(PAPER_FORM, title=CRATE_MAE.title, settings=CRATE_MAE.settings) == CRATE_MAE


def test_a_reference_is_not_fine_tuned(tmp_path: Any) -> None:
    assert list(measurements(COURSE, "paper-form")) == ["loss", "features", "layers"]
    assert {"layers", "finetune-10"} <= set(measurements(COURSE, "crate-mae"))
    assert Job("paper-form", COURSE, PAPER_FORM, 0, 1.0, tmp_path).steps[-1] == "layers"


def test_a_reference_races_on_one_course() -> None:
    assert list(chosen(())["cifar10"]) == ["crate-mae", "crate-mae-narrow", "vit-mae", "paper-form"]
    assert list(chosen(())["imagenette"]) == ["crate-mae", "crate-mae-narrow", "vit-mae"]
    assert list(chosen(("paper-form",))) == ["cifar10"]
    with pytest.raises(UserError, match="paper-form does not race on imagenette"):
        chosen(("imagenette", "paper-form"))


def test_the_table_has_a_line_for_each_quantity_and_its_change() -> None:
    def result(contestant: str, seed: int, **trained: list[float]) -> dict[str, Any]:
        numbers = {"trained": trained, "untrained": {"probe": [40.0, 41.0]}}
        return {"data": "toys", "contestant": contestant, "seed": seed, "layers": numbers}

    results = [
        result("A", 0, compression=[600.0, 500.0], objective_step=[1.0, -2.0], sparsity=[0.5, 0.4], probe=[50.0, 52.0]),
        result("A", 1, compression=[602.0, 504.0], objective_step=[1.0, -2.0], sparsity=[0.5, 0.4], probe=[50.0, 52.0]),
        result("B", 0, sparsity=[1.0, 1.0], probe=[30.0, 20.0]),
        {"data": "toys", "contestant": "C", "seed": 0},
    ]
    machine = {"commit": "c", "cpu": "a CPU", "torch": "2"}
    record = {"command": "crate-mae", "machine": machine, "results": results}
    text = layers_markdown(record)
    assert "| data | model | what | layer 1 | layer 2 | last - first |" in text
    assert "| toys | A | R^c of the half step | 601 ± 1 | 502 ± 3 | -99 ± 1 |" in text
    assert "| toys | A | change of the objective | +1.0 ± 0.0 | -2.0 ± 0.0 | -3.0 ± 0.0 |" in text
    assert "| toys | A | non-zero entries of the code | 0.500 ± 0.000 | 0.400 ± 0.000 | -0.100 ± 0.000 |" in text
    assert "| toys | A, untrained | probe, % | 40.0 ± 0.0 | 41.0 ± 0.0 | +1.0 ± 0.0 |" in text
    assert "| toys | B | probe, % | 30.0 | 20.0 | -10.0 |" in text
    assert "| toys | B | non-zero" not in text  # a ViT has no code
    assert "| C |" not in text
    assert layers_markdown(record | {"results": results[-1:]}) == "Not measured yet.\n"
