"""Every command and example in docs/using.md runs, in a folder like the one that it speaks of."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_image

import crate_mae
from crate_mae.cli import main
from tests.datasets.conftest import write

TEXT = (Path(__file__).parents[1] / "docs" / "using.md").read_text()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model, a photo, photos of two kinds, and a mask."""
    monkeypatch.chdir(tmp_path)
    small = {"dim": 8, "depth": 1, "heads": 2, "image_size": 32, "patch_size": 8}
    crate_mae.create_model("crate_mae_tiny", generator=torch.Generator().manual_seed(0), **small).save("runs/demo")
    Image.fromarray(load_sample_image("flower.jpg")).save("photo.jpg")
    for number in range(4):
        write(tmp_path / "photos" / ["cat", "dog"][number % 2] / f"{number}.png", number)
    mask = Image.new("L", (640, 427))
    ImageDraw.Draw(mask).ellipse((200, 100, 400, 300), fill="white")
    mask.save("mask.png")
    return tmp_path


def test_every_command_and_example_runs(user: Path) -> None:
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks] == ["sh", "python", "sh", "python", "sh"]
    for language, block in blocks:
        if language == "python":
            exec(compile(block, "using.md", "exec"), {})
            continue
        for command in block.splitlines():
            verb, *words = shlex.split(command)
            assert verb == "crate-mae"
            main(words)
    made = {"model.pt2", "encoder.onnx", "features.parquet", "features.npz", "completed.png"}
    made |= {"completed", "middle.png", "hole.png"}
    assert made <= {path.name for path in user.iterdir()}
    assert len(list((user / "completed").iterdir())) == 5
