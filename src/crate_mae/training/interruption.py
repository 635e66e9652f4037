"""Ctrl-C and SIGTERM ask a run to stop after its step; a second Ctrl-C stops it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interruption:
    """Whether the run was asked to stop."""

    asked: bool = False


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Catch the signals while the block runs; only in the main thread, since Python allows it nowhere else."""
    heard = Interruption()

    def handle(number: int, frame: FrameType | None) -> None:
        if heard.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        heard.asked = True

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
