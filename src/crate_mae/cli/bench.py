"""The verb that measures speed."""

import os
from pathlib import Path

import tyro

from crate_mae.errors import UserError


def bench(
    out: Path = Path("runs/bench"),
    quick: bool = False,
    only: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    race: bool = False,
    data_root: Path | None = None,
) -> None:
    """Measure how fast everything is: a table of ratios, each taken in one run on this machine.

    Contestants take turns; medians over the rounds and their quartiles are printed. The whole takes half an hour on two
    cores. Leave the machine alone while it runs.

    Args:
        out: Folder for bench.json and bench.md.
        quick: Fewer rounds and smaller sizes, in three minutes: to see that it works, not to publish.
        only: Some rows alone: base, memory, encoding, small, profile, forms, rates, probe, pictures, processes,
            scaling, start. May be given again.
        race: In place of the table, train the visible-only form, the paper's form and ViT-MAE for the same seconds on
            digits and CIFAR-10.
        data_root: race: where cifar10 is; data/ unless given.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler tells the terminal when it starts and stops
    from rich.console import Console

    from crate_mae.bench.command import chosen, racing, run

    if race and only:
        raise UserError("--race runs in place of the table; leave --only out.")
    words = ["crate-mae bench", *(["--race"] * race), *(["--quick"] * quick), *(f"--only {name}" for name in only)]
    run(out, quick, racing(data_root) if race else chosen(only), " ".join(words), Console())
