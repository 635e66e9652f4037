"""Verbs for the paper: its theory, its tables and figures."""

from pathlib import Path
from typing import Literal

import tyro

from crate_mae.cli.arguments import checked_seed
from crate_mae.device import Device
from crate_mae.errors import check_at_least


def theory(out: Path = Path("runs/theory"), seed: int = 0) -> None:
    """Check the paper's theory claim by claim: a table, theory.json and figures, in a minute or two.

    A claim that does not hold as the text states it is reported as such.

    Args:
        out: Folder for theory.json and the figures.
        seed: Seed of every check.
    """
    from rich.console import Console

    from crate_mae.theory.command import run

    run(out, checked_seed(seed), Console())


def reproduce(
    what: tyro.conf.Positional[str],
    *,
    scale: Literal["desk", "full"] = "desk",
    data_root: Path | None = None,
    seeds: int = 3,
    out: Path = Path("runs/reproduce"),
    processes: int | None = None,
    device: Device = "auto",
) -> None:
    """Make a table or a figure of the paper: its numbers and ours side by side.

    Each model is trained once, kept in OUT/models, and shared by all tables and figures. You can stop it at any time:
    the same command continues from there.

    Args:
        what: table1 .. table6, figure1 .. figure11, all; or list, which names them.
        scale: desk: small models on a CPU; full: the paper's recipe on a cluster.
        data_root: The folder with cifar10, cifar100, flowers102, oxford_pets and imagenet; digits need no files.
        seeds: Models of each kind; tables have mean and standard deviation over them.
        out: Folder for the models and for CSV, JSON, Markdown and PNG of each item.
        processes: Trainings side by side, with one thread each; by default one for each core, or one on a GPU.
        device: Where to compute; auto uses a GPU if there is one.
    """
    from rich.console import Console

    from crate_mae.reproduce.command import run
    from crate_mae.reproduce.scales import SCALES
    from crate_mae.reproduce.tasks import Place

    check_at_least("--seeds", seeds, 1)
    if processes is not None:
        check_at_least("--processes", processes, 1)
    run(what, Place(out, SCALES[scale](), data_root, device), seeds, processes, Console())
