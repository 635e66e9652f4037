"""One pass over a data set: what is measured, on which images, and the reason for what is missing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import crate_mae
from crate_mae import Classifier, ImageEncoder, UserError
from crate_mae.analysis.layerwise import LayerCurves
from crate_mae.analysis.subspaces import Incoherence
from crate_mae.data.open import open_dataset
from crate_mae.models.image_model import ImageModel
from crate_mae.models.zoo import untrained
from crate_mae.reports import inspect_measurements as measure
from crate_mae.reports.inspect_measurements import Inspection, Settings, inspect, one_class
from crate_mae.theory import rates
from tests.conftest import small_model
from tests.data.conftest import write


def for_digits(name: str = "crate_mae_tiny", **overrides: Any) -> crate_mae.MaskedAutoencoder:
    """A small model of gray 8 x 8 images, as many decoder layers as encoder layers."""
    shape = {"channels": 1, "image_size": (8, 8), "patch_size": (2, 2), "decoder_depth": 2}
    return small_model(name, **(shape | overrides))


def look(model: ImageModel, **settings: Any) -> Inspection:
    return inspect(model, Settings(**({"data": "digits", "images": 20} | settings)), Console(quiet=True))


@pytest.mark.parametrize("batch", [3, 20])
@torch.no_grad()
def test_the_rates_are_the_theorys_on_the_same_tokens(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "BATCH", batch)
    model = for_digits()
    found = look(model, seed=4)
    source = open_dataset("digits", "test")
    order = torch.randperm(len(source), generator=measure.sample_generator(4))[:20]
    images = torch.stack([model.preprocess(source.read(int(index))) for index in order])
    for layer, (half, *_) in enumerate(model.encoder.steps(model.embed(images))):
        U = model.encoder.blocks[layer].bases.double()
        values = rates.compression_rate(half.double().mT, U, 0.1).numpy()
        assert found.layers.encoder["compression"].mean[layer] == pytest.approx(values.mean(), rel=1e-6)
        assert found.layers.encoder["compression"].spread[layer] == pytest.approx(values.std(), rel=1e-4)
    assert (found.images, found.available) == (20, 450)


def test_all_images_are_measured_if_more_are_asked_for() -> None:
    source = open_dataset("digits", "test")
    assert len(source) == 450
    assert look(ImageEncoder(for_digits(depth=1).config), images=1000).images == 450


def test_an_autoencoder_has_everything() -> None:
    found = look(for_digits())
    layers = found.layers
    assert isinstance(layers.decoder, LayerCurves)
    assert isinstance(layers.decoder_subspaces, Incoherence)
    for part in (layers.encoder, layers.decoder, layers.undoing, found.completion):
        assert not isinstance(part, str)
        assert part.images == 20
    assert not isinstance(found.components, str)
    assert found.attention.layer == 1
    assert found.attention_authors.convention == "authors"
    assert len(found.panels) == 4
    assert found.class_name in map(str, range(10))


@torch.no_grad()
def test_the_untrained_model_has_seeded_random_weights_and_sees_the_same_images() -> None:
    model = for_digits()
    found = look(model, seed=4)
    same = look(untrained(model, 4), seed=4).layers
    for stack, expected in ((found.untrained.encoder, same.encoder), (found.untrained.decoder, same.decoder)):
        assert isinstance(stack, LayerCurves)
        assert isinstance(expected, LayerCurves)
        for name, curve in expected.curves.items():
            assert np.array_equal(stack[name].mean, curve.mean), name
    assert not np.array_equal(found.untrained.encoder["compression"].mean, found.layers.encoder["compression"].mean)
    other = look(model, seed=5)
    assert not np.array_equal(found.untrained.encoder["sparsity"].mean, other.untrained.encoder["sparsity"].mean)


@pytest.mark.parametrize("kind", ["encoder", "classifier"])
def test_without_a_decoder_the_rest_is_measured(kind: str) -> None:
    config = for_digits().config
    model = ImageEncoder(config) if kind == "encoder" else Classifier(config, ["a", "b"])
    found = look(model)
    for layers in (found.layers, found.untrained):
        for part in (layers.decoder, layers.decoder_subspaces, layers.undoing, found.completion):
            assert part == "the checkpoint holds no decoder"
        assert "compression" in layers.encoder.curves
    assert not found.panels


def test_a_vit_has_the_quantities_that_apply() -> None:
    found = look(for_digits("vit_mae_base_he", decoder_depth=1, image_size=(8, 8)))
    for layers in (found.layers, found.untrained):
        assert layers.encoder.curves.keys() == {"rate", "sparsity", "gini"}
        assert layers.encoder_subspaces == layers.decoder_subspaces == "this family has no subspaces U"
        assert layers.undoing == "2 encoder layers and 1 decoder layers do not pair up"
    assert not isinstance(found.completion, str)


def test_layer_and_threshold_are_applied() -> None:
    found = look(for_digits(), layer=2, threshold=0.0)
    assert found.attention.layer == 2
    assert not isinstance(found.components, str)
    assert (found.components.layer, found.components.cut) == (2, 0)
    assert "choose a lower one" in str(look(for_digits(), threshold=1e3).components)


def test_one_class_and_images_of_it() -> None:
    source = open_dataset("digits", "test")
    order = np.random.default_rng(0).permutation(450)
    name, members = one_class(source, order[:30], order)
    labels = [source.label(int(index)) for index in order[:30]]
    assert labels.count(int(name or -1)) == max(labels.count(label) for label in range(10))
    assert len(members) == 8
    assert {source.label(int(index)) for index in members} == {int(name or -1)}


def test_images_without_labels_count_as_one_class(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path / "photos" / f"{number}.jpg", number)
    found = look(small_model("crate_mae_tiny"), data=str(tmp_path / "photos"), split="train")
    assert found.class_name is None
    assert found.available < 40
    assert len(found.coloured) == 8
    assert found.coloured[0].shape == (12, 24, 3)


def test_all_images_of_a_folder_without_splits_are_measured(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / "photos" / f"{number}.jpg", number)
    found = look(small_model("crate_mae_tiny"), data=str(tmp_path / "photos"))
    assert (found.images, found.available, found.settings.split) == (6, 6, None)
    of_a_set = look(for_digits())
    assert (of_a_set.available, of_a_set.settings.split) == (450, "test")


def test_bad_settings_raise_a_clear_error() -> None:
    for settings, word in [
        ({"layer": 3}, "layers 1 to 2"),
        ({"layer": 0}, "layers 1 to 2"),
        ({"mask_ratio": 2.0}, "mask ratio"),
        ({"data": "nowhere"}, "nowhere"),
    ]:
        with pytest.raises(UserError, match=word):
            look(for_digits(), **settings)
