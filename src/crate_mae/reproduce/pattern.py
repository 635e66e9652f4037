"""Which orders between cells of the paper's tables hold in ours too, counted in both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

Record = Mapping[str, Any]
"""The content of a table's JSON file."""
Key = tuple[str, str]
"""Row and column of a cell."""
TUNED = "fine-tuning"
BY_TEST = "class token, best C on test"
BY_VALIDATION = "mean of patches, C by validation"
NONE = "-"


@dataclass(frozen=True)
class Claim:
    """A claim that some cells of a table are above others."""

    words: str
    table: str
    pairs: Sequence[tuple[Key, Key]]
    """Each the higher cell, then the lower one."""

    def counted(self, record: Record, whose: str) -> str:
        """In how many pairs it holds, and the mean difference; ``whose`` is paper or ours."""
        value = {(cell["row"], cell["column"]): cell[whose] for cell in record["cells"]}
        both = [(value.get(high), value.get(low)) for high, low in self.pairs]
        found = [high - low for high, low in both if high is not None and low is not None]
        if not found:
            return NONE
        digits = record["digits"]
        return f"{sum(each > 0 for each in found)} of {len(found)} ({fmean(found):+.{digits}f})"


def claims(records: Mapping[str, Record]) -> list[Claim]:
    """All that is compared, for the rows that the tables have."""
    found = []
    for kind in (TUNED, BY_TEST, BY_VALIDATION):
        words = kind if kind == TUNED else f"probing, {kind}"
        rows = [row for row in _rows(records["table2"]) if kind in row]
        for size in ("S", "B"):
            vit, crate, residual = f"ViT-MAE-{size}", f"CRATE-{size}", f"CRATE-{size} residual"
            found += [
                _across(f"{words}: {vit} above {crate}", "table2", rows, vit, crate),
                _across(f"{words}: {residual} above {crate}", "table2", rows, residual, crate),
                _across(f"{words}: {residual} above {vit}", "table2", rows, residual, vit),
            ]
        for model in ("CRATE-{}", "CRATE-{} residual", "ViT-MAE-{}"):
            large, small = model.format("B"), model.format("S")
            found.append(_across(f"{words}: {large} above {small}", "table2", rows, large, small))
    sets = list(dict.fromkeys(cell["column"] for cell in records["table3"]["cells"]))
    for model in ("CRATE-B", "CRATE-B residual"):
        high, low = f"{model} (trained)", f"{model} (random init)"
        pairs = [((high, data), (low, data)) for data in sets]
        found.append(Claim(f"fine-tuning: {model} pretrained above random weights", "table3", pairs))
    loss = "validation loss"
    for high, low in (("CRATE-B", "ViT-MAE-B"), ("CRATE-B", "CRATE-B residual"), ("CRATE-B residual", "ViT-MAE-B")):
        sources = dict.fromkeys(row.rpartition(", ")[0] for row in _rows(records["table4"]))
        pairs = [((f"{source}, {high}", loss), (f"{source}, {low}", loss)) for source in sources]
        found.append(Claim(f"{loss}: that of {high} above that of {low}", "table4", pairs))
    for table, columns in (
        ("table5", (("75% masked", "25% masked"), ("75% masked", "50% masked"), ("75% masked", "90% masked"))),
        ("table6", (("lambda = 0.1", "lambda = 0.5"), ("lambda = 0.5", "lambda = 5"))),
    ):
        for model in ("CRATE-B", "CRATE-B residual"):
            for kind in (BY_TEST, BY_VALIDATION):
                rows = [row for row in _rows(records[table]) if row.startswith(f"{model}, ") and row.endswith(kind)]
                for high, low in columns:
                    found.append(_across(f"{model}, probing, {kind}: {high} above {low}", table, rows, high, low))
    return found


def markdown(records: Mapping[str, Record]) -> str:
    """A line for each claim that can be counted in ours; the number in brackets is the mean difference."""
    lines = ["| table | what is compared | paper | ours |", "|---|---|---:|---:|"]
    for claim in claims(records):
        record = records[claim.table]
        if (ours := claim.counted(record, "ours")) != NONE:
            number = claim.table.removeprefix("table")
            lines.append(f"| {number} | {claim.words} | {claim.counted(record, 'paper')} | {ours} |")
    return "\n".join([*lines, ""]) if len(lines) > 2 else "Nothing to compare yet.\n"


def _rows(record: Record) -> list[str]:
    return list(dict.fromkeys(cell["row"] for cell in record["cells"]))


def _across(words: str, table: str, rows: Sequence[str], high: str, low: str) -> Claim:
    """The claim that one column is above another in each of these rows."""
    return Claim(words, table, [((row, high), (row, low)) for row in rows])
