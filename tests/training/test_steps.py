"""One step of the loop: in parts, recomputed, clipped, in low precision, compiled; and each recipe takes two."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.utils import clip_grad_norm_

import crate_mae
from crate_mae.cli import main
from crate_mae.data.source import ArrayImages
from crate_mae.models.config import ModelConfig
from crate_mae.recipes import FINETUNE, PRETRAIN
from crate_mae.training import launch as launching
from crate_mae.training.config import FinetuneConfig, PretrainConfig, RunConfig
from crate_mae.training.distributed import Processes
from crate_mae.training.finetune import finetuning
from crate_mae.training.pretrain import pretraining
from tests.training import together
from tests.training.runs import assert_same, metrics, words

ALONE = Processes(0, 1, torch.device("cpu"))
CLIP = 0.01


@pytest.mark.parametrize("make", together.MAKES)
def test_parts_of_a_batch_are_the_whole(make: str) -> None:
    whole, loss, norm = together.gradients(make, together.setting("float64"), ALONE)
    for accumulation in (2, 4, 8):
        parts, their_loss, their_norm = together.gradients(make, together.setting("float64", accumulation), ALONE)
        assert their_loss == pytest.approx(loss, rel=1e-12)
        assert their_norm == pytest.approx(norm, rel=1e-12)
        for name in whole:
            torch.testing.assert_close(parts[name], whole[name], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("make", together.MAKES)
def test_what_is_computed_again_is_the_same(make: str) -> None:
    kept = together.gradients(make, together.setting(), ALONE)[0]
    again = together.gradients(make, together.setting(), ALONE, recompute=True)[0]
    assert all(torch.equal(again[name], kept[name]) for name in kept)


def test_a_long_gradient_is_shortened_and_its_own_norm_is_told() -> None:
    gradient, _, norm = together.gradients("crate, paper", together.setting("float64"), ALONE)
    shortened, _, told = together.gradients("crate, paper", together.setting("float64", clip=CLIP), ALONE)
    assert told == norm == pytest.approx(sum(value.square().sum() for value in gradient.values()).sqrt().item())
    assert norm > CLIP
    stand_ins = [torch.zeros_like(value, requires_grad=True) for value in gradient.values()]
    for stand_in, value in zip(stand_ins, gradient.values(), strict=True):
        stand_in.grad = value.clone()
    clip_grad_norm_(stand_ins, CLIP)
    for stand_in, value in zip(stand_ins, shortened.values(), strict=True):
        assert stand_in.grad is not None
        torch.testing.assert_close(value, stand_in.grad, rtol=1e-12, atol=0)
        torch.testing.assert_close(value, stand_in.grad)
    unchanged = together.gradients("crate, paper", together.setting("float64", clip=2 * norm), ALONE)[0]
    assert all(torch.equal(unchanged[name], gradient[name]) for name in gradient)


def test_in_bfloat16_weights_stay_whole_and_the_loss_is_near(tmp_path: Path) -> None:
    for precision in ("float32", "bfloat16"):
        main(words(tmp_path / precision, steps=4, log_every=1, precision=precision))
    losses = [[line["loss"] for line in metrics(tmp_path / name) if "loss" in line] for name in ("float32", "bfloat16")]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1] != losses[0]
    assert {value.dtype for value in crate_mae.load(tmp_path / "bfloat16").state_dict().values()} == {torch.float32}


@pytest.mark.parametrize(("fast", "meant"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_the_precision_of_the_device_and_recorded_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool, meant: str
) -> None:
    monkeypatch.setattr(launching, "multiplies_bfloat16", lambda device: fast)
    for precision in ("auto", meant):
        main(words(tmp_path / precision, steps=2, precision=precision))
    assert_same(tmp_path / "auto", tmp_path / meant)
    assert json.loads((tmp_path / "auto" / "config.json").read_text())["settings"]["precision"] == meant


def test_drop_path_is_the_same_when_computed_again(tmp_path: Path) -> None:
    for name, again in (("kept", "false"), ("again", "true")):
        settings = {"steps": 3, "log_every": 1, "drop_path": 0.5, "gradient_checkpointing": again}
        main(words(tmp_path / name, "--random", task="finetune", **settings))
    assert metrics(tmp_path / "again") == metrics(tmp_path / "kept")


@pytest.mark.slow
def test_compiled_it_learns_the_same(tmp_path: Path) -> None:
    # In processes of their own: the test run's shape checks are no code that a compiler can follow.
    for compiled in ("false", "true"):
        command = words(tmp_path / compiled, steps=4, log_every=1, compile=compiled)
        subprocess.run([sys.executable, "-m", "crate_mae", *command], check=True, capture_output=True)
    losses = [[line["loss"] for line in metrics(tmp_path / name) if "loss" in line] for name in ("false", "true")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def fake(model: ModelConfig) -> ArrayImages:
    """Six pictures of the model's shape, of two classes."""
    shape = (6, *model.image_size, *([3] if model.channels == 3 else []))
    pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return ArrayImages("noise", pictures, np.arange(6) % 2, ["even", "odd"])


def two_steps(config: RunConfig, run: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Run it as it is, but for the size of the batch, the number of steps and the images."""
    source = fake(config.model_config())
    monkeypatch.setattr(launching, "open_splits", lambda *_: (source, source))
    config = replace(config, steps=2, batch=2, log_every=1, workers=0, evaluation_images=2, **changes)
    if isinstance(config, FinetuneConfig):
        config = replace(config, random=True)
    if isinstance(config, PretrainConfig):
        config = replace(config, pictures=0)
    prepare: Callable[..., Any] = finetuning if isinstance(config, FinetuneConfig) else pretraining
    outcome = launching.launch(prepare, config, run, console=Console(quiet=True))
    assert outcome.finished
    losses = [line["loss"] for line in metrics(run) if "loss" in line]
    assert len(losses) == 2
    assert all(np.isfinite(losses))
    assert crate_mae.load(run).config == config.model_config()


SHALLOW = {"depth": 1, "decoder_depth": 1}


@pytest.mark.parametrize("name", PRETRAIN | FINETUNE)
def test_a_recipe_takes_two_steps_with_one_layer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = (PRETRAIN | FINETUNE)[name]()
    assert config.model_config().depth > 1
    settings = {"model_settings": config.model_settings | SHALLOW, "precision": "float32"}
    two_steps(config, tmp_path / "run", monkeypatch, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRETRAIN | FINETUNE)
def test_a_recipe_takes_two_steps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_steps((PRETRAIN | FINETUNE)[name](), tmp_path / "run", monkeypatch)
