"""Every command and the example in docs/probing.md run, in a folder like the one that it speaks of."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crate_mae.cli import main

TEXT = (Path(__file__).parents[2] / "docs" / "probing.md").read_text()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A demo of two steps, and photos of two kinds."""
    monkeypatch.chdir(tmp_path)
    main(["demo", "--steps", "2", "--out", "runs/demo"])
    rng = np.random.default_rng(0)
    for number in range(60):
        file = tmp_path / "photos" / ["cat", "dog"][number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 128 + 127 * (number % 2), (9, 9), dtype=np.uint8)).save(file)
    return tmp_path


def test_every_command_and_the_example_run(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    commands = block.splitlines()
    assert len(commands) == 3
    for command in commands:
        verb, *words = shlex.split(command)
        assert verb == "crate-mae"
        main(words)
    printed = capsys.readouterr().out
    for line in TEXT.split("```\n┏")[1].splitlines()[1:3]:  # the head of the table as it is shown
        for words in line.strip("┃ ").split("┃"):
            assert words.strip() in printed
    assert (user / "runs" / "photos" / "layers.png").is_file()
    assert {file.name for file in (user / "runs/demo/probe/digits").iterdir()} == {
        "features", "layers.png", "probe.json", "strengths.png",
    }  # fmt: skip
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "probing.md", "exec"), {})
