"""Quality per second: the processor seconds in which CRATE-MAE and ViT-MAE reach the same validation loss (CIFAR-10).

Both curves are those of the race (``crate-mae bench --race``), which trains each contestant for 20 minutes on one core.
That is longer than the bench may take, so nothing is trained here.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from crate_mae.bench.harness import Spread
from crate_mae.bench.race.recipes import COURSES, CRATE_MAE, VIT_MAE
from crate_mae.bench.table import Row, at_most

RECORDS = (Path("runs/race/race.json"), Path(__file__).parents[3] / "benchmarks" / "race.json")
"""Possible files of the race's record, the newest first: where ``--race`` writes it, and in a checkout."""
COURSE = COURSES["cifar10"].data
Curve = Sequence[tuple[float, float]]
"""Processor seconds and validation loss."""


def rows(records: Sequence[Path], console: Console) -> Iterator[Row]:
    """One row: the median over the seeds of the ratio of both times."""
    name, what = "seconds to the same loss", f"processor seconds to the same validation loss on {COURSE}"
    goal = at_most(0.4)
    record = next((json.loads(path.read_text()) for path in records if path.is_file()), None)
    curves = curves_by_seed(record) if record else []
    if record is None or not curves:
        missing = f"not run: crate-mae bench --race --only {COURSE} --data-root DIR trains both models"
        yield Row(name, what, VIT_MAE.title, None, goal=goal, note=missing)
        return
    met = [to_the_same_loss(ours, theirs) for ours, theirs in curves]
    commit = record["machine"]["commit"][:7]
    own, others, losses = (Spread.of(values) for values in zip(*met, strict=True))
    ends = " and ".join(f"{Spread.of([pair[i][-1][1] for pair in curves]).middle:.3f}" for i in (0, 1))
    yield Row(
        name,
        what,
        VIT_MAE.title,
        Spread.of([a / b for a, b, _ in met]),
        goal=goal,
        note=f"{own.middle:.0f} and {others.middle:.0f} s to a loss of {losses.middle:.3f}, seeds: {len(curves)}; "
        f"after {curves[0][0][-1][0]:.0f} s of one core the losses are {ends}; commit {commit}",
        seconds={CRATE_MAE.title: own, VIT_MAE.title: others},
        details={"command": record["command"], "machine": record["machine"]},
    )


def curves_by_seed(record: dict[str, Any]) -> list[tuple[Curve, Curve]]:
    """CRATE-MAE's curve and ViT-MAE's, for each seed that both were trained with."""
    found: dict[str, dict[int, Curve]] = {CRATE_MAE.title: {}, VIT_MAE.title: {}}
    for result in record["results"]:
        if result["data"] == COURSE and result["contestant"] in found and result.get("curve"):
            found[result["contestant"]][result["seed"]] = result["curve"]
    ours, theirs = found.values()
    return [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]


def to_the_same_loss(ours: Curve, theirs: Curve) -> tuple[float, float, float]:
    """Seconds of each, and the loss: the higher of the two losses at the end, so that both reach it."""
    loss = max(ours[-1][1], theirs[-1][1])
    return reached(ours, loss), reached(theirs, loss), loss


def reached(curve: Curve, loss: float) -> float:
    """The seconds after which a curve first reaches a loss, interpolated linearly between its points."""
    if curve[0][1] <= loss:
        return curve[0][0]
    for (before, above), (after, below) in pairwise(curve):
        if below <= loss:
            return before + (after - before) * (above - loss) / (above - below)
    raise ValueError(f"the curve never reaches {loss}")
