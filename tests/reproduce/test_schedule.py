"""The order of tasks, with tasks that only record that they ran."""

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console

from crate_mae.reproduce import schedule
from crate_mae.reproduce.schedule import carry_out, open_tasks
from crate_mae.reproduce.tasks import Place, Task
from tests.reproduce.tiny import tiny

DONE: list[str] = []


@dataclass(frozen=True)
class Note(Task):
    name: str = ""
    before: "tuple[Note, ...]" = ()
    sets: tuple[str, ...] = ("digits",)
    fails: bool = field(default=False, compare=False)

    def is_done(self, place: Place) -> bool:
        return self.name in DONE

    def run(self, place: Place) -> None:
        assert all(first.name in DONE for first in self.before)
        if self.fails:
            raise ValueError(self.name)
        DONE.append(self.name)


class Threads(ThreadPoolExecutor):
    """Threads instead of processes; no task may wait in the pool, where it could not be cancelled."""

    def __init__(self, count: int, *_: object):
        super().__init__(count)
        self.count, self.given = count, []

    def submit(self, *work):  # type: ignore[no-untyped-def]
        assert sum(not future.done() for future in self.given) < self.count
        self.given.append(super().submit(*work))
        return self.given[-1]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    DONE.clear()
    monkeypatch.setattr(schedule, "ProcessPoolExecutor", Threads)
    return Place(tmp_path, tiny(), None, "cpu")


A, B = Note("a"), Note("b")
C = Note("c", (A, B))
D = Note("d", (A,))


@pytest.mark.parametrize("processes", [1, 3])
def test_each_is_done_once_and_after_what_it_needs(place: Place, processes: int) -> None:
    tasks = open_tasks([C, D, C, A], place)
    assert sorted(task.name for task in tasks) == ["a", "b", "c", "d"]
    carry_out(tasks, place, processes, Console(quiet=True))
    assert sorted(DONE) == ["a", "b", "c", "d"]
    assert open_tasks([C, D], place) == []


def test_no_more_is_begun_than_runs_at_once(place: Place) -> None:
    carry_out([Note(str(number)) for number in range(20)], place, 2, Console(quiet=True))
    assert len(DONE) == 20


@pytest.mark.parametrize("processes", [1, 3])
def test_one_that_fails_stops_the_rest_and_what_is_done_stays(place: Place, processes: int) -> None:
    broken = Note("e", (A,), fails=True)
    later = Note("f", (broken,))
    with pytest.raises(ValueError, match="e"):
        carry_out(open_tasks([later], place), place, processes, Console(quiet=True))
    assert DONE == ["a"]
    assert open_tasks([later], place) == [broken, later]


def test_what_lacks_its_data_is_left_out_with_all_that_is_for_it_alone(place: Place) -> None:
    absent = Note("g", (A,), sets=("digits", "cifar10"))
    assert open_tasks([absent], place) == []
    assert open_tasks([absent, replace(D, name="h")], place) == [A, replace(D, name="h")]


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_within_a_task_is_shown_while_it_runs(
    place: Place, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = threading.Event()

    class Waits(Note):
        def share_done(self, place: Place) -> float:
            return 0.25

        def run(self, place: Place) -> None:
            assert seen.wait(30)
            DONE.append(self.name)

    class Noted(schedule.Board):
        def show(self, name: str, share: float | None, note: str = "") -> None:
            super().show(name, share, note)
            assert (name, share) == ("slow", 0.25)
            seen.set()

    monkeypatch.setattr(schedule, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(schedule, "Board", Noted)
    console = Console(file=io.StringIO())
    carry_out([Waits("slow")], place, processes, console)
    assert "1/1  slow" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("processes", [1, 3])
def test_what_does_not_fit_before_the_deadline_is_not_begun(place: Place, processes: int) -> None:
    class Lasts(Note):
        def seconds(self, place: Place) -> float:
            return float(self.name)

    short, long = Lasts("0.5"), Lasts("7200")
    after = Note("after", (long,))
    carry_out([long, after, short], replace(place, deadline=time.time() + 600), processes, Console(quiet=True))
    assert DONE == ["0.5"]
    carry_out([Lasts("1")], replace(place, deadline=time.time()), processes, Console(quiet=True))
    assert DONE == ["0.5"]


def test_the_pace_follows_what_tasks_took(place: Place) -> None:
    class Lasts(Note):
        def seconds(self, place: Place) -> float:
            return 100.0

        def share_done(self, place: Place) -> float:
            return 0.5

    pace, task = schedule.Pace(work=0.0, clock=0.0), Lasts("a")
    pace.learn(task, place, 300.0)
    assert pace.left(task, place) == 150.0
    assert pace.in_time(task, replace(place, deadline=time.time() + 160))
    assert not pace.in_time(task, replace(place, deadline=time.time() + 140))
