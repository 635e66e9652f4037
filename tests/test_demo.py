import json
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

import crate_mae
from crate_mae.cli import main
from crate_mae.demo import Digits, Probe, summary
from crate_mae.training.probe import Strength

PARTS = ["checkpoints/best/model.safetensors", "completions.png", "training.png", "probe.png", "layers.png"]


def test_a_short_demo_writes_everything_and_its_own_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "--steps", "40", "--out", str(tmp_path / "demo"), "--device", "cpu"])
    printed = capsys.readouterr().out
    out = tmp_path / "demo"
    for part in [*PARTS, "numbers.json", "report.html"]:
        assert (out / part).stat().st_size > 500, part
    numbers = json.loads((out / "numbers.json").read_text())
    page = (out / "report.html").read_text()
    for text in (printed, page):
        assert f"{numbers['completion_error']:.3f}" in text
        for accuracy in numbers["probe_accuracy"].values():
            assert f"{accuracy:.1f}" in text
    assert page.count("data:image/png;base64,") == 4
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert str(out / "report.html") in printed
    losses = numbers["training_loss"]
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    model = crate_mae.load(out)
    digits = Digits.load(0)
    assert model.config.mean == pytest.approx((digits.mean,))
    assert model.encode(digits.test[:2]).shape == (2, 1 + model.num_patches, model.config.dim)


def test_the_demo_is_reproducible(tmp_path: Path) -> None:
    from crate_mae.demo import run

    threads = torch.get_num_threads()
    weights = []
    for name in ("one", "two"):
        torch.manual_seed(len(name))
        run(tmp_path / name, 3, 0, torch.device("cpu"), Console(quiet=True))
        weights.append((tmp_path / name / PARTS[0]).read_bytes())
    assert torch.get_num_threads() == threads
    assert weights[0] == weights[1]


def test_the_digits_are_split_cleanly() -> None:
    digits = Digits.load(0)
    assert len(digits.train) + len(digits.test) == 1797
    assert digits.train.mean().item() == pytest.approx(0, abs=1e-5)
    assert digits.train.std().item() == pytest.approx(1, abs=1e-3)
    assert set(digits.train_labels) == set(digits.test_labels) == set(range(10))


def test_the_words_say_what_the_numbers_do() -> None:
    def words(error: float, accuracy: float) -> str:
        accuracies = {"untrained network": 50.0, "raw pixels": 90.0, "pretrained CRATE-MAE": accuracy}
        probes = {name: Probe((Strength(1.0, 50.0, value, True, 1),)) for name, value in accuracies.items()}
        return " ".join(summary(error, 0.5, probes))

    assert "0.400, below the 0.500" in words(0.4, 92.0)
    assert "2.0 points above raw pixels" in words(0.4, 92.0)
    assert "0.600, NOT below the 0.500" in words(0.6, 85.0)
    assert "5.0 points BELOW raw pixels" in words(0.6, 85.0)
