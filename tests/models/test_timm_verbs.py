"""timm's verbs against the model's own words, and against timm's rules for them."""

from typing import Any

import pytest
import torch
from torch import Tensor

import crate_mae
from crate_mae import Classifier, MaskedAutoencoder, UserError
from crate_mae.training.optim import parameter_groups
from tests.conftest import small_model


def test_forward_is_head_after_features(model: MaskedAutoencoder, images: Tensor) -> None:
    assert torch.equal(model.forward_features(images), model.encode(images))
    assert torch.equal(model.forward_head(model.forward_features(images)), model.features(images))
    assert model.num_features == model.forward_features(images).shape[-1]
    classifier = Classifier.on(model, ["a", "b", "c"])
    tokens = classifier.forward_features(images)
    assert torch.equal(classifier.forward_head(tokens), classifier(images))
    before = classifier.forward_head(tokens, pre_logits=True)
    assert torch.equal(classifier.get_classifier()(before), classifier(images))
    assert before.shape == (3, classifier.num_features)


def test_intermediates_are_the_outputs_of_the_blocks(model: MaskedAutoencoder, images: Tensor) -> None:
    steps = [step.tokens for step in model.encoder.steps(model.embed(images))]
    final, found = model.forward_intermediates(images)
    assert torch.equal(final, model.forward_features(images))
    for layer, (each, expected) in enumerate(zip(found, steps, strict=True), 1):
        assert torch.equal(each, model.features(images, layer, pool="grid"))
        assert torch.equal(each.flatten(2).mT, expected[:, 1:])

    listed = model.forward_intermediates(images, output_fmt="NLC", return_prefix_tokens=True, intermediates_only=True)
    for (patches, prefix), expected in zip(listed, steps, strict=True):
        assert torch.equal(torch.cat([prefix, patches], 1), expected)

    _, (normed,) = model.forward_intermediates(images, indices=[-1], norm=True, output_fmt="NLC")
    assert torch.equal(normed, model.forward_features(images)[:, 1:])


def taken(indices: Any, depth: int = 5, **options: Any) -> list[int]:
    """Which blocks' outputs come, of an encoder of which each has its own."""
    model, images = small_model("crate_mae_tiny", depth=depth), torch.randn(1, 3, 12, 24)
    every = model.forward_intermediates(images, intermediates_only=True)
    some = model.forward_intermediates(images, indices, intermediates_only=True, **options)
    return [next(index for index, each in enumerate(every) if torch.equal(each, found)) for found in some]


def test_indices_are_read_as_timm_reads_them() -> None:
    assert taken(None) == [0, 1, 2, 3, 4]
    assert taken(2) == [3, 4]  # a number is how many of the last
    assert taken([1, -1]) == [1, 4]
    assert taken((3, 0, 3)) == [0, 3]  # in the order of the blocks, each once
    for wrong in (0, 6, -1, [5], [-6], []):
        with pytest.raises(UserError, match="this encoder has blocks -5 to 4"):
            taken(wrong)
    with pytest.raises(UserError, match="'NCHW', 'NLC'"):
        taken(None, output_fmt="NHWC")


def test_stopping_early_runs_no_block_after_the_last(images: Tensor) -> None:
    model = small_model("vit_mae_base", depth=4)
    ran = []
    for index, block in enumerate(model.encoder.blocks):
        block.register_forward_hook(lambda *_, index=index: ran.append(index))
    last, (found,) = model.forward_intermediates(images, [1], stop_early=True, norm=True, output_fmt="NLC")
    assert ran == [0, 1]
    assert torch.equal(last[:, 1:], found)


def test_a_head_can_be_reset(images: Tensor, tmp_path: Any) -> None:
    model = Classifier.on(small_model("crate_mae_tiny"), ["a", "b"]).double().eval()
    images = images.double()
    pooled = model.forward_head(model.forward_features(images), pre_logits=True)
    model.reset_classifier(5, generator=torch.Generator().manual_seed(0))
    assert (model.num_classes, model.class_names) == (5, ("0", "1", "2", "3", "4"))
    assert model(images).shape == (3, 5)
    assert model(images).dtype == torch.float64
    assert not model.head.training
    first = model.head.weight.clone()
    model.reset_classifier(5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.head.weight, first)

    model.reset_classifier(0)
    assert model.num_classes == 0
    assert torch.equal(model(images), pooled)
    with pytest.raises(UserError, match="at least two classes"):
        model.save(tmp_path)

    model.reset_classifier(2, class_names=["hen", "owl"])
    assert crate_mae.load(model.save(tmp_path)).class_names == ("hen", "owl")
    with pytest.raises(UserError, match="2 names for 3 classes"):
        model.reset_classifier(3, class_names=["hen", "owl"])
    with pytest.raises(UserError, match="at least two"):
        model.reset_classifier(1)


def test_a_model_without_a_head_says_how_to_get_one() -> None:
    model = small_model("crate_mae_tiny")
    model.reset_classifier(0)
    assert model.num_classes == 0
    assert isinstance(model.get_classifier(), torch.nn.Identity)
    with pytest.raises(UserError, match=r"Classifier\.on"):
        model.reset_classifier(10)


def test_no_weight_decay_is_what_the_optimiser_spares(model: MaskedAutoencoder) -> None:
    for each in (model, Classifier.on(model, ["a", "b"])):
        names = {id(parameter): name for name, parameter in each.named_parameters()}
        spared = {
            names[id(parameter)]
            for group in parameter_groups(each, 0.1)
            if group["weight_decay"] == 0
            for parameter in group["params"]
        }
        assert spared == each.no_weight_decay()
        for name, parameter in each.named_parameters():  # by hand: biases, norms, tokens, positions
            by_hand = name.endswith(("bias", "token", "table")) or (parameter.ndim == 1 and "norm" in name)
            assert (name in spared) == by_hand, name
