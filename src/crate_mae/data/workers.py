"""Workers, the processes that load images: they ignore signals, and end with the process that started them."""

import atexit
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, Dataset

Item = TypeVar("Item")
Batch = TypeVar("Batch")

_workers: WeakSet[BaseProcess] = WeakSet()


def read(
    images: Dataset[Item], order: Iterable[list[Any]], collate: Callable[[list[Item]], Batch], workers: int
) -> Iterator[Batch]:
    """Batches of items in this order, each made by ``collate``, loaded by workers; 0 loads them in this process.

    The workers start with the call, not with the first batch, so a caller can start them before any thread.
    """
    loader = DataLoader(
        images,
        batch_sampler=order,
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=ignore_signals,
        generator=torch.Generator(),  # without one it draws from the global generator
    )
    others = set(active_children())
    batches = iter(loader)
    _workers.update(set(active_children()) - others)
    return batches


def ignore_signals(worker: int) -> None:
    """A terminal's Ctrl-C and a cluster's SIGTERM reach every process: the main process decides when workers end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stopping(batches: Generator[Batch, None, None]) -> Iterator[None]:
    """Close the batches after the block. If it is interrupted, their workers are killed: they may be busy."""
    try:
        yield
    except KeyboardInterrupt:
        kill_workers()
        raise
    finally:
        batches.close()


@atexit.register
def kill_workers() -> None:
    """Kill workers that are left: at exit Python sends SIGTERM to its children, which ignore it, and waits for them."""
    left = [worker for worker in _workers if worker.is_alive()]
    if left and hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's own handler would report their end as a crash
    for worker in left:
        worker.kill()
