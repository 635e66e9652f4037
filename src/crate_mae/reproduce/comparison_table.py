"""A table with the paper's numbers and ours side by side, and the files that it is written to."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from rich.table import Table as Printed

from crate_mae.figures.comparison import Panel

MISSING = "not run: data missing"
COLUMNS = ("row", "column", "paper", "ours", "std", "seeds", "note")
"""Columns of the CSV file."""


@dataclass(frozen=True)
class Cell:
    """One number of the paper and ours."""

    row: str
    column: str
    paper: float | None = None
    """The number as printed; None if the paper has none."""
    values: tuple[float, ...] = ()
    """Ours, one for each seed."""
    note: str = ""
    """Why we have no number."""

    @property
    def mean(self) -> float | None:
        """The mean of our numbers over seeds; None if there is none."""
        if len(self.values) == 1:
            return self.values[0]
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation over seeds; None for one seed."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers in rows and columns."""

    name: str
    title: str
    heading: str
    """What the rows are."""
    unit: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]
    """The protocol and other remarks."""
    digits: int = 1
    """Decimal places of our numbers."""
    paper_digits: int = 1
    """Decimal places of the paper's numbers."""

    @cached_property
    def columns(self) -> list[str]:
        """The columns, in the order in which they first appear."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def record(self, **more: Any) -> dict[str, Any]:
        """Everything as plain values for JSON, including the numbers of every seed."""
        return {
            "name": self.name,
            "title": self.title,
            "heading": self.heading,
            "unit": self.unit,
            "digits": self.digits,
            "paper_digits": self.paper_digits,
            **more,
            "notes": list(self.notes),
            "cells": [{**asdict(cell), "ours": cell.mean, "std": cell.std} for cell in self.cells],
        }

    def printed(self) -> Printed:
        """For the terminal."""
        printed = Printed(self.heading, *self.columns, title=self.title, title_justify="left", show_lines=True)
        for row, cells in body(self.record()):
            printed.add_row(row, *map("\n".join, cells))
        return printed

    def markdown(self) -> str:
        """The table as a section of a Markdown page."""
        return markdown(self.record())

    def json(self, **more: Any) -> str:
        """``record`` as the content of a JSON file."""
        return json.dumps(self.record(**more), indent=1, ensure_ascii=False) + "\n"

    def csv(self) -> str:
        """One line for each cell."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for cell in self.cells:
            row = [cell.row, cell.column, cell.paper, cell.mean, cell.std, len(cell.values), cell.note]
            writer.writerow(["" if part is None else part for part in row])
        return file.getvalue()

    def panels(self, columns: list[str] | None = None, by_column: bool = False) -> list[Panel]:
        """Panels of the figure: one for each row with a number in these columns, or one for each column."""
        groups: dict[str, dict[str, Cell]] = {}
        for cell in self.cells:
            if columns is None or cell.column in columns:
                panel, point = (cell.column, cell.row) if by_column else (cell.row, cell.column)
                groups.setdefault(panel, {})[point] = cell
        return [
            Panel(title, {name: (cell.paper, cell.mean, cell.std) for name, cell in cells.items()})
            for title, cells in groups.items()
            if any(cell.values or cell.paper is not None for cell in cells.values())
        ]


def body(record: Mapping[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """From a table's record to its rows: a name, and the lines of each cell."""
    at = {(cell["row"], cell["column"]): cell for cell in record["cells"]}
    rows, columns = (list(dict.fromkeys(cell[of] for cell in record["cells"])) for of in ("row", "column"))
    return [(row, [_lines(record, at.get((row, column))) for column in columns]) for row in rows]


def _lines(record: Mapping[str, Any], cell: Mapping[str, Any] | None) -> list[str]:
    """The paper's number, then ours or why there is none."""
    if cell is None:
        return ["-"]
    lines = [] if cell["paper"] is None else [f"paper {_number(cell['paper'], record['paper_digits'])}"]
    if cell["ours"] is not None:
        # "ours" is only needed beside the paper's numbers.
        whose = "ours " if any(each["paper"] is not None for each in record["cells"]) else ""
        spread = "" if cell["std"] is None else f" ± {_number(cell['std'], record['digits'])}"
        lines.append(f"{whose}{_number(cell['ours'], record['digits'])}{spread}")
    return lines + ([cell["note"]] if cell["note"] else [])


def markdown(record: Mapping[str, Any], level: int = 2) -> str:
    """A table's record as a section of a Markdown page."""
    columns = list(dict.fromkeys(cell["column"] for cell in record["cells"]))
    lines = [f"{'#' * level} {record['title']}", "", *([f"In {record['unit']}.", ""] if record["unit"] else [])]
    lines += [_line([record["heading"], *columns]), _line(["---"] * (1 + len(columns)))]
    lines += [_line([row, *map("; ".join, cells)]) for row, cells in body(record)]
    return "\n".join([*lines, "", *(f"- {note}" for note in record["notes"]), ""])


def _number(value: float, digits: int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
