"""The server's log: one line for each kind of fault, however often it comes."""

import logging
import sys
import time
from collections import Counter
from pathlib import Path
from traceback import extract_tb

AGAIN = 60.0
"""Seconds after which a kind of fault is reported again, with how often it came."""
LONGEST = 500
"""Characters of a message."""
QUIET = ("Invalid HTTP request received.",)
"""Mistakes of clients, which were answered; they are not logged."""


class Faults(logging.Handler):
    """Writes a line for a kind of fault, and again after a while if it still comes.

    A kind is a line of code that raised, or the words of a warning. Nobody who sends bad requests can fill a disk.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reported: dict[str, float] = {}
        self._silent: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg in QUIET:
            return
        kind, words = _describe(record)
        now = time.monotonic()
        if now < self._reported.get(kind, -AGAIN) + AGAIN:
            self._silent[kind] += 1
            return
        times = f" ({self._silent.pop(kind) + 1} times since)" if self._silent[kind] else ""
        self._reported[kind] = now
        print(f"crate-mae: {words}{times}", file=sys.stderr, flush=True)


def log_faults() -> None:
    """Let the loggers of the server and of asyncio write by ``Faults``."""
    handler = Faults()
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False


def _describe(record: logging.LogRecord) -> tuple[str, str]:
    """The kind of a fault, and the fault in one line."""
    error = record.exc_info[1] if record.exc_info else None
    message = _printable(record.getMessage().partition("\n")[0])
    if error is None:
        return str(record.msg).partition("\n")[0], message  # asyncio adds lines about the connection
    frames = extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} {place}", f"{type(error).__name__} at {place}: {_printable(str(error))} ({message})"


def _printable(text: str) -> str:
    """In one line, and without control characters, which could command a terminal."""
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))[:LONGEST]
