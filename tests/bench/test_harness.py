"""Turns, warm-up, medians and ratios, with a fake clock."""

import io

import pytest
from rich.console import Console

from crate_mae.bench.harness import Laps, Spread, race


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def taking(self, name: str, *seconds: float) -> "Runner":
        return Runner(self, name, list(seconds))


class Runner:
    def __init__(self, clock: FakeClock, name: str, seconds: list[float]):
        self.clock, self.name, self.seconds = clock, name, seconds

    def __call__(self) -> None:
        self.clock.log.append(self.name)
        self.clock.now += self.seconds.pop(0)


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_contestants_take_turns_and_the_warm_up_does_not_count() -> None:
    clock = FakeClock()
    contestants = {"a": clock.taking("a", 100, 1, 2), "b": clock.taking("b", 100, 3, 8)}
    laps = race("test", contestants, rounds=2, console=quiet(), clock=clock)
    assert laps.seconds == {"a": [1, 2], "b": [3, 8]}
    assert clock.log == ["a", "b", "b", "a", "a", "b"]
    assert laps.spread("a") == Spread(1.5, 1.25, 1.75)


def test_a_ratio_is_taken_within_a_round() -> None:
    """A machine that slows to a tenth in the second round changes neither the ratio nor its spread."""
    laps = Laps({"quick": [1, 10, 1], "slow": [2, 20, 2]})
    assert laps.speedup("quick", "slow") == Spread(2, 2, 2)
    assert laps.speedup("slow", "quick") == Spread(0.5, 0.5, 0.5)
    assert laps.difference("slow", "quick") == Spread(1, 1, 5.5)


@pytest.mark.parametrize(
    ("values", "spread"),
    [([4], (4, 4, 4)), ([1, 3], (2, 1.5, 2.5)), ([5, 1, 3, 2, 4], (3, 2, 4)), ([1, 1, 1, 100], (1, 1, 25.75))],
)
def test_median_and_quartiles(values: list[float], spread: tuple[float, float, float]) -> None:
    assert Spread.of(values) == Spread(*spread)
