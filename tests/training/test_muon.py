"""Muon against the singular value decomposition, and against AdamW for everything that is no matrix of a layer."""

import shutil
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from crate_mae.cli import main
from crate_mae.training import muon
from crate_mae.training.config import Optimiser
from crate_mae.training.muon import MOMENTUM, RMS, orthogonalise
from crate_mae.training.optim import optimiser_flops, optimiser_of
from tests.conftest import small_model
from tests.training.runs import assert_same, words


@pytest.fixture(params=[torch.float64, torch.float32])
def gradients(request: pytest.FixtureRequest) -> torch.Tensor:
    """Matrices whose singular values span two orders of magnitude."""
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(3, 24, 24, generator=generator)).Q for _ in range(2))
    return ((u * torch.logspace(-1, 1, 24)) @ v)[:, :16].to(request.param)


@pytest.mark.parametrize("tall", [False, True])
def test_singular_values_become_alike_and_singular_vectors_stay(gradients: torch.Tensor, tall: bool) -> None:
    matrices = gradients.mT if tall else gradients
    found = orthogonalise(matrices)
    assert found.dtype == matrices.dtype
    assert found.shape == matrices.shape
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    inner = u.mT @ found @ vh.mT  # diagonal where the singular vectors are the same
    off = inner - torch.diag_embed(values := inner.diagonal(dim1=-2, dim2=-1))
    assert values.min() > 0.6
    assert values.max() < 1.3
    assert off.abs().max() < (1e-9 if matrices.dtype == torch.float64 else 0.05)  # bfloat16 where that is fast


def test_each_matrix_is_orthogonalised_by_itself(gradients: torch.Tensor) -> None:
    together = orthogonalise(gradients)
    for matrix, expected in zip(gradients, together, strict=True):
        torch.testing.assert_close(orthogonalise(matrix[None])[0], expected, rtol=0, atol=0.02)


def test_a_zero_gradient_moves_nothing() -> None:
    assert orthogonalise(torch.zeros(2, 3, 5)).count_nonzero() == 0


@pytest.mark.parametrize("name", ["crate_mae_tiny", "crate_mae_tiny_alpha", "vit_mae_small"])
@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_the_flops_of_a_step_are_those_that_torch_counts(name: str, kind: Optimiser) -> None:
    model = small_model(name)
    optimiser = optimiser_of(model, kind, 0.01, 0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with FlopCounterMode(display=False) as counter:
        optimiser.step()
    assert optimiser_flops(model, kind) == counter.get_total_flops()
    assert (counter.get_total_flops() > 0) == (kind == "muon")


@pytest.mark.parametrize("name", ["crate_mae_tiny", "vit_mae_small"])
def test_two_steps_are_those_of_the_formula_and_of_adamw(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "orthogonalise", exactly)
    model = small_model(name).double()
    other = deepcopy(model)
    rate, decay = 0.01, 0.1
    ours, adamw = (optimiser_of(m, kind, rate, decay) for m, kind in ((model, "muon"), (other, "adamw")))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    momentum = {name: torch.zeros_like(parameter) for name, parameter in before.items()}
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        for (key, parameter), twin in zip(model.named_parameters(), other.parameters(), strict=True):
            gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.grad, twin.grad = gradient.clone(), gradient.clone()
            momentum[key] = MOMENTUM * momentum[key] + (1 - MOMENTUM) * gradient
            if in_a_layer(key, parameter):
                direction = MOMENTUM * momentum[key] + (1 - MOMENTUM) * gradient
                length = rate * RMS * max(parameter.shape) ** 0.5
                before[key] = (1 - rate * decay) * before[key] - length * exactly(direction)
        ours.step()
        adamw.step()
    matrices = 0
    for (key, parameter), twin in zip(model.named_parameters(), other.parameters(), strict=True):
        matrices += in_a_layer(key, parameter)
        torch.testing.assert_close(parameter, before[key] if in_a_layer(key, parameter) else twin, rtol=1e-9, atol=1e-9)
        names = {"step", "momentum"} if in_a_layer(key, parameter) else {"step", "exp_avg", "exp_avg_sq"}
        assert set(ours.state[parameter]) == names
    assert matrices > 4


@pytest.mark.parametrize("name", ["crate_mae_tiny", "vit_mae_small"])
def test_a_closure_is_called_once_before_anything_moves(name: str) -> None:
    model, other = (small_model(name) for _ in range(2))
    images, mask = torch.randn(2, 3, *model.config.image_size), torch.zeros(2, model.num_patches, dtype=torch.bool)
    mask[:, ::2] = True
    losses = []

    def closure() -> torch.Tensor:
        losses.append(model(images, mask).loss)
        losses[-1].backward()
        return losses[-1]

    ours, plain = (optimiser_of(m, "muon", 0.01, 0.1) for m in (model, other))
    for _ in range(2):
        assert ours.step(closure) is losses[-1]
        other(images, mask).loss.backward()
        plain.step()
        ours.zero_grad()
        plain.zero_grad()
    assert len(losses) == 2
    for parameter, twin in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter, twin, rtol=0, atol=0)


def in_a_layer(name: str, parameter: torch.Tensor) -> bool:
    return ".blocks." in name and parameter.ndim == 2


def exactly(matrices: torch.Tensor) -> torch.Tensor:
    """U V^T of U S V^T."""
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    return u @ vh


def test_a_resumed_run_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    main(words(tmp_path / "whole", optimiser="muon", steps=20))
    run = Path(shutil.copytree(tmp_path / "whole", tmp_path / "run"))
    shutil.rmtree(run / "checkpoints" / "step-00000020")
    main(["pretrain", "--out", str(run), "--resume"])
    assert_same(run, tmp_path / "whole")
