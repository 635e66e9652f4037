"""Progress of anything that takes more than a few seconds: a live bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PLAIN_LINES = 10  # lines in total if there is no terminal
LINE_SECONDS = 60.0  # between two lines about one of several tasks


@runtime_checkable
class Advance(Protocol):
    """Called after each step, with a short note."""

    def __call__(self, note: str = "") -> None: ...


@contextmanager
def progress(label: str, total: int, console: Console | None = None, done: int = 0) -> Iterator[Advance]:
    """Show the progress of a loop of ``total`` steps, of which ``done`` were done before."""
    console = console or Console()
    if console.is_terminal:
        with _bar(label, total, console, done) as advance:
            yield advance
    else:
        yield _lines(label, total, console, done)


@contextmanager
def _bar(label: str, total: int, console: Console, done: int) -> Iterator[Advance]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as bar:
        task = bar.add_task(label, total=total, completed=done, note="")

        def advance(note: str = "") -> None:
            bar.update(task, advance=1, note=note)

        yield advance


def _lines(label: str, total: int, console: Console, done: int) -> Advance:
    start, before = time.monotonic(), done

    def advance(note: str = "") -> None:
        nonlocal done
        done += 1
        if done * PLAIN_LINES // total > (done - 1) * PLAIN_LINES // total:
            spent = time.monotonic() - start
            left = spent / (done - before) * (total - done)
            line = f"{label} {done}/{total}  {note}  {spent:.0f} s, {left:.0f} s left"
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    return advance


class Board:
    """Several tasks at once: on a terminal a bar for each that runs and one for all, elsewhere a line now and then."""

    def __init__(self, label: str, total: int, console: Console):
        self.console, self.total, self.done = console, total, 0
        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        note = TextColumn("{task.fields[note]}")
        self.bars = Progress(*columns, note, console=console, disable=not console.is_terminal)
        self.all = self.bars.add_task(label, total=total, note="")
        self.tasks: dict[str, TaskID] = {}
        self.printed: dict[str, float] = {}

    def __enter__(self) -> "Board":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def show(self, name: str, share: float | None, note: str = "") -> None:
        """A task runs, and this share of it is done; None where that is not known."""
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=None, note="")
        total, completed = (None, 0.0) if share is None else (100.0, 100 * share)
        self.bars.update(self.tasks[name], total=total, completed=completed, note=note)
        now = time.monotonic()
        if not self.console.is_terminal and now - self.printed.setdefault(name, now) >= LINE_SECONDS:
            self.printed[name] = now
            self._print(f"{name} {'' if share is None else f'{share:.0%}'}  {note}")

    def finish(self, name: str, note: str = "") -> None:
        """A task is done."""
        self.done += 1
        self.bars.advance(self.all)
        if name in self.tasks:
            self.bars.remove_task(self.tasks.pop(name))
        self._print(f"{self.done}/{self.total}  {name}  {note}")

    def _print(self, line: str) -> None:
        self.console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)
