"""Ctrl-C and SIGTERM ask a run to stop after its step; a second Ctrl-C stops it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interruption:
    """Whether somebody asked."""

    asked: bool = False


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Listen while the block runs; elsewhere than in the main thread, where Python does not allow it, hear nothing."""
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
