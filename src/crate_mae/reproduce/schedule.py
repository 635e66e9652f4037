"""Run tasks: each once, after those that it needs, several side by side, until a deadline if there is one."""

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from rich.console import Console

from crate_mae.progress import Board
from crate_mae.reproduce.tasks import Place, Task

LOOK_EVERY = 1.0
"""Seconds between two updates of the progress display."""
PRIOR = 120.0
"""The weight of the initial estimate of the pace, in seconds of work."""


def open_tasks(tasks: Iterable[Task], place: Place) -> list[Task]:
    """The tasks that are not done yet, and the tasks that they need; without those whose data are missing."""
    found: dict[Task, None] = {}

    def visit(task: Task) -> None:
        if task not in found and all(map(place.has, task.sets)) and not task.is_done(place):
            for first in task.before:
                visit(first)
            found[task] = None

    for task in tasks:
        visit(task)
    return list(found)


def what_it_takes(task: Task, place: Place) -> str:
    """Why there is no result, and how long one takes, with the training that it needs."""
    seconds = sum(each.seconds(place) or 0.0 for each in open_tasks([task], place))
    return f"not run: {max(seconds / 60, 1):.0f} min of one core" if seconds else "not run"


@dataclass
class Pace:
    """Wall-clock seconds per second of work of one core, from the tasks that are finished."""

    work: float = PRIOR
    clock: float = PRIOR

    def learn(self, task: Task, place: Place, took: float) -> None:
        """Take a finished task into account."""
        if seconds := task.seconds(place):
            self.work += seconds
            self.clock += took

    def left(self, task: Task, place: Place) -> float:
        """Wall-clock seconds that a task still takes."""
        share = task.share_done(place) or 0.0
        return (task.seconds(place) or 0.0) * (1 - share) * self.clock / self.work

    def in_time(self, task: Task, place: Place) -> bool:
        """Whether a task ends before the deadline."""
        return place.deadline is None or time.time() + self.left(task, place) < place.deadline


def carry_out(tasks: list[Task], place: Place, processes: int, console: Console) -> None:
    """Run all of these, or what fits before the deadline.

    A kill at any moment loses at most what each training did since its last checkpoint.
    """
    if not tasks:
        return
    running: set[Task] = set()
    processes = min(processes, len(tasks))
    with Board("trained or measured", len(tasks), console) as board, _watched(running, place, board):
        if processes == 1:
            _one_by_one(tasks, place, running, board)
        else:
            with _one_thread_each():
                _side_by_side(tasks, place, processes, running, board)


def _one_by_one(tasks: list[Task], place: Place, running: set[Task], board: Board) -> None:
    open_, pace = list(tasks), Pace()
    while task := next((task for task in open_ if _is_next(task, set(open_), pace, place)), None):
        began = time.monotonic()
        running.add(task)
        task.run(place)
        running.remove(task)
        open_.remove(task)
        if task.is_done(place):
            pace.learn(task, place, time.monotonic() - began)
            board.finish(task.name, _time_left(open_, pace, place, 1))


def _side_by_side(tasks: list[Task], place: Place, processes: int, running: set[Task], board: Board) -> None:
    open_, waiting, pace = set(tasks), list(tasks), Pace()
    submitted: dict[Future[None], tuple[Task, float]] = {}
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (os.getpid(),))
    try:
        while True:
            # No more than run at once: a task that waits in the pool can't be cancelled any more.
            for task in [task for task in waiting if _is_next(task, open_, pace, place)][: processes - len(submitted)]:
                waiting.remove(task)
                running.add(task)
                submitted[pool.submit(task.run, place)] = task, time.monotonic()
            if not submitted:
                break
            for future in wait(submitted, return_when=FIRST_COMPLETED).done:
                task, began = submitted.pop(future)
                running.remove(task)
                future.result()
                if task.is_done(place):
                    open_.remove(task)
                    pace.learn(task, place, time.monotonic() - began)
                    board.finish(task.name, _time_left(open_, pace, place, processes))
    finally:
        # Ctrl-C reaches the running trainings too: they finish their step and save.
        pool.shutdown(cancel_futures=True)


def _is_next(task: Task, open_: set[Task], pace: Pace, place: Place) -> bool:
    """Whether a task has what it needs, and fits before the deadline."""
    return open_.isdisjoint(task.before) and pace.in_time(task, place)


def _time_left(tasks: Iterable[Task], pace: Pace, place: Place, processes: int) -> str:
    minutes = sum(pace.left(task, place) for task in tasks) / processes / 60
    return f"about {minutes:.0f} min left" if minutes else ""


@contextmanager
def _watched(running: set[Task], place: Place, board: Board) -> Iterator[None]:
    """Show the progress of the running tasks, from the files that they write, in a separate thread."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_EVERY):
            for task in list(running):
                share = task.share_done(place)
                if task in running:
                    board.show(task.name, share)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """One thread for processes that start inside the block: libraries read the variable when they are loaded."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


THREADS = "OMP_NUM_THREADS"


def _begin(parent: int) -> None:
    """Set up a process: one thread, Ctrl-C ignored outside trainings, and an end when the parent ends."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
