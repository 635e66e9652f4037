"""What pages show beside their code agrees with the code."""

import re
from pathlib import Path

import pytest

from crate_mae import recipes
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.cli import main
from crate_mae.theory.checks import ALL
from tests.data.conftest import write
from tests.documentation.pages import PAGES, ROOT, name

DOCS = ROOT / "docs"


def text(page: str) -> str:
    return (DOCS / page).read_text()


def test_every_recipe_is_in_the_table() -> None:
    table = re.findall(r"^\| `(\w+)` \|", text("training.md"), re.MULTILINE)
    assert set(recipes.PRETRAIN) | set(recipes.FINETUNE) <= set(table)


def test_every_quantity_has_its_row() -> None:
    for quantity in QUANTITIES:
        assert f"`{quantity}`" in text("look-inside.md")


def test_every_claim_has_its_row() -> None:
    table = text("theory.md").split("## Every claim")[1]
    assert len(re.findall(r"\| (?:yes|\*\*no\*\*) \|", table)) == len(ALL)


def test_figures_are_there_and_small() -> None:
    shown = {file for page in DOCS.glob("*.md") for file in re.findall(r"\]\((images/[^)]+)\)", page.read_text())}
    assert len(shown) >= 9
    for file in shown:
        assert 0 < (DOCS / file).stat().st_size < 300_000, file


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_links_lead_to_files_also_outside_the_site(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", re.sub(r"`[^`]*`", "", page.read_text())):
        assert (page.parent / target).is_file(), target


def test_what_a_bad_image_looks_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
