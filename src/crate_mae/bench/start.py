"""The time to start: new interpreters, one after the other."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from crate_mae.bench.harness import Run, race
from crate_mae.bench.table import Row, at_most

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "crate-mae --help": ["-m", "crate_mae", "--help"],
    "import torch": ["-c", "import torch"],
    "import crate_mae": ["-c", "import crate_mae"],
    "from crate_mae import *": ["-c", "from crate_mae import *"],
}


@dataclass(frozen=True)
class Sizes:
    """Rounds of the measurement."""

    rounds: int = 9


WHOLE, QUICK = Sizes(), Sizes(rounds=1)


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """A row for each way to start: its seconds beyond those of a reference."""
    contestants: dict[str, Run] = {name: partial(start, words) for name, words in COMMANDS.items()}
    laps = race("start", contestants, sizes.rounds, console)
    for name, other, bound, note in (
        ("crate-mae --help", "python -c pass", 0.3, "torch is not imported"),
        ("import crate_mae", "import torch", 0.5, "names are imported when first used"),
        ("from crate_mae import *", "import torch", 0.5, "every public name"),
    ):
        yield Row(
            f"start: {name}",
            f"start: {name}, seconds more",
            other,
            laps.difference(name, other),
            unit="s",
            goal=at_most(bound),
            note=note,
            seconds={each: laps.spread(each) for each in (name, other)},
        )


def start(words: list[str]) -> None:
    """Run Python with these arguments."""
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
