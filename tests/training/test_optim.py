from itertools import pairwise

import pytest
import torch

from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.classifier import Classifier
from crate_mae.training.optim import adamw, cosine_schedule, parameter_groups, set_learning_rate
from tests.conftest import small_model


def test_decay_falls_on_matrices_alone() -> None:
    model = small_model("crate_mae_tiny_visible", preset="official", positions="learned")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, 0.1)
    matrices, rest = (
        {names[id(parameter)] for group in groups if group["weight_decay"] == decay for parameter in group["params"]}
        for decay in (0.1, 0.0)
    )
    assert matrices | rest == set(names.values())
    assert not matrices & rest
    assert "encoder.blocks.0.ista.dictionary" in matrices
    assert "encoder.blocks.0.mssa.subspaces" in matrices
    for name in rest:
        assert name.endswith(("bias", "token", "positions.table")) or ".norm" in name, name
    assert {"embedding.positions.table", "handover.positions.table", "handover.mask_token"} <= rest


def test_an_adamw_step_decays_only_matrices() -> None:
    model = small_model("crate_mae_tiny")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimiser = adamw(model, 0.1, 0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for name, parameter in model.named_parameters():
        factor = 0.95 if parameter.ndim == 2 and "positions" not in name else 1.0
        torch.testing.assert_close(parameter, before[name] * factor)


def test_the_schedule_warms_up_peaks_and_falls() -> None:
    rates = [cosine_schedule(step, 100, 0.1, 2.0) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[4] == pytest.approx(1.0)
    assert rates[9] == rates[10] == pytest.approx(2.0)
    assert rates[55] == pytest.approx(1.0)
    assert rates[10 + 30] == pytest.approx(1.5)  # a third of the way down: cos 60 degrees is a half
    assert 0 < rates[99] < 0.01
    assert all(a > b for a, b in pairwise(rates[10:]))


def test_the_schedule_at_its_ends() -> None:
    assert cosine_schedule(0, 1, 0.0, 1.0) == 1.0
    assert cosine_schedule(0, 1, 0.05, 1.0) == 1.0  # too short for a warm-up
    assert [cosine_schedule(step, 4, 1.0, 1.0) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("name", ["crate_mae_tiny", "vit_mae_small"])
def test_each_layer_learns_at_its_share_of_the_rate_above_it(name: str) -> None:
    model = Classifier.on(small_model(name, depth=3), ["a", "b"])
    groups = parameter_groups(model, 0.1, layer_decay=0.5)
    scale = {id(parameter): group["scale"] for group in groups for parameter in group["params"]}
    by_hand = {"embedding": 1 / 16, "encoder.blocks.0": 1 / 8, "encoder.blocks.1": 1 / 4, "encoder.blocks.2": 1 / 2}
    by_hand |= {"encoder.norm": 1.0, "norm": 1.0, "head": 1.0}
    seen = set()
    for name, parameter in model.named_parameters():
        (place,) = [place for place in by_hand if name.startswith(f"{place}.")]
        seen.add(place)
        assert scale[id(parameter)] == by_hand[place], name
    assert len(seen) == 6  # one norm before the head: the encoder's or the classifier's own


def test_the_rate_of_a_step_reaches_each_group_by_its_share() -> None:
    """AdamW's first step moves each weight by its rate, whatever its gradient."""
    model = Classifier.on(small_model("crate_mae_tiny"), ["a", "b"])
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimiser = adamw(model, 1.0, 0.0, layer_decay=0.5)
    set_learning_rate(optimiser, 0.01)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    optimiser.step()
    shares = {"embedding": 0.125, "encoder.blocks.0": 0.25, "encoder.blocks.1": 0.5, "norm": 1.0, "head": 1.0}
    for name, parameter in model.named_parameters():
        (share,) = [share for place, share in shares.items() if name.startswith(f"{place}.")]
        torch.testing.assert_close(parameter, before[name] - 0.01 * share, rtol=0, atol=1e-6)


def test_every_parameter_is_in_one_group(model: MaskedAutoencoder) -> None:
    for trained in (model, Classifier.on(model, ["a", "b", "c"])):
        for layer_decay in (1.0, 0.7):
            groups = parameter_groups(trained, 0.1, layer_decay)
            grouped = [id(parameter) for group in groups for parameter in group["params"]]
            assert sorted(grouped) == sorted(map(id, trained.parameters()))
            assert {group["weight_decay"] for group in groups} == {0.0, 0.1}
            if layer_decay == 1:
                assert {group["scale"] for group in groups} == {1.0}
