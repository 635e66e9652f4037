"""``crate-mae data check``: read every image and list the bad ones."""

import os
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from torch.utils.data import Dataset

from crate_mae.data.open import find_splits
from crate_mae.data.sequential import in_turn
from crate_mae.data.source import ImageSource
from crate_mae.data.workers import read
from crate_mae.errors import UserError
from crate_mae.progress import progress

TOGETHER = 16
"""Images that a process reads before it reports."""


def check(data: str, root: Path | None, workers: int | None, console: Console) -> int:
    """Decode every image of every split that a set has, print what can't be read, and return how many those are."""
    workers = workers or processors()
    total = 0
    for split, opened in find_splits(data, root).items():
        source = opened()
        bad = list(bad_images(source, workers, console, f"checking {split}"))
        for reason in bad:
            console.print(reason, highlight=False, markup=False, soft_wrap=True)
        kinds = f"{len(source.class_names)} classes" if source.class_names else "no classes"
        console.print(f"{split}: {len(source)} images, {kinds}, {len(bad)} bad.", highlight=False, soft_wrap=True)
        total += len(bad)
    return total


def processors() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bad_images(source: ImageSource, workers: int, console: Console, label: str) -> Iterator[str]:
    """Why, for each image that can't be read, in the order of the source; by ``workers`` processes."""
    order = [list(together) for together in in_turn(range(len(source)), TOGETHER)]
    reasons = read(Reasons(source), order, list, workers if workers > 1 else 0)
    found = 0
    with progress(label, len(source), console) as advance:
        for reason in (reason for together in reasons for reason in together):
            found += reason is not None
            advance(f"{found} bad")
            if reason is not None:
                yield reason


class Reasons(Dataset[str | None]):
    """Why each image of a source can't be read; None where it can."""

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
