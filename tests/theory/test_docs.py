"""What docs/theory.md shows is there and runs."""

import re
from pathlib import Path

from crate_mae.theory.checks import ALL

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "theory.md").read_text()


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict = {}
    exec(example, names)
    assert names["Z"].shape == (768, 196)


def test_figures_are_there_and_small():
    shown = re.findall(r"\]\((images/[^)]+)\)", TEXT)
    assert len(shown) == 8
    for name in shown:
        assert 0 < (DOCS / name).stat().st_size < 300_000


def test_every_claim_has_its_row():
    table = TEXT.split("## Every claim")[1]
    assert len(re.findall(r"\| (?:yes|\*\*no\*\*) \|", table)) == len(ALL)
