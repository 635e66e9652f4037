"""One of two torchrun workers killed, again and again: the run restarts by itself and ends as the unbroken one."""

import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.soak.record import Budget, Row
from tests.training.processes import Cold, finish_group, free_port
from tests.training.runs import assert_same, words
from tests.training.test_kill import begun

KILLS = 5
"""Of one run."""
PATIENCE = 900.0
SETTINGS = {"steps": 60, "precision": "float64"}


def row() -> Row:
    return Row(
        "one of two torchrun workers killed, again and again",
        "restarts by itself, ends with the same loss",
        50,
        "kills",
    )


def run(budget: Budget) -> None:
    chance = random.Random(f"{budget.seed} torchrun")
    with tempfile.TemporaryDirectory() as made:
        whole = Path(made) / "whole"
        codes, said = finish_group(words(whole, **SETTINGS), Path(made) / "log")
        assert codes == [0, 0], said
        number = 0
        while budget.goes_on:
            place = Path(made) / str(number)
            place.mkdir()
            try:
                story(place, whole, chance, budget)
            except AssertionError as error:
                budget.fail({"number": number}, f"torchrun: {str(error)[:500]}", place)
            number += 1


def story(place: Path, whole: Path, chance: random.Random, budget: Budget) -> None:
    """One run, killed ``KILLS`` times as soon as it trains again."""
    run = place / "run"
    launcher = ["--max-restarts", str(4 * KILLS), "--nproc-per-node", "2", "--master-port", str(free_port())]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "crate_mae"]
    began = time.monotonic()
    kills = 0
    with Cold([*command, *words(run, "--resume", **SETTINGS)], place / "said") as process:
        while kills < KILLS and budget.goes_on and process.is_alive():
            starts = kills + 1
            while begun(run) < starts and process.is_alive():
                assert time.monotonic() < began + PATIENCE, f"it takes too long: {process.words[-1000:]}"
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.5))
            with suppress(ProcessLookupError, IndexError, FileNotFoundError):
                os.kill(chance.choice(process.workers()), signal.SIGKILL)
                kills += 1
                budget.row.add("restarts")
        assert process.wait(PATIENCE) == 0, process.words[-1000:]
        assert "Traceback" not in process.words, process.words[process.words.index("Traceback") :][:1000]
    budget.row.worst_seconds = max(budget.row.worst_seconds, time.monotonic() - began)
    assert_same(run, whole, 1e-11)
    budget.row.numbers["runs compared"] = str(int(budget.row.numbers.get("runs compared", "0")) + 1)
    more = begun(run) - 1 - kills
    budget.row.numbers["restarts beyond one a kill"] = str(
        int(budget.row.numbers.get("restarts beyond one a kill", "0")) + max(more, 0)
    )
