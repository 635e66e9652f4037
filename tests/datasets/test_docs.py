"""Every command and the example in docs/data.md run, in a folder like the one that it speaks of."""

import re
import shlex
from pathlib import Path

import pytest

from crate_mae.cli import main
from tests.datasets.conftest import write

TEXT = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for number in range(24):
        write(tmp_path / "photos" / str(2019 + number % 3) / f"IMG_{number:04d}.jpg", number)
        write(tmp_path / "downloads" / "imagenette2" / ["train", "val"][number % 2] / "n01440764" / f"{number}.JPEG")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_runs(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert len(commands) == 6
    for command in commands:
        verb, *words = shlex.split(command)
        assert verb == "crate-mae"
        main(words)
    assert capsys.readouterr().out.count("train: 24 images, 3 classes, 0 bad.") == 3


def test_what_a_bad_image_looks_like(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = write(user / "photos" / "2019" / "IMG_0042.jpg", size=(200, 150))
    cut.write_bytes(cut.read_bytes()[:-500])
    with pytest.raises(SystemExit) as stop:
        main(["data", "check", "photos"])
    assert stop.value.code == 1
    shown = TEXT.split("```\nphotos/")[1].split(" (image file")[0]
    assert f"photos/{shown} (image file is truncated" in capsys.readouterr().out


def test_the_example_runs(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "data.md", "exec"), {})
    assert capsys.readouterr().out.count("torch.Size([16, 3, 224, 224])") == 3
