"""A few threads that work, a bounded queue before them, first come first served."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from crate_mae.web.deadline import Deadline, Overdue
from crate_mae.web.limits import Limits, Refusal

T = TypeVar("T")
RETRY_AFTER = 2
"""Seconds after which one who was turned away may come again."""


class Workers:
    """Work off the event loop. Everything but ``_work`` runs on the loop's own thread."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._taken = 0
        self._free = asyncio.Semaphore(limits.workers)  # its waiters are served in the order in which they came
        # A thread has its own count of cores, or all of them would use all.
        share = max(torch.get_num_threads() // limits.workers, 1)
        self._pool = ThreadPoolExecutor(limits.workers, "worker", torch.set_num_threads, (share,))

    @contextmanager
    def place(self) -> Iterator[Deadline]:
        """A place among those who are served or wait, before anything is read of them: that bounds the memory."""
        if self._taken >= self.limits.workers + self.limits.waiting:
            message = f"the server is busy: {self._taken} requests are before this one; try again in a moment."
            raise Refusal(503, message, {"Retry-After": str(RETRY_AFTER)})
        self._taken += 1
        try:
            yield Deadline(self.limits.seconds)
        finally:
            self._taken -= 1

    async def run(self, work: Callable[[], T], deadline: Deadline) -> T:
        """What ``work`` gives. Past its deadline it leaves the queue, or is stopped at its next step."""
        try:
            async with asyncio.timeout(deadline.left):
                await self._free.acquire()
        except TimeoutError:
            raise self._late("wait") from None
        job = asyncio.get_running_loop().run_in_executor(self._pool, self._work, work, deadline)
        job.add_done_callback(self._done)
        try:
            async with asyncio.timeout(deadline.left):
                return await asyncio.shield(job)
        except (TimeoutError, Overdue):
            raise self._late("compute") from None
        except asyncio.CancelledError:
            deadline.cut()
            raise

    def _late(self, what: str) -> Refusal:
        words = {"wait": "waited in the queue for", "compute": "was not done within"}[what]
        return Refusal(504, f"the request {words} {self.limits.seconds:g} seconds and was given up; try again.")

    def _work(self, work: Callable[[], T], deadline: Deadline) -> T:
        with deadline.of_this_thread():
            return work()

    def _done(self, job: "asyncio.Future[T]") -> None:
        self._free.release()  # only now is the thread free, whether anybody still waited for it or not
        job.exception()  # has been told to whoever waited
