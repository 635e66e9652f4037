from itertools import pairwise

import pytest
import torch

from crate_mae.training.optim import adamw, cosine_schedule, parameter_groups
from tests.conftest import small_model


def test_decay_falls_on_matrices_alone() -> None:
    model = small_model("crate_mae_tiny_visible", preset="official", positions="learned")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices, rest = ({names[id(p)] for p in group["params"]} for group in parameter_groups(model, 0.1))
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
    rates = [cosine_schedule(step, 100, 10, 2.0) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == rates[10] == pytest.approx(2.0)
    assert rates[55] == pytest.approx(1.0)
    assert 0 < rates[99] < 0.01
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert cosine_schedule(0, 1, 0, 1.0) == 1.0
