"""``crate-mae reproduce``: train and measure what is missing, print, and write CSV, JSON, Markdown and PNG."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from crate_mae import figures
from crate_mae.data.checking import processors
from crate_mae.device import pick_device
from crate_mae.errors import UserError
from crate_mae.figures.comparison import comparison
from crate_mae.reproduce import campaign
from crate_mae.reproduce.desk import desk
from crate_mae.reproduce.drawing import Drawing, Made
from crate_mae.reproduce.figures_5_to_11 import FIGURES
from crate_mae.reproduce.paper_numbers import ALL, ITEMS, LIST
from crate_mae.reproduce.run_command import command
from crate_mae.reproduce.run_scales import digits, full
from crate_mae.reproduce.run_tasks import Finetuned, Pretrained
from crate_mae.reproduce.scales import Scale
from crate_mae.reproduce.schedule import carry_out, open_tasks
from crate_mae.reproduce.tables_1_to_6 import TABLES, Plan
from crate_mae.reproduce.tasks import Place, Task
from crate_mae.training.code_version import commit

WIDTH = 170
"""Columns of the output if it is not a terminal."""
RESULTS = "results.md"


SCALES = {"digits": digits, "desk": desk, "full": full}


def run(
    name: str, place: Place, seeds: int, processes: int | None, console: Console, hours: float | None = None
) -> None:
    """Make one item, or all; with ``hours``, what can be done in that time."""
    if name == LIST:
        for item in ITEMS.values():
            console.print(f"{item.name:<10}{item.title}  [{item.label}]", highlight=False, markup=False, soft_wrap=True)
        return
    names = list(ITEMS) if name == ALL else [name]
    count = _processes(processes, place)

    def plans_of(scale: Scale) -> list[Plan | Drawing]:
        return [(TABLES.get(name) or FIGURES[name])(scale, seeds) for name in names]

    def wanted(scale: Scale) -> list[Task]:
        return sorted((task for plan in plans_of(scale) for task in plan.tasks), key=lambda task: task.order)

    if place.scale.timed:
        place = campaign.planned(place, wanted, hours, count, console)
    elif hours is not None:
        raise UserError("--hours plans the trainings of --scale desk; leave it out.")
    plans, tasks = plans_of(place.scale), open_tasks(wanted(place.scale), place)
    if place.scale.name == "full":
        _say_commands([task for plan in plans for task in plan.tasks], place, console)
    try:
        carry_out(tasks, place, count, console)
    except KeyboardInterrupt:
        console.print("Stopped; finished work is kept. The same command continues from here.")
        raise
    wide = console if console.is_terminal else Console(width=WIDTH, file=console.file, quiet=console.quiet)
    written = []
    for plan in plans:
        made = make(plan, place, seeds)
        folder = write(made, place, seeds)
        written.append(made.table.markdown())
        wide.print(made.table.printed())
        for note in made.table.notes:
            console.print(note, highlight=False, markup=False, soft_wrap=True)
        console.print(f"Written to {folder}\n", highlight=False, markup=False, soft_wrap=True)
    if name == ALL:
        (place.out / RESULTS).write_text("\n".join(written))
        console.print(f"All of it: {place.out / RESULTS}", highlight=False, markup=False, soft_wrap=True)


def make(plan: Plan | Drawing, place: Place, seeds: int) -> Made:
    """A table or a figure, from the results of its tasks."""
    match plan:
        case Plan():
            table = plan.measured(place, seeds)
            return Made(table, {plan.name: comparison(table.panels(plan.plotted, plan.by_column), table.unit)})
        case Drawing():
            return plan.made(place)


def write(made: Made, place: Place, seeds: int) -> Path:
    """Write a table and its pictures to ``OUT/NAME``."""
    table = made.table
    folder = place.out / table.name
    folder.mkdir(parents=True, exist_ok=True)
    item = ITEMS[table.name]
    about = {
        "label": item.label,
        "scale": place.scale.name,
        "protocol": place.scale.protocol,
        "seeds": seeds,
        "commit": commit(),
    }
    (folder / f"{table.name}.json").write_text(table.json(**about))
    (folder / f"{table.name}.csv").write_text(table.csv())
    shown = "".join(f"\n![{name}]({name}.png)\n" for name in made.pictures)
    (folder / f"{table.name}.md").write_text(table.markdown() + shown)
    for name, figure in made.pictures.items():
        figures.save(figure, folder / f"{name}.png")
    return folder


def _processes(processes: int | None, place: Place) -> int:
    """Trainings side by side: one for each core of a CPU; on a GPU, one at a time."""
    if processes is not None:
        return processes
    return processors() if pick_device(place.device).type == "cpu" else 1


def _say_commands(tasks: Sequence[Task], place: Place, console: Console) -> None:
    """Print every training at full scale as a command, which can also be run beforehand on a cluster."""
    trained: dict[Pretrained | Finetuned, None] = {}
    for task in tasks:
        for run in (*task.before, task):
            if isinstance(run, Pretrained | Finetuned):
                trained[run] = None
    if trained:
        console.print(f"{len(trained)} runs; each can be started with torchrun on a cluster:", highlight=False)
    for run in trained:
        words = shlex.join(["crate-mae", *command(run.config(place), run.folder(place))])
        console.print(words, highlight=False, markup=False, soft_wrap=True)
