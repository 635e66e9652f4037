"""Exported files against the model that they came from; onnxruntime is the other library."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import crate_mae
from crate_mae import export
from crate_mae.cli import main
from crate_mae.errors import UserError
from tests.conftest import MAKES, small_model

QUICK = ["crate, official", "crate, visible, tied, wider decoder", "vit, visible, normalised targets"]
"""Both families, both views of the encoder, both presets, both forms of MSSA, both kinds of target."""


def lively(model: torch.nn.Module) -> Any:
    """With random biases and norms, so that none of them hides a mistake."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@torch.no_grad()
def completes_as_the_model(model: crate_mae.MaskedAutoencoder, run: Callable[..., Any]) -> None:
    """On several batch sizes, and masks that differ in how much they leave."""
    for batch, ratios in [(1, [0.75]), (2, [0.5, 0.5]), (5, [0.1, 0.3, 0.5, 0.75, 0.95])]:
        images = torch.randn(batch, 3, 12, 24)
        mask = torch.cat([crate_mae.random_mask(1, model.num_patches, ratio) for ratio in ratios])
        expected = model(images, mask)
        completed, prediction = run(images, mask)
        torch.testing.assert_close(completed, expected.completed, atol=1e-4, rtol=0)
        torch.testing.assert_close(prediction, expected.prediction, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "make", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MAKES]
)
def test_an_autoencoder_completes_alike_everywhere(make: str, tmp_path: Path) -> None:
    model = lively(MAKES[make](depth=1, decoder_depth=1))
    assert export.to_onnx(model, tmp_path / "model.onnx") < 1e-4
    onnx_session = session(tmp_path / "model.onnx")

    def by_onnx(images: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        given = {"images": images.numpy(), "mask": mask.numpy()}
        return [torch.from_numpy(array) for array in onnx_session.run(["completed", "prediction"], given)]

    completes_as_the_model(model, by_onnx)
    assert export.to_torch(model, tmp_path / "model.pt2") < 1e-5
    completes_as_the_model(model, torch.export.load(tmp_path / "model.pt2").module())
