"""What pages show beside their code agrees with the code."""

import re

import pytest

from crate_mae import recipes
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.cli import main
from crate_mae.theory.checks import ALL
from tests.datasets.conftest import write
from tests.documentation.pages import ROOT

DOCS = ROOT / "docs"


def text(page: str) -> str:
    return (DOCS / page).read_text()


def test_every_recipe_is_in_the_table() -> None:
    table = re.findall(r"^\| `(\w+)` \|", text("training.md"), re.MULTILINE)
    assert set(recipes.PRETRAIN) | set(recipes.FINETUNE) <= set(table)


def test_every_quantity_has_its_row() -> None:
    for name in QUANTITIES:
        assert f"`{name}`" in text("look-inside.md")


def test_every_claim_has_its_row() -> None:
    table = text("theory.md").split("## Every claim")[1]
    assert len(re.findall(r"\| (?:yes|\*\*no\*\*) \|", table)) == len(ALL)


def test_figures_are_there_and_small() -> None:
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(r"\]\((images/[^)]+)\)", page.read_text())}
    assert len(shown) >= 9
    for name in shown:
        assert 0 < (DOCS / name).stat().st_size < 300_000, name


def test_what_a_bad_image_looks_like(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        write(tmp_path / "photos" / str(2019 + number % 2) / f"IMG_{number:04d}.jpg", number)
    cut = write(tmp_path / "photos" / "2019" / "IMG_0042.jpg", size=(200, 150))
    cut.write_bytes(cut.read_bytes()[:-500])
    with pytest.raises(SystemExit) as stop:
        main(["data", "check", "photos"])
    assert stop.value.code == 1
    shown = text("data.md").split("```\nphotos/")[1].split(" (image file")[0]
    assert f"photos/{shown} (image file is truncated" in capsys.readouterr().out
