"""The tables of the documentation are those of the records in benchmarks/: ``make pages`` changes nothing."""

import re
import subprocess

import pytest

from benchmarks import pages
from crate_mae.reproduce.paper_numbers import ITEMS


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_the_command_changes_nothing(path) -> None:  # type: ignore[no-untyped-def]
    text = path.read_text()
    assert pages.filled(text) == text
    assert len(pages.MARKED.findall(text)) == text.count("<!-- table:") == text.count("<!-- end -->")


def test_every_record_has_its_place() -> None:
    text = "".join(path.read_text() for path in pages.PAGES)
    assert sorted(re.findall(r"<!-- table: (\S+) -->", text)) == sorted(pages.TABLES)
    assert {f"{scale}-{item}" for scale in pages.SCALES for item in ITEMS} <= set(pages.TABLES)
    assert pages.bench().count("\n|") > 25


def test_a_changed_number_is_put_right() -> None:
    text = "before\n<!-- table: profile -->\n| 99 |\n<!-- end -->\nafter\n"
    filled = pages.filled(text)
    assert filled == f"before\n<!-- table: profile -->\n{pages.profile()}<!-- end -->\nafter\n"
    assert "99" not in filled


def test_make_runs_it() -> None:
    printed = subprocess.run(
        ["make", "-n", "-B", "pages"], cwd=pages.RECORDS.parent, capture_output=True, text=True, check=True
    ).stdout
    assert "-m benchmarks.pages" in printed
