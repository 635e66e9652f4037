"""``--hours``: how long each training of a campaign lasts, what is run in which order, and when it stops.

The length of a training is chosen once, when the folder is created, and recorded in its ``campaign.json``: all results
of a folder have the same length. A later ``--hours`` runs the tasks that are not done yet, including further seeds.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import torch
from rich.console import Console

from crate_mae.errors import UserError
from crate_mae.planning.hardware import product_speed
from crate_mae.reproduce.desk import PRETRAIN_SECONDS, desk
from crate_mae.reproduce.scales import Scale
from crate_mae.reproduce.schedule import open_tasks
from crate_mae.reproduce.tasks import Place, Task, write_numbers

RECORD = "campaign.json"
REFERENCE_SPEED = 120e9
"""Operations per second of one core, on the machine where the durations of measurements were taken."""
SHORTEST = 20.0
"""Seconds: a shorter pretraining is refused."""
PLANNED = 0.93
"""The fraction of the hours that is planned; the rest is for tasks that take longer than expected."""
Wanted = Callable[[Scale], list[Task]]
"""The tasks of a campaign, in the order in which they should run."""


@dataclass(frozen=True)
class Machine:
    """What a process with one thread gets on this machine."""

    speed: float
    """Operations per second."""
    share: float
    """Processor seconds per second of wall-clock time: below 1 if other programs compute too."""


def measured(seconds: float = 3.0) -> Machine:
    """Measure this machine with products of matrices."""
    speed = product_speed(torch.device("cpu"), "float32") / torch.get_num_threads()
    threads, matrix = torch.get_num_threads(), torch.ones(256, 256)
    torch.set_num_threads(1)
    clock, used = time.monotonic(), time.thread_time()
    while time.monotonic() < clock + seconds:
        matrix @ matrix
    share = (time.thread_time() - used) / (time.monotonic() - clock)
    torch.set_num_threads(threads)
    return Machine(speed, min(share, 1.0))


def planned(place: Place, wanted: Wanted, hours: float | None, processes: int, console: Console) -> Place:
    """The place with the length of its trainings, recorded or chosen now, and with its deadline."""
    record = place.out / RECORD
    if hours == 0 and not record.is_file():
        raise UserError(f"there is no campaign in {place.out} yet; choose --hours above 0 to begin one.")
    machine = measured()
    speed = machine.speed / REFERENCE_SPEED
    if record.is_file():
        seconds = float(json.loads(record.read_text())["pretrain_seconds"])
    elif hours is None:
        seconds = PRETRAIN_SECONDS
    else:
        seconds = _seconds_that_fit(place, wanted, hours, PLANNED * 3600 * processes * machine.share, speed)
    place = replace(place, scale=desk(seconds, speed))
    if not record.is_file():
        place.out.mkdir(parents=True, exist_ok=True)
        write_numbers(record, {"pretrain_seconds": seconds, "hours": hours})
    if hours is not None:
        place = replace(place, deadline=time.time() + 3600 * hours)
    _say(place, open_tasks(wanted(place.scale), place), machine, processes, console)
    return place


def _seconds_that_fit(place: Place, wanted: Wanted, hours: float, seconds_an_hour: float, speed: float) -> float:
    """The seconds of a pretraining with which all tasks take these hours; the sum is linear.

    An hour of wall-clock time gives ``seconds_an_hour`` of one core.
    """
    available = hours * seconds_an_hour

    def total(seconds: float) -> float:
        there = replace(place, scale=desk(seconds, speed))
        return sum(task.seconds(there) or 0.0 for task in open_tasks(wanted(there.scale), there))

    fixed = total(0.0)
    slope = (total(100.0) - fixed) / 100.0
    if slope == 0:
        return PRETRAIN_SECONDS
    seconds = (available - fixed) / slope
    if seconds < SHORTEST:
        least = (fixed + SHORTEST * slope) / seconds_an_hour
        raise UserError(
            f"--hours {hours:g} is too short on this machine as it is now: every pretraining would have "
            f"{max(seconds, 0):.0f} s. Choose --hours {math.ceil(10 * least) / 10:g} or more, or fewer --seeds."
        )
    return float(round(seconds))


def _say(place: Place, tasks: Sequence[Task], machine: Machine, processes: int, console: Console) -> None:
    """What will be run, in which order, and how long it takes."""
    timed = place.scale.timed
    assert timed is not None
    lines = [
        f"Campaign in {place.out}: every pretraining has {timed.pretrain_seconds:g} s of processor time, every "
        f"fine-tuning {timed.finetune_seconds:g} s.",
        f"This machine gives a process {machine.share:.0%} of a core at the moment; {processes} run side by side.",
    ]
    groups: dict[tuple[tuple[int, ...], str], list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.order):
        groups.setdefault((task.order, task.name.split()[0]), []).append(task)
    for (order, kind), group in groups.items():
        minutes = _clock(group, place, machine, processes)
        lines.append(f"  {minutes:6.1f} min  seed {order[0]}: {kind}, {len(group)}")
    total = _clock(tasks, place, machine, processes)
    lines.append(f"  {total:6.1f} min  in all, without finished tasks")
    if place.deadline is not None:
        at = datetime.fromtimestamp(place.deadline, UTC)
        lines.append(f"It stops at {at:%Y-%m-%d %H:%M} UTC, and the same command continues from there.")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _clock(tasks: Sequence[Task], place: Place, machine: Machine, processes: int) -> float:
    """Minutes of wall-clock time."""
    return sum(task.seconds(place) or 0.0 for task in tasks) / machine.share / processes / 60
