"""A bounded queue of requests, and a few threads that work on them: first come, first served."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from crate_mae.web.deadline import Deadline, Overdue
from crate_mae.web.limits import RETRY_AFTER, Limits, Refusal

T = TypeVar("T")


class RequestQueue:
    """Runs work in threads. Everything except ``_work`` runs in the thread of the event loop."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._taken = 0
        self._free = asyncio.Semaphore(limits.workers)  # serves its waiters in the order in which they came
        # Each thread gets its share of the cores; by default every one would use them all.
        share = max(torch.get_num_threads() // limits.workers, 1)
        self._pool = ThreadPoolExecutor(limits.workers, "worker", torch.set_num_threads, (share,))

    @contextmanager
    def slot(self) -> Iterator[Deadline]:
        """A slot for a request whose picture has arrived; its time starts here."""
        if self._taken >= self.limits.workers + self.limits.waiting:
            message = f"the server is busy: {self._taken} requests are before this one; try again in a moment."
            raise Refusal(503, message, RETRY_AFTER)
        self._taken += 1
        try:
            yield Deadline(self.limits.seconds)
        finally:
            self._taken -= 1

    async def run(self, work: Callable[[], T], deadline: Deadline) -> T:
        """The result of ``work``. Past its deadline it leaves the queue, or is stopped at its next step."""
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
        words = {"wait": "waited in the queue for", "compute": "was not finished within"}[what]
        return Refusal(504, f"the request {words} {self.limits.seconds:g} seconds and was given up; try again.")

    def _work(self, work: Callable[[], T], deadline: Deadline) -> T:
        with deadline.of_this_thread():
            return work()

    def _done(self, job: "asyncio.Future[T]") -> None:
        self._free.release()  # only now is the thread free, whether or not anybody still waited for it
        job.exception()  # seen by whoever waited
