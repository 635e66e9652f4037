"""The examples run: a plain training, a feature extractor in the manner of transformers, a scikit-learn pipeline."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import crate_mae
from tests.conftest import small_model
from tests.hub.recorded import recorded

ROOT = Path(__file__).parents[1]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the examples take: a run where the demo would leave one, and photos."""
    recorded(tmp_path / "runs" / "demo", small_model("crate_mae_tiny", channels=1, image_size=8, patch_size=2))
    rng = np.random.default_rng(0)
    for name in ("photo.jpg", "photos/1.png", "photos/cats/2.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("arguments", [[], ["runs/demo"]])
def test_the_example_of_a_feature_extractor(
    user: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["feature_extractor.py", "photo.jpg", *arguments])
    names = runpy.run_path(str(ROOT / "examples" / "feature_extractor.py"), run_name="__main__")
    shape = "(1, 17, 16)" if arguments else "(1, 17, 384)"
    layers = 3 if arguments else 5
    printed = capsys.readouterr().out
    assert f"last_hidden_state {shape}" in printed
    assert f"hidden_states {layers} of {shape}" in printed

    extractor = names["Extractor"].from_pretrained("runs/demo")
    pixels = names["Processor"](extractor.model)(["photo.jpg", Image.open("photos/1.png")])["pixel_values"]
    output = extractor(pixels, output_hidden_states=True)
    np.testing.assert_array_equal(output.pooler_output.detach(), extractor.model.features(pixels).detach())
    for layer, state in enumerate(output.hidden_states):
        np.testing.assert_array_equal(state[:, 0].detach(), extractor.model.features(pixels, layer, "cls").detach())


def test_the_example_of_a_pipeline(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sklearn_pipeline.py"])
    runpy.run_path(str(ROOT / "examples" / "sklearn_pipeline.py"), run_name="__main__")
    accuracy = float(re.search(r"test accuracy (\S+) %", capsys.readouterr().out)[1])
    assert accuracy > 30  # three times chance: the weights are random


@pytest.mark.parametrize("arguments", [["digits", "60"], ["photos", "2"]])
def test_the_example_of_a_training(
    user: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    runpy.run_path(str(ROOT / "examples" / "train.py"), run_name="__main__")
    printed = capsys.readouterr().out
    losses = [float(number) for number in re.findall(r"validation loss (\S+)\n", printed)]
    assert losses[-1] < 0.95 * losses[0]
    assert f"loaded again, its validation loss is {losses[-1]:.3f}" in printed
    assert crate_mae.load("runs/train").config.channels == (1 if arguments[0] == "digits" else 3)
