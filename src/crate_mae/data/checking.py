"""``crate-mae data check``: read every image and list the bad ones."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from rich.console import Console

from crate_mae.data.datasets import find_splits
from crate_mae.data.source import ImageSource
from crate_mae.errors import UserError
from crate_mae.progress import progress

AHEAD = 4
"""Images under way for each worker."""


def check(data: str, root: Path | None, workers: int | None, console: Console) -> int:
    """Decode every image of every split that a set has, print what can't be read, and return how many those are."""
    workers = workers or os.cpu_count() or 1
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


def bad_images(source: ImageSource, workers: int, console: Console, label: str) -> Iterator[str]:
    """Why, for each image that can't be read, in the order of the source."""

    def reason(index: int) -> str | None:
        try:
            source.read(index)
        except UserError as error:
            return str(error)
        return None

    # Threads: reading and Pillow's decoders let the others run meanwhile.
    with ThreadPoolExecutor(workers) as pool, progress(label, len(source), console) as advance:
        indices = iter(range(len(source)))
        under_way = [pool.submit(reason, index) for index in islice(indices, workers * AHEAD)]
        found = 0
        while under_way:
            result = under_way.pop(0).result()
            under_way += [pool.submit(reason, index) for index in islice(indices, 1)]
            found += result is not None
            advance(f"{found} bad")
            if result is not None:
                yield result
