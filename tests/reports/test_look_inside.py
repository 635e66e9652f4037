"""examples/look_inside.py runs."""

import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.reports.test_inspect_measurements import for_digits

ROOT = Path(__file__).parents[2]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model where the demo would leave one."""
    for_digits().save(tmp_path / "runs" / "demo" / "checkpoints" / "best")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("arguments", [[], ["runs/demo"]])
def test_the_example_runs(
    user: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["look_inside.py", *arguments])
    runpy.run_path(str(ROOT / "examples" / "look_inside.py"), run_name="__main__")
    assert "R^c over the encoder's layers" in capsys.readouterr().out
    for name in ("layers", "attention", "undoing"):
        with Image.open(user / "runs" / "look_inside" / f"{name}.png") as picture:
            assert picture.width > 400
