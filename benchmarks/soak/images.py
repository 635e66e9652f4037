"""Damaged image files through reading, ``data check`` and training's augmentation. The page gets its own share."""

import random
import warnings

import torch

from benchmarks.soak import sandbox
from benchmarks.soak.mutations import damaged
from benchmarks.soak.pictures import pictures
from benchmarks.soak.record import Budget, Row
from crate_mae import image_files
from crate_mae.data.checking import Reasons, processors
from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Augmentation
from crate_mae.errors import UserError

SECONDS = 2.0
MEGABYTES = 1024
"""A case may take as much: the most pixels that a small file may claim, as 16-bit gray on its way to 8 bits."""


def row() -> Row:
    return Row(
        "images: mutated JPEG, PNG, GIF, WebP, TIFF, BMP through reading, `data check` and training",
        "100,000 files, no traceback, none over 2 s, bounded memory",
        100_000,
        "files",
    )


def run(budget: Budget) -> None:
    def make() -> sandbox.Try:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        return lambda number: attempt(*case(budget.seed, number))

    reports = sandbox.run(make, range(budget.row.wanted), processors(), SECONDS, lambda: budget.goes_on)
    for report in reports:
        budget.row.add(report.kind, report.seconds, report.peak)
        if report.problem:
            kind, content = case(budget.seed, report.number)
            budget.fail({"number": report.number}, f"a {kind} file: {report.problem}", content=content)


def case(seed: int, number: int) -> tuple[str, bytes]:
    """A format and a damaged file of it."""
    chance = random.Random(f"{seed} images {number}")
    every = [content for files in pictures().values() for content in files]
    kind = chance.choice(list(pictures()))
    return kind, damaged(chance.choice(pictures()[kind]), chance, every)


def replay(about: dict, content: bytes) -> str | None:
    return attempt("replayed", content)[1]


def attempt(kind: str, content: bytes) -> tuple[str, str | None, float]:
    """Both ways to read it agree on whether it is an image, and training takes it where they do."""
    source = One(content)
    try:
        image_files.in_mode(image_files.read(source.encoded(0)), "RGB")
        read = True
    except UserError as error:
        read = False
        if "\n" in str(error).strip():
            return kind, f"says several lines: {error}", MEGABYTES
    reason = Reasons(source)[0]
    if read and reason is not None:
        return kind, f"data check disagrees: {reason}", MEGABYTES
    try:
        AUGMENTATION(source.encoded(0), torch.Generator().manual_seed(0))
    except UserError as error:
        if read:
            return kind, f"training disagrees: {error}", MEGABYTES
    return kind, None, MEGABYTES


AUGMENTATION = Augmentation((32, 32), 3, (0.5,) * 3, (0.5,) * 3)


class One(ImageSource):
    """One file in memory."""

    def __init__(self, content: bytes):
        self.content = content

    def __len__(self) -> int:
        return 1

    def stored(self, index: int) -> bytes:
        return self.content

    def label(self, index: int) -> None:
        return None

    def name(self, index: int) -> str:
        return "a damaged file"

    def key(self, index: int) -> str:
        return "0"
