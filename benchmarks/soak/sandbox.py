"""Cases in worker processes with limits on time and memory: a case that crashes or hangs costs its worker alone."""

import faulthandler
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

_context = multiprocessing.get_context("fork")
ADDRESSES = 12 * 2**30
"""Bytes of address space of a worker; torch alone reserves several gigabytes."""


@dataclass(frozen=True)
class Report:
    """What came of one case."""

    number: int
    kind: str
    problem: str | None
    """What is wrong; None if it went as it should."""
    seconds: float = 0.0
    megabytes: float = 0.0
    """What the case took beyond what the worker had before it."""
    peak: float = 0.0
    """The worker's largest memory in MB."""


Try = Callable[[int], tuple[str, str | None, float]]
"""Runs the case of this number: its kind, what is wrong with its outcome, and the megabytes that it may take."""


def run(
    make: Callable[[], Try], numbers: Iterable[int], workers: int, seconds: float, goes_on: Callable[[], bool]
) -> Iterator[Report]:
    """Reports of the cases, in any order. ``make`` is called once in each worker; ``seconds`` is a case's time limit.

    The limit counts processor time in the worker, since other programs may hold the processor; one that sleeps is ended
    after ten times that.
    """
    todo = iter(numbers)
    alive = [_Worker(make, seconds) for _ in range(workers)]
    for worker in alive:
        worker.give(next(todo, None))
    while any(worker.case is not None for worker in alive):
        busy = [worker for worker in alive if worker.case is not None]
        ready = wait([worker.connection for worker in busy], timeout=0.5)
        for place, worker in enumerate(alive):
            if worker.case is None:
                continue
            if worker.connection in ready:
                report = worker.take()
            elif time.monotonic() > worker.began + 10 * seconds + 60:
                report = worker.end("hangs")
            else:
                continue
            yield report
            if not worker.process.is_alive() or report.problem in ("hangs", "crashes"):
                worker = alive[place] = _Worker(make, seconds)
            worker.give(next(todo, None) if goes_on() else None)
    for worker in alive:
        worker.end("")


@dataclass
class _Worker:
    make: Callable[[], Try]
    seconds: float
    case: int | None = None
    began: float = 0.0
    process: Any = field(init=False)
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs, self.make, self.seconds), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, number: int | None) -> None:
        self.case, self.began = number, time.monotonic()
        if number is not None:
            self.connection.send(number)

    def take(self) -> Report:
        try:
            return self.connection.recv()
        except EOFError:
            return self.end("crashes")

    def end(self, problem: str) -> Report:
        self.process.join(0.5)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        slow = code in (-signal.SIGXCPU, -signal.SIGPROF)
        return Report(self.case or 0, "ended", "takes too long" if slow else problem, self.seconds)


def _serve(connection: Connection, make: Callable[[], Try], seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()  # the report says that it crashed
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    attempt = make()
    while True:
        try:
            number = connection.recv()
        except EOFError:
            return
        before = _reset_peak()
        signal.setitimer(signal.ITIMER_PROF, seconds)  # when it runs out, the signal ends this process
        start = time.process_time()
        try:
            kind, problem, allowed = attempt(number)
        except BaseException as error:  # whatever is not a sentence
            kind, problem, allowed = "raised", f"{type(error).__name__}: {error}"[:300], float("inf")
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent, peak = time.process_time() - start, _peak()
        if problem is None and peak - before > allowed:
            problem = f"takes {peak - before:.0f} MB, and {allowed:.0f} are justified"
        connection.send(Report(number, kind, problem, spent, max(peak - before, 0.0), peak))


def _reset_peak() -> float:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak()


def _peak() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
