"""``crate-mae data check``: read every image and list the unreadable ones."""

import os
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from torch.utils.data import Dataset

from crate_mae.data.open import find_images
from crate_mae.data.sequential import consecutive
from crate_mae.data.source import ImageSource
from crate_mae.data.workers import read
from crate_mae.errors import UserError
from crate_mae.progress import progress

CHUNK = 16
"""Images that a worker reads before it reports."""


def check(data: str, root: Path | None, workers: int | None, console: Console, download: bool = False) -> int:
    """Decode every image of every split that a set has, print the unreadable ones, and return their number."""
    workers = workers or processors()
    images = find_images(data, root, download)
    total = 0
    for split in images.own:
        source = images.open(split)
        unreadable = list(unreadable_images(source, workers, console, f"checking {split}"))
        for reason in unreadable:
            console.print(reason, highlight=False, markup=False, soft_wrap=True)
        classes = f"{len(source.class_names)} classes" if source.class_names else "no classes"
        summary = f"{split}: {len(source)} images, {classes}, {len(unreadable)} unreadable."
        console.print(summary, highlight=False, soft_wrap=True)
        total += len(unreadable)
    return total


def processors() -> int:
    """The number of processors that this process may use, if the system reports it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def unreadable_images(source: ImageSource, workers: int, console: Console, label: str) -> Iterator[str]:
    """The reason for each image that can't be read, in the order of the source; by ``workers`` processes."""
    order = [list(chunk) for chunk in consecutive(range(len(source)), CHUNK)]
    reasons = read(Reasons(source), order, list, workers if workers > 1 else 0)
    found = 0
    with progress(label, len(source), console) as advance:
        for reason in (reason for chunk in reasons for reason in chunk):
            found += reason is not None
            advance(f"{found} unreadable")
            if reason is not None:
                yield reason


class Reasons(Dataset[str | None]):
    """Why each image of a source can't be read; None if it can."""

    def __init__(self, source: ImageSource):
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> str | None:
        try:
            self.source.read(index)
        except UserError as error:
            return str(error)
        return None
