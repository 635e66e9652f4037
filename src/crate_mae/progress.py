"""Progress of anything that takes more than a few seconds: a live bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_LINES = 10  # lines in all where there is no terminal


class Advance(Protocol):
    """Called after each step, with a few words on how it went."""

    def __call__(self, note: str = "") -> None: ...


@contextmanager
def progress(label: str, total: int, console: Console | None = None) -> Iterator[Advance]:
    """Show a loop of ``total`` steps while it runs."""
    console = console or Console()
    if console.is_terminal:
        with _bar(label, total, console) as advance:
            yield advance
    else:
        yield _lines(label, total, console)


@contextmanager
def _bar(label: str, total: int, console: Console) -> Iterator[Advance]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as bar:
        task = bar.add_task(label, total=total, note="")

        def advance(note: str = "") -> None:
            bar.update(task, advance=1, note=note)

        yield advance


def _lines(label: str, total: int, console: Console) -> Advance:
    start, done = time.monotonic(), 0

    def advance(note: str = "") -> None:
        nonlocal done
        done += 1
        if done * PLAIN_LINES // total > (done - 1) * PLAIN_LINES // total:
            spent = time.monotonic() - start
            left = spent / done * (total - done)
            line = f"{label} {done}/{total}  {note}  {spent:.0f} s, {left:.0f} s left"
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    return advance
