"""The commands and the example in docs/training.md run, with fewer steps."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crate_mae import recipes
from crate_mae.cli import main
from crate_mae.training.run import Run

TEXT = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
SHORT = ["steps=2", "batch=4", "model.dim=12", "model.heads=2", "model.depth=1", "evaluation_images=8", "pictures=2"]


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number in range(40):
        file = tmp_path / "photos" / ["cat", "dog"][number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 128 + 127 * (number % 2), (16, 20, 3), dtype=np.uint8)).save(file)
    blocks = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines() if line]
    assert [words[1] for words in commands[:5]] == ["data", "pretrain", "probe", "pretrain", "pretrain"]
    for name, *words in commands:
        assert name == "crate-mae"
        if words[0] in ("pretrain", "finetune") and "--recipe" in words:
            words += [word for setting in SHORT for word in ("--set", setting)]
        if "DIR" not in words:  # the real run's own commands need its images
            main(words)
    assert Run(Path("runs/photos")).series("val_loss").keys() == {0, 2}
    assert Path("runs/photos-probe/probe.json").is_file()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example.replace("steps=60", "steps=1"), "training.md", "exec"), {})
    assert Run(Path("runs/from-python")).settings()["settings"]["seed"] == 1


def test_every_recipe_is_in_the_table() -> None:
    table = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert set(recipes.PRETRAIN) | set(recipes.FINETUNE) <= set(table)
