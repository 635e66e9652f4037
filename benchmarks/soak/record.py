"""What a soak counts, and its table."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

KINDS = 8
"""Kinds of cases that the table names; of more it has the number."""


@dataclass
class Row:
    """One test of the soak."""

    test: str
    goal: str
    wanted: int
    """How many cases the goal has."""
    unit: str
    count: int = 0
    """Cases tried."""
    details: dict[str, int] = field(default_factory=dict)
    """Counts of kinds of cases."""
    findings: list[str] = field(default_factory=list)
    """A sentence for each case that failed; the folder of failures has the case."""
    worst_seconds: float = 0.0
    """Of the slowest case."""
    peak_mb: float = 0.0
    """The largest memory of a process that was tested, in MB."""
    numbers: dict[str, str] = field(default_factory=dict)
    """What else was measured."""
    seconds: float = 0.0
    """Spent on this row."""

    def add(self, kind: str, seconds: float = 0.0, megabytes: float = 0.0, cases: int = 1) -> None:
        self.count += cases
        self.details[kind] = self.details.get(kind, 0) + cases
        self.worst_seconds = max(self.worst_seconds, seconds)
        self.peak_mb = max(self.peak_mb, megabytes)


@dataclass(frozen=True)
class Budget:
    """The time that a row may take, and where its failures go."""

    row: Row
    seed: int
    end: float
    """By ``time.monotonic``."""
    failures: Path
    say: Any
    """Prints a line of progress."""

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    @property
    def goes_on(self) -> bool:
        return self.left > 0 and self.row.count < self.row.wanted

    def fail(self, case: dict[str, Any], what: str, *files: Path, content: bytes | None = None) -> None:
        """Note a failure, and keep what is needed to replay it."""
        self.row.findings.append(what)
        self.say(f"FAILED  {what}")
        folder = self.failures / f"{len(self.row.findings):04d}"
        folder.mkdir(parents=True, exist_ok=True)
        about = {"row": self.row.test, "seed": self.seed, "what": what, **case}
        (folder / "case.json").write_text(json.dumps(about, indent=1, default=str) + "\n")
        if content is not None:
            (folder / "content").write_bytes(content)
        for path in files:
            if path.is_dir():
                shutil.copytree(path, folder / path.name, dirs_exist_ok=True)
            elif path.exists():
                shutil.copy(path, folder / path.name)


@contextmanager
def timed(row: Row) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    finally:
        row.seconds += time.monotonic() - start


def to_json(rows: list[Row], about: dict[str, Any]) -> str:
    return json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"


def markdown(record: dict[str, Any]) -> str:
    """The table of docs/reliability.md."""
    lines = [
        "| test | goal | done | failures | slowest case | peak memory | time |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        done = f"{row['count']:,} of {row['wanted']:,} {row['unit']}"
        if len(row["details"]) > KINDS:
            done += f" ({len(row['details'])} kinds)"
        elif row["details"]:
            done += " (" + ", ".join(f"{count:,} {name}" for name, count in row["details"].items()) + ")"
        if row["numbers"]:
            done += "; " + ", ".join(f"{name} {value}" for name, value in row["numbers"].items())
        slowest = f"{row['worst_seconds']:.1f} s" if row["worst_seconds"] else "-"
        peak = f"{row['peak_mb']:,.0f} MB" if row["peak_mb"] else "-"
        spent = f"{row['seconds'] / 60:.1f} min"
        cells = (row["test"], row["goal"], done, str(len(row["findings"])), slowest, peak, spent)
        lines.append(f"| {' | '.join(cells)} |")
    about = f"Seed {record['seed']}, commit {record['commit']}, {record['machine']}: `{record['command']}`."
    return "\n".join([*lines, "", about, ""])
