import csv
import io
import json
from dataclasses import replace

import numpy as np

from crate_mae.reproduce.comparison_table import COLUMNS, Cell, Table, body

TABLE = Table(
    name="table9",
    title="Table 9. Nothing",
    heading="model",
    unit="per cent",
    cells=(
        Cell("a", "x", 96.2, (95.0, 96.5, 94.1)),
        Cell("a", "y", None, (12,)),
        Cell("b | c", "x", 79.0, note="not run: data missing"),
    ),
    notes=("A note.",),
)


def test_mean_and_spread_are_those_of_a_sample() -> None:
    cell = TABLE.cells[0]
    np.testing.assert_allclose(cell.mean, np.mean(cell.values))
    np.testing.assert_allclose(cell.std, np.std(cell.values, ddof=1))
    assert TABLE.cells[1].std is None
    assert TABLE.cells[2].mean is None


def test_all_forms_say_the_same() -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE.csv())))
    assert tuple(rows[0]) == COLUMNS
    record = json.loads(TABLE.json(seeds=3))
    assert record["seeds"] == 3
    for row, stored, cell in zip(rows, record["cells"], TABLE.cells, strict=True):
        assert (row["row"], row["column"], row["note"]) == (cell.row, cell.column, cell.note)
        assert (stored["row"], stored["column"], stored["note"]) == (cell.row, cell.column, cell.note)
        for name, key, value in (("paper", "paper", cell.paper), ("ours", "ours", cell.mean), ("std", "std", cell.std)):
            assert stored[key] == value
            assert (float(row[name]) if row[name] else None) == value
        assert int(row["seeds"]) == len(stored["values"]) == len(cell.values)


def test_words_of_a_cell() -> None:
    lines = TABLE.markdown().splitlines()
    assert "| model | x | y |" in lines
    assert "| a | paper 96.2; ours 95.2 ± 1.2 | ours 12 |" in lines
    assert "| b \\| c | paper 79.0; not run: data missing | - |" in lines
    assert "- A note." in lines
    alone = replace(TABLE, cells=TABLE.cells[1:2])
    assert body(alone.record()) == [("a", [["12"]])]  # "ours" is left out where the paper has no number


def test_panels_are_the_rows_with_a_number() -> None:
    empty = Cell("d", "x", note="not run: data missing")
    table = replace(TABLE, cells=(*TABLE.cells, empty))
    assert [panel.title for panel in table.panels()] == ["a", "b | c"]
    assert [panel.title for panel in table.panels(["y"])] == ["a"]
    turned = {panel.title: list(panel.points) for panel in table.panels(by_column=True)}
    assert turned == {"x": ["a", "b | c", "d"], "y": ["a"]}
