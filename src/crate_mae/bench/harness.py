"""Contestants that take turns, and the ratio of their times with its spread.

Times on a shared machine drift by more than the differences to be measured. So every contestant runs once in each
round, in an order that rotates; a ratio is taken within each round, and the median of these ratios and their quartiles
are reported.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from crate_mae.progress import progress

Run = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Spread:
    """A median and its quartiles."""

    middle: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """The median and quartiles of these values."""
        if len(values) == 1:
            return Spread(values[0], values[0], values[0])
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(middle, low, high)


@dataclass(frozen=True)
class Laps:
    """Seconds of each contestant in each round."""

    seconds: dict[str, list[float]]

    def spread(self, name: str) -> Spread:
        """The spread of a contestant's seconds over the rounds."""
        return Spread.of(self.seconds[name])

    def spreads(self) -> dict[str, Spread]:
        """``spread`` of every contestant."""
        return {name: self.spread(name) for name in self.seconds}

    def speedup(self, name: str, other: str) -> Spread:
        """How many times as fast as the other, within each round."""
        return Spread.of([b / a for a, b in zip(self.seconds[name], self.seconds[other], strict=True)])

    def difference(self, name: str, other: str) -> Spread:
        """Seconds more than the other, within each round."""
        return Spread.of([a - b for a, b in zip(self.seconds[name], self.seconds[other], strict=True)])


def race(
    label: str,
    contestants: Mapping[str, Run],
    rounds: int,
    console: Console,
    warm_up: int = 1,
    clock: Clock = time.perf_counter,
) -> Laps:
    """Let every contestant run once in each round; the rounds of the warm-up are not counted."""
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.freeze()  # existing objects stay: collecting them each time would take seconds
    with progress(label, warm_up + rounds, console) as advance:
        for number in range(warm_up + rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                gc.collect()  # garbage of the previous contestant must not cost this one time
                start = clock()
                contestants[name]()
                spent = clock() - start
                if number >= warm_up:
                    seconds[name].append(spent)
            advance()
    gc.unfreeze()
    return Laps(seconds)
