"""The verb that measures speed."""

import os
from pathlib import Path

import tyro

from crate_mae.errors import UserError, check_at_least


def bench(
    out: Path | None = None,
    *,
    quick: bool = False,
    only: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    verbose: bool = False,
    race: bool = False,
    seconds: float = 1200.0,
    seeds: int = 3,
    data_root: Path | None = None,
) -> None:
    """Measure how fast everything is: a table of ratios, each taken in one run on this machine.

    Contestants take turns; medians over the rounds are printed. All of it takes less than half an hour on two cores.
    Run nothing else on the machine meanwhile.

    With --race, train CRATE-MAE and ViT-MAE, each with its own best recipe, for the same seconds of processor time on
    CIFAR-10 and Imagenette, and compare loss, linear probe, 20-NN, fine-tuning and what each layer does. On a busy
    machine it takes longer, with the same results. What is finished is kept in OUT; the same command continues a race
    that was stopped.

    Args:
        out: Folder for the results: bench.json and bench.md in runs/bench by default, race.json and race.md in
            runs/race.
        quick: Fewer rounds and smaller sizes, in three minutes: to see that it works, not to publish.
        only: Only these rows: base, memory, encoding, desk, small, profile, forms, rates, probe, pipeline,
            processes, scaling, start, quality; in the race: cifar10, imagenette, crate-mae, crate-mae-narrow, vit-mae,
            paper-form. May be repeated.
        verbose: Print each row's quartiles, share of sgemm's rate, memory and remarks too; bench.md always has them.
        race: Compare models after the same processor time, in place of the table.
        seconds: race: processor time of each training.
        seeds: race: trainings of each contestant.
        data_root: race: the folder that holds cifar10 and imagenette; data/ by default.
    """
    words = ["crate-mae bench", *(["--race"] * race), *(["--quick"] * quick)]
    chosen_rows = [f"--only {name}" for name in only]
    if race:
        if quick:
            raise UserError("--race has no --quick; use fewer --seconds and --seeds.")
        words += [f"--seconds {seconds:g}", f"--seeds {seeds}", *chosen_rows]
        _race(out or Path("runs/race"), data_root, seconds, seeds, only=only, command=" ".join(words))
        return

    from crate_mae.bench.row_names import chosen

    names = chosen(only)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise torch's profiler prints when it starts and stops
    from rich.console import Console

    from crate_mae.bench.command import GROUPS, run

    run(
        out or Path("runs/bench"),
        {name: GROUPS[name] for name in names},
        quick=quick,
        verbose=verbose,
        command=" ".join([*words, *chosen_rows]),
        console=Console(),
    )


def _race(
    out: Path, data_root: Path | None, seconds: float, seeds: int, *, only: tuple[str, ...], command: str
) -> None:
    if seconds <= 0:
        raise UserError(f"--seconds is {seconds:g}; choose a number above 0.")
    check_at_least("--seeds", seeds, 1)

    from crate_mae.bench.race.recipes import chosen

    recipes = chosen(only)

    from rich.console import Console

    from crate_mae.bench.race.command import race

    race(out, data_root, seconds=seconds, seeds=seeds, console=Console(), command=command, recipes=recipes)
