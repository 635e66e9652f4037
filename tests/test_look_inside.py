"""The Python of docs/look-inside.md and examples/look_inside.py run; tests/inspection runs the page's command."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

from crate_mae.analysis.quantities import QUANTITIES
from tests.inspection.test_measure import for_digits

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "look-inside.md").read_text()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model where the demo would leave one."""
    for_digits().save(tmp_path / "runs" / "demo" / "checkpoints" / "best")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_runs(user: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict = {}
    exec(compile(example, "look-inside.md", "exec"), names)
    assert names["curves"]["compression"].mean.shape == (2,)
    assert names["maps"].shape == (4, 4, 4, 4)
    assert names["colours"].shape == (8, 4, 4, 3)
    assert len(names["panels"]) == 4


def test_every_quantity_has_its_row() -> None:
    for name in QUANTITIES:
        assert f"`{name}`" in TEXT


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
