"""Run tasks: each once, after those that it needs, several side by side."""

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context

from rich.console import Console

from crate_mae.progress import Board
from crate_mae.reproduce.tasks import Place, Task

LOOK_EVERY = 1.0
"""Seconds between two looks at how far the running tasks are."""


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


def carry_out(tasks: list[Task], place: Place, processes: int, console: Console) -> None:
    """Run all of these. A kill at any moment loses at most what each training did since its last checkpoint."""
    if not tasks:
        return
    running: set[Task] = set()
    with Board("trained or measured", len(tasks), console) as board, _watched(running, place, board):
        if processes == 1:
            for task in tasks:
                running.add(task)
                task.run(place)
                running.remove(task)
                board.finish(task.name)
        else:
            _side_by_side(tasks, place, min(processes, len(tasks)), running, board)


def _side_by_side(tasks: list[Task], place: Place, processes: int, running: set[Task], board: Board) -> None:
    open_, waiting = set(tasks), list(tasks)
    submitted: dict[Future[None], Task] = {}
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (os.getpid(),))
    try:
        while open_:
            # No more than run at once: a task that waits in the pool can't be cancelled any more.
            ready = [task for task in waiting if open_.isdisjoint(task.before)][: processes - len(submitted)]
            waiting = [task for task in waiting if task not in ready]
            submitted |= {pool.submit(task.run, place): task for task in ready}
            running |= set(ready)
            for future in wait(submitted, return_when=FIRST_COMPLETED).done:
                task = submitted.pop(future)
                running.remove(task)
                future.result()
                open_.remove(task)
                board.finish(task.name)
    finally:
        # Ctrl-C reaches the running trainings too: they finish their step and save.
        pool.shutdown(cancel_futures=True)


@contextmanager
def _watched(running: set[Task], place: Place, board: Board) -> Iterator[None]:
    """Show how far the running tasks are, by what they have written, in a thread of its own."""
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


def _begin(parent: int) -> None:
    """In each process: one thread, Ctrl-C left to the trainings, and an end when the parent ends."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
