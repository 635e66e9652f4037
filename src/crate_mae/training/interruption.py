"""Ctrl-C and SIGTERM ask a run to stop after its step; a second Ctrl-C stops it at once.

A run that waits for images longer than ``PATIENCE`` after the first signal has nothing to finish: the waiting ends.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

PATIENCE = 2.0
"""Seconds. A batch that is being transferred arrives by then; interrupting it would make its worker print an error."""


class Stopped(BaseException):
    """The run was asked to stop while it waited. No ``Exception``, which a decoder of images may catch."""


@dataclass
class Interruption:
    """Whether the run was asked to stop."""

    answer: str = ""
    """What the first signal is answered with at once, on standard error."""
    asked: bool = False
    waiting: bool = False

    @contextmanager
    def while_waiting(self, may_end: bool) -> Iterator[None]:
        """With ``may_end``, a signal that comes while the block runs raises ``Stopped`` there after ``PATIENCE``."""
        self.waiting = may_end
        try:
            yield
        finally:
            self.waiting = False


@contextmanager
def interruption(answer: str = "") -> Iterator[Interruption]:
    """Catch the signals while the block runs; only in the main thread, since Python allows it nowhere else."""
    heard = Interruption(answer)

    def handle(number: int, frame: FrameType | None) -> None:
        if heard.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if heard.answer and not heard.asked:
            os.write(2, f"{heard.answer}\n".encode())  # safe in a handler
        heard.asked = True
        if heard.waiting:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    def end_waiting(number: int, frame: FrameType | None) -> None:
        if heard.waiting:
            raise Stopped

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    handlers = {signal.SIGINT: handle, signal.SIGTERM: handle, signal.SIGALRM: end_waiting}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield heard
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
