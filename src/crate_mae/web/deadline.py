"""When a request is given up, and how work that is under way notices it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


class Overdue(Exception):
    """Work that was stopped because nobody waits for it any more."""


class Deadline:
    """A number of seconds from now.

    A thread can't be stopped from outside. So each worker thread knows the deadline of its work, and checks it where
    the work can be left: before every module of a model (``watch``), and while it waits for a picture to be decoded.
    """

    _here = threading.local()

    def __init__(self, seconds: float):
        self._moment = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; 0 or less when it has passed."""
        return self._moment - time.monotonic()

    def cut(self) -> None:
        """Let it pass now: the client has hung up."""
        self._moment = 0.0

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Make this the deadline of what the thread does."""
        self._here.deadline = self
        try:
            self.check()
            yield
        finally:
            del self._here.deadline

    @classmethod
    def check(cls, *_: object) -> None:
        """Stop the work of this thread if its deadline has passed."""
        deadline = getattr(cls._here, "deadline", None)
        if deadline is not None and deadline.left <= 0:
            raise Overdue


def watch(model: nn.Module) -> None:
    """Let every module of a model check the deadline before it runs."""
    for module in model.modules():
        module.register_forward_pre_hook(Deadline.check)
