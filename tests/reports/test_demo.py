import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import crate_mae
from crate_mae import recipes
from crate_mae.cli import main
from crate_mae.data.named_layouts import split_digits
from crate_mae.evaluation.linear_probe import Probe, Strength
from crate_mae.evaluation.probe_model import open_parts
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.shipped import DEFAULT
from crate_mae.reports.demo_measurements import mean_patch_error, whole
from crate_mae.reports.demo_page import summary
from crate_mae.reports.demo_photographs import squares

PARTS = ["checkpoints/best/model.safetensors", "completions.png", "training.png", "probe.png", "layers.png"]
PHOTOGRAPHS = [f"photographs{part}.png" for part in ("", "-regions", "-layers", "-components", "-attention")]


def test_a_short_demo_writes_everything_and_its_own_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "--steps", "40", "--out", str(tmp_path / "demo"), "--device", "cpu"])
    printed = capsys.readouterr().out
    out = tmp_path / "demo"
    for part in [*PARTS, *PHOTOGRAPHS, "numbers.json", "report.html"]:
        assert (out / part).stat().st_size > 500, part
    numbers = json.loads((out / "numbers.json").read_text())
    page = (out / "report.html").read_text()
    for text in (printed, page):
        assert f"{numbers['completion_error']:.3f}" in text
        for accuracy in numbers["probe_accuracy"].values():
            assert f"{accuracy:.1f}" in text
    assert page.count("data:image/png;base64,") == 9
    assert page.index("<h2>Photographs</h2>") < page.index("<h2>Digits: a model trained just now</h2>")
    assert DEFAULT in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert str(out / "report.html") in printed
    losses = numbers["training_loss"]
    assert list(losses) == ["10", "20", "30", "40"]
    assert losses["40"] < 0.8 * losses["10"]
    assert numbers["held_out_loss"].keys() == {"0", "8", "16", "24", "32", "40"}
    for name in ("compression", "sparsity"):
        assert len(numbers["untrained"][name]) == len(numbers[name]) == 2
        assert numbers["untrained"][name] != numbers[name]
    assert "random weights" in page
    model = crate_mae.load(out)
    digits = split_digits()
    assert model.config.mean == pytest.approx((digits.train.mean(),), abs=1e-3)
    assert model.config.std == pytest.approx((digits.train.std(),), abs=1e-3)


def test_the_demo_is_reproducible(tmp_path: Path) -> None:
    from crate_mae.reports.demo_command import run

    threads = torch.get_num_threads()
    weights = []
    for name in ("one", "two"):
        torch.manual_seed(len(name))
        run(tmp_path / name, 3, 0, "cpu", Console(quiet=True))
        weights.append((tmp_path / name / PARTS[0]).read_bytes())
    assert torch.get_num_threads() == threads
    assert weights[0] == weights[1]


def test_a_second_demo_resumes_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        main(["demo", "--steps", "3", "--out", str(tmp_path), "--device", "cpu"])
    starts = [json.loads(line) for line in (tmp_path / "starts.jsonl").read_text().splitlines()]
    assert [start["step"] for start in starts] == [0, 3]


def test_the_mean_patch_error_is_the_mean_over_masked_patches(tmp_path: Path) -> None:
    config = recipes.digits()
    model = MaskedAutoencoder(config.model_config())
    parts = open_parts("digits", None, download=False)
    train, test = (whole(part, model, config) for part in (parts.train, parts.test))
    total, count = 0.0, 0
    patches = model.patches(test.images)
    mean = model.patches(train.images).mean(0)
    for image, mask in enumerate(test.masks):
        for place in mask.nonzero()[:, 0].tolist():
            total += (patches[image, place] - mean[place]).square().mean().item()
            count += 1
    assert mean_patch_error(model, train, test) == pytest.approx(total / count, rel=1e-4)


def test_the_summary_states_both_outcomes() -> None:
    def words(error: float, accuracy: float) -> str:
        accuracies = {"untrained network": 50.0, "raw pixels": 90.0, "pretrained CRATE-MAE": accuracy}
        probes = {name: Probe((Strength(1.0, 50.0, value, True, 1),)) for name, value in accuracies.items()}
        return " ".join(summary(error, 0.5, probes))

    assert "0.400, below the 0.500" in words(0.4, 92.0)
    assert "2.0 points above raw pixels" in words(0.4, 92.0)
    assert "0.600, NOT below the 0.500" in words(0.6, 85.0)
    assert "5.0 points BELOW raw pixels" in words(0.6, 85.0)


def test_squares_of_a_photograph_run_from_its_left_to_its_right_end() -> None:
    photo = np.zeros((4, 10, 3), np.uint8)
    photo[..., 0] = np.arange(10)
    found = [np.asarray(square)[0, :, 0].tolist() for square in squares(photo)]
    assert found == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
