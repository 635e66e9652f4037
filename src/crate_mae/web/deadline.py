"""The moment after which nobody waits for an answer, and how work that is under way notices it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


class Overdue(Exception):
    """Work that was stopped because nobody waits for it any more."""


class Deadline:
    """So many seconds from now.

    A thread can't be stopped from outside. So a worker carries the deadline of what it works on, and asks it wherever
    the work can be left: before every module of a model (``watch``) and at every read of a picture being decoded.
    """

    _here = threading.local()

    def __init__(self, seconds: float):
        self._moment = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; none or less when it has passed."""
        return self._moment - time.monotonic()

    def cut(self) -> None:
        """Nobody waits any more: the one who asked has gone."""
        self._moment = 0.0

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """What this thread does is for an answer that has this deadline."""
        self._here.deadline = self
        try:
            self.check()
            yield
        finally:
            del self._here.deadline

    @classmethod
    def check(cls, *_: object) -> None:
        """Leave the work of this thread if its deadline has passed."""
        deadline = getattr(cls._here, "deadline", None)
        if deadline is not None and deadline.left <= 0:
            raise Overdue


def watch(model: nn.Module) -> None:
    """Let every module of a model ask for the deadline before it runs."""
    for module in model.modules():
        module.register_forward_pre_hook(Deadline.check)
