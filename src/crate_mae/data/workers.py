"""Processes that read images: they leave signals to the one who asked for them, and end with it however it ends."""

import atexit
import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, Dataset

Item = TypeVar("Item")
Batch = TypeVar("Batch")

_readers: WeakSet[BaseProcess] = WeakSet()


def read(
    images: Dataset[Item], order: Iterable[list[Any]], together: Callable[[list[Item]], Batch], workers: int
) -> Iterator[Batch]:
    """Batches of items in this order, each made by ``together``, read by so many processes; 0 reads in this one.

    They start with the call, not with the first batch: so a caller can let them start before any thread does.
    """
    loader = DataLoader(
        images,
        batch_sampler=order,
        num_workers=workers,
        collate_fn=together,
        worker_init_fn=leave_signals_to_the_run,
        generator=torch.Generator(),  # without one it draws from the global generator, which is the caller's
    )
    others = set(active_children())
    batches = iter(loader)
    _readers.update(set(active_children()) - others)
    return batches


def leave_signals_to_the_run(worker: int) -> None:
    """A terminal's Ctrl-C and a cluster's SIGTERM reach every process: the one that trains decides when these end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@atexit.register
def _end() -> None:
    """Those of iterators that nobody has closed: at exit Python ends its children by SIGTERM, and waits for them."""
    left = [reader for reader in _readers if reader.is_alive()]
    if left and hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's own handler takes their end for an accident
    for reader in left:
        reader.kill()
