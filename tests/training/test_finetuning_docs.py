"""Every command and the example in docs/fine-tuning.md run, with fewer steps."""

import re
import shlex
from pathlib import Path

import pytest

from crate_mae.cli import main
from crate_mae.data.datasets import open_dataset

TEXT = (Path(__file__).parents[2] / "docs" / "fine-tuning.md").read_text()
SHORT = {
    "pretrain": "steps=2 batch=8 evaluation_images=20 pictures=0",
    "finetune": "steps=2 batch=8 evaluation_images=20",
}


def test_the_commands_and_the_example_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new/more").mkdir(parents=True)
    digits = open_dataset("digits", "test")
    for number, place in enumerate(["new/3.png", "new/more/1.png"]):
        digits.read(number).save(place)
    blocks = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines() if line]
    assert [words[:2] for words in commands] == [
        ["crate-mae", verb] for verb in ("pretrain", "finetune", "finetune", "evaluate", "predict", "predict")
    ]
    for _, verb, *words in commands:
        short = [word for setting in SHORT.get(verb, "").split() for word in ("--set", setting)]
        main([verb, *words, *short])
    printed = capsys.readouterr().out
    assert "top-1 accuracy" in printed
    assert "new/more/1.png: " in printed
    assert len(Path("predictions.csv").read_text().splitlines()) == 1 + 2 * 5
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "fine-tuning.md", "exec"), {})
    assert " % of 450 images" in capsys.readouterr().out


def test_the_output_shown_is_of_this_form() -> None:
    """The names of the numbers are those that evaluate prints."""
    shown = re.findall(r"```\n(runs/tuned on digits, test\n.*?)```", TEXT, re.DOTALL)[0]
    for line in ("top-1 accuracy", "top-5 accuracy", "mean over classes", "images", "most frequent confusions"):
        assert line in shown
