"""docs/paper-map.md names only what exists, and has every label of the paper."""

import importlib
import re
from pathlib import Path

import pytest

from crate_mae.cli import VERBS
from crate_mae.reproduce.paper_numbers import ITEMS
from tests.conftest import SHARED

MAP = (Path(__file__).parents[2] / "docs" / "paper-map.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in MAP.splitlines() if line.startswith("|")]
ROWS = [row for row in ROWS if row[0] != "label" and not row[0].startswith("-" * 3)]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])})
LABELS = [row[0].strip("`") for row in ROWS if row[0] != "-"]


def find(name: str) -> object:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_it_names_exists(name: str) -> None:
    program, *words = name.split()
    if program == "crate-mae":
        assert words[0] in VERBS
        assert words[0] != "reproduce" or words[1] in ITEMS
    else:
        assert callable(find(name))


def test_a_name_that_does_not_exist_fails() -> None:
    with pytest.raises(AttributeError):
        find("crate_mae.operators.nonsense")


def test_every_row_names_something_and_no_label_stands_twice() -> None:
    assert all(len(row) == 3 and "`" in row[2] for row in ROWS)
    assert len(LABELS) == len(set(LABELS))


def test_every_table_and_figure_is_in_it() -> None:
    for item in ITEMS.values():
        for label in item.label.split(", "):
            row = next(row for row in ROWS if row[0] == f"`{label}`")
            assert f"`crate-mae reproduce {item.name}`" in row[2]


def test_every_label_of_the_paper_is_in_it() -> None:
    source = SHARED / "paper" / "crate-mae.tex"
    if not source.is_file():
        pytest.skip("the paper's source is not at hand")
    kinds = "eq|tab|fig|model|thm|lem|prop|ass|rmk"
    assert sorted(re.findall(rf"\\label{{((?:{kinds}):[^}}]+)}}", source.read_text())) == sorted(LABELS)
