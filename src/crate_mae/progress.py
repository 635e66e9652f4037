"""Progress of anything that takes more than a few seconds: a live bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_LINES = 10  # lines in total if there is no terminal


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
