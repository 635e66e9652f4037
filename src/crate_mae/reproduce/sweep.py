"""Carry out tasks: in order, each once, several side by side."""

import os
import signal
import threading
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

from rich.console import Console

from crate_mae.progress import Advance, progress
from crate_mae.reproduce.tasks import Place, Task


def open_tasks(tasks: Iterable[Task], place: Place) -> list[Task]:
    """What is still to be done of these and of all that must come before them; without what lacks its data."""
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
    """Do all of these. A kill at any moment loses no more than each running training since its last checkpoint."""
    if not tasks:
        return
    with progress("trained or measured", len(tasks), console) as advance:
        if processes == 1:
            for task in tasks:
                task.run(place)
                advance(task.name)
        else:
            _side_by_side(tasks, place, min(processes, len(tasks)), advance)


def _side_by_side(tasks: list[Task], place: Place, processes: int, advance: Advance) -> None:
    open_, waiting = set(tasks), list(tasks)
    running: dict[Future[None], Task] = {}
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (os.getpid(),))
    try:
        while open_:
            # No more than run at once: what waits in the pool could no longer be called off.
            ready = [task for task in waiting if open_.isdisjoint(task.before)][: processes - len(running)]
            waiting = [task for task in waiting if task not in ready]
            running |= {pool.submit(task.run, place): task for task in ready}
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                future.result()
                task = running.pop(future)
                open_.remove(task)
                advance(task.name)
    finally:
        # After Ctrl-C those that run, which have heard it too, finish their step and save.
        pool.shutdown(cancel_futures=True)


def _begin(parent: int) -> None:
    """In each process: one thread, Ctrl-C for trainings alone to hear, and no life after the parent's."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
