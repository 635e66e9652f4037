"""Results as rows, for the terminal, for Markdown and for JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from rich.table import Table

from crate_mae.bench.harness import Spread

Unit = Literal["x", "s", "", "%"]
"""Unit of a result: a ratio (x), seconds (s), a fraction between 0 and 1 (empty), or per cent."""


@dataclass(frozen=True)
class Goal:
    """A bound that the result should reach or stay below."""

    bound: float
    at_least: bool

    def met(self, value: float) -> bool:
        """Whether a value reaches the bound, or stays below it."""
        return value >= self.bound if self.at_least else value <= self.bound


def at_least(bound: float) -> Goal:
    """The goal of a value that is not below the bound."""
    return Goal(bound, at_least=True)


def at_most(bound: float) -> Goal:
    """The goal of a value that is not above the bound."""
    return Goal(bound, at_least=False)


@dataclass(frozen=True)
class Row:
    """One result."""

    name: str
    """In a few words, for one line of a terminal."""
    what: str
    """The same with all sizes."""
    against: str
    result: Spread | None
    """The median over the rounds and its quartiles; None if it was not run."""
    unit: Unit = "x"
    goal: Goal | None = None
    note: str = ""
    """A remark, or why it was not run."""
    sgemm_share: Spread | None = None
    """The fraction of the machine's own rate in the same run, by the FLOPs of the folded form's products."""
    seconds: dict[str, Spread] = field(default_factory=dict)
    """Seconds of a round, for each contestant."""
    peak_bytes: dict[str, int] = field(default_factory=dict)
    """Peak memory of each contestant, beyond weights, gradients and Adam's state."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further numbers of this row."""

    @property
    def met(self) -> bool | None:
        """Whether the goal was reached; None if there is no goal or no result."""
        return None if self.goal is None or self.result is None else self.goal.met(self.result.middle)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; ``from_dict`` is the inverse."""
        return asdict(self) | {"met": self.met}

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> "Row":
        """A row of bench.json."""
        values = {field.name: record[field.name] for field in fields(Row)}
        for name in ("result", "sgemm_share"):
            values[name] = values[name] and Spread(**values[name])
        values["seconds"] = {name: Spread(**spread) for name, spread in values["seconds"].items()}
        return Row(**values | {"goal": values["goal"] and Goal(**values["goal"])})

    def cells(self) -> list[str]:
        """What, against, result, spread, goal, whether met, share of sgemm, peak memory, note."""
        result, share = self.result, self.sgemm_share
        return [
            self.what,
            self.against,
            "-" if result is None else f"{number(result.middle, self.unit)}",
            "-" if result is None else f"{number(result.low, '')} to {number(result.high, '')}",
            "" if self.goal is None else f"{'≥' if self.goal.at_least else '≤'} {number(self.goal.bound, self.unit)}",
            {True: "yes", False: "no", None: ""}[self.met],
            "" if share is None else f"{share.middle:.2f}",
            "; ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in self.peak_bytes.items()),
            self.note,
        ]


HEAD = ["what", "against", "result", "quartiles", "goal", "met", "of sgemm", "peak memory", "note"]


def number(value: float, unit: Unit) -> str:
    """Three digits and the unit."""
    digits = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
    return f"{digits} {unit}".strip()


def on_terminal(rows: Sequence[Row]) -> Table:
    """One line for each row, in 80 columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, width in (("what", 34), ("against", 18), ("result", 8), ("goal", 9), ("met", 3)):
        table.add_column(heading, no_wrap=True, max_width=width)
    for row in rows:
        _, against, result, _, goal, met, *_ = row.cells()
        table.add_row(row.name, against, result, goal, met, style="bold" if row.met is False else "")
    return table


def details(rows: Sequence[Row]) -> Iterator[str]:
    """What the terminal's table leaves out, a paragraph for each row."""
    for row in rows:
        what, against, _, quartiles, _, _, share, memory, note = row.cells()
        words = [f"quartiles {quartiles}", f"{share} of sgemm's rate" if share else "", memory, note]
        yield f"{row.name}: {what}, against {against}: {'; '.join(filter(None, words))}."


def markdown(rows: Sequence[Row], machine: dict[str, Any], command: str) -> str:
    """The table as docs/performance.md has it: with its command, commit and machine."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row.cells())} |" for row in rows]
    place = (
        f"`{command}` at commit {machine['commit']} on {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['threads']} threads, torch {machine['torch']}."
    )
    return "\n".join([place, "", *lines, ""])
