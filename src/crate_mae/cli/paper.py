"""Verbs for the paper: its theory, its tables and figures."""

from pathlib import Path
from typing import Literal

import tyro

from crate_mae.cli.arguments import checked_seed
from crate_mae.device import Device
from crate_mae.errors import UserError, check_at_least


def theory(out: Path = Path("runs/theory"), seed: int = 0) -> None:
    """Check the paper's theory claim by claim: a table, theory.json and figures, in a minute or two.

    A claim that does not hold as the text states it is reported as such.

    Args:
        out: Folder for theory.json and the figures.
        seed: Seed of every check.
    """
    checked_seed(seed)

    from rich.console import Console

    from crate_mae.theory.command import run

    run(out, seed, Console())


def reproduce(
    what: tyro.conf.Positional[str],
    *,
    scale: Literal["digits", "desk", "full"] | None = None,
    data_root: Path | None = None,
    seeds: int = 3,
    hours: float | None = None,
    out: Path = Path("runs/reproduce"),
    processes: int | None = None,
    device: Device = "auto",
) -> None:
    """Make a table or a figure of the paper: its numbers and ours side by side.

    Each model is trained once, kept in OUT/models, and shared by all tables and figures. You can stop it at any time:
    the same command continues from there.

    Args:
        what: table1 .. table6, figure1 .. figure11, all; or list, which names them.
        scale: digits: very small models on digits, which need no files; desk: small models on photographs, on a CPU;
            full: the paper's recipe on a cluster. By default desk with --data-root, and digits without.
        data_root: The folder with tiny_imagenet (desk) or imagenet (full), and with cifar10, cifar100, flowers102 and
            oxford_pets.
        seeds: Models of each kind; tables have mean and standard deviation over them.
        hours: desk: choose the length of the trainings so that everything, with all seeds, takes this number of hours
            on this machine, and stop in time. In a folder that was begun, trainings keep their length; 0 writes what
            is done.
        out: Folder for the models and for CSV, JSON, Markdown and PNG of each item.
        processes: Trainings side by side, with one thread each; by default one for each core, or one on a GPU.
        device: Device to compute on; auto uses a GPU if there is one.
    """
    from crate_mae.reproduce.paper_numbers import check_name

    check_name(what)
    check_at_least("--seeds", seeds, 1)
    if processes is not None:
        check_at_least("--processes", processes, 1)
    if hours is not None and hours < 0:
        raise UserError(f"--hours is {hours:g}; choose 0 or more.")

    from rich.console import Console

    from crate_mae.reproduce.command import SCALES, run
    from crate_mae.reproduce.tasks import Place

    chosen = SCALES[scale or ("digits" if data_root is None else "desk")]()
    run(what, Place(out, chosen, data_root, device), seeds, processes, Console(), hours)
