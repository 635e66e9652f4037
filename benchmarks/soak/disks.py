"""A disk that is full, read-only or gone from each write of a run on, in turn."""

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import crate_mae
from benchmarks.soak.record import Budget, Row
from crate_mae.training.training_state import checkpoints_in
from tests.training import faults
from tests.training.processes import finish
from tests.training.runs import assert_same, words

SETTINGS = {"steps": 12, "log_every": 3, "checkpoint_every": 4, "evaluate_every": 4, "pictures": 0}
MEGABYTES = 4
MISSES = 4
"""After this number of runs in a row that ended before the fault, the next fault is at the first write again."""
REMEDIES = ("make room", "make it writable", "check that its folder is there", "check the disk", "choose another")


def row() -> Row:
    return Row(
        "disk full at every write in turn, read-only, removed under it",
        "a sentence that says what to do; the last good checkpoint loads; the resumed run ends as the unbroken one",
        150,
        "runs",
    )


def run(budget: Budget) -> None:
    """Each write of the run in turn, for each fault; then again with other amounts of room."""
    chance = random.Random(f"{budget.seed} disks")
    with tempfile.TemporaryDirectory() as made:
        whole = Path(made) / "whole" / "run"
        code, said = finish(words(whole, **SETTINGS), Path(made) / "log")
        assert code == 0, said
        last = dict.fromkeys(FAULTS, 0)
        """The write that each fault has come to."""
        missed = dict.fromkeys(FAULTS, 0)
        turn = 0
        while budget.goes_on:
            name = list(FAULTS)[turn % len(FAULTS)]
            turn += 1
            last[name] += 1
            place, case = Path(made) / f"{turn}", {"fault": name, "write": last[name]}
            try:
                with small_disk(place) as mounted:
                    met = story(name, last[name], place, mounted, whole, chance, budget)
            except AssertionError as error:
                budget.fail(case, f"{name} at write {last[name]}: {str(error)[:500]}", place.with_name(f"{turn}.log"))
                met = True
            missed[name] = 0 if met else missed[name] + 1
            if missed[name] == MISSES:
                last[name] = missed[name] = 0


@contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """A disk of its own where the system lets us mount one; else an ordinary folder."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "none", str(place)]
    mounted = shutil.which("mount") is not None and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", place], check=True)


def story(
    name: str, write: int, place: Path, mounted: bool, whole: Path, chance: random.Random, budget: Budget
) -> bool:
    """One run that meets the fault, and its resume; False where it had ended before that write."""
    run, log = place / "run", place.with_name(f"{place.name}.log")
    fault = FAULTS[name](place, mounted, chance)
    began = time.monotonic()
    code, said = finish(words(run, "--resume", **SETTINGS), log, partial(faults.at_a_write, write, fault, run))
    if code == 0:
        return False
    error = said.splitlines()[-1]
    assert code == 2, f"exit code {code}: {said[-500:]}"
    assert "Traceback" not in said, said[-1000:]
    assert error.startswith("crate-mae: error: "), said[-500:]
    assert any(remedy in error for remedy in REMEDIES), error
    for checkpoint in checkpoints_in(run / "checkpoints")[-1:]:
        crate_mae.load(checkpoint)
    if mounted:
        (place / "ballast").unlink(missing_ok=True)
    code, said = finish(words(run, "--resume", **SETTINGS), log)
    assert code == 0, f"resumed: {said[-500:]}"
    assert_same(run, whole)
    budget.row.add(name, time.monotonic() - began)
    return True


def _full(place: Path, mounted: bool, chance: random.Random) -> Callable[[], None]:
    room = chance.choice((0, 0, 4096, 20_000, 60_000))
    return faults.Full(place, room) if mounted else faults.Full(None, 20_000)


def _read_only(place: Path, mounted: bool, chance: random.Random) -> Callable[[], None]:
    return faults.ReadOnly()


def _removed(place: Path, mounted: bool, chance: random.Random) -> Callable[[], None]:
    return faults.Removed(place / "run")


FAULTS: dict[str, Callable[[Path, bool, random.Random], Callable[[], None]]] = {
    "full": _full,
    "read-only": _read_only,
    "removed": _removed,
}
