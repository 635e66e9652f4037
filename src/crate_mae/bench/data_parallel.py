"""Two processes on a core each against one process on one core, both with the same global batch (DDP, gloo).

Every lap starts new processes, each with one thread and pinned to its own core. Training steps are timed, after
one step of warm-up.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console

from crate_mae.allocator import freed_memory_kept
from crate_mae.bench.contestants import CPU_SIZED, Work
from crate_mae.bench.harness import Laps
from crate_mae.bench.table import Row, at_least
from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig
from crate_mae.progress import progress
from crate_mae.training.distributed import join, joined
from crate_mae.training.objectives import Completing
from crate_mae.training.optim import adamw

ATTEMPTS = 2
"""How often the processes of one lap are started if they fail."""


@dataclass(frozen=True)
class Sizes:
    """Model and batch of the measurement."""

    config: ModelConfig = CPU_SIZED
    batch: int = 256
    """Images in a step, over all processes."""
    steps: int = 5
    rounds: int = 3


WHOLE, QUICK = Sizes(), Sizes(batch=64, steps=1, rounds=1)


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """One row: how many times as fast two processes are."""
    what = f"two processes, one core each, d {sizes.config.dim}, global batch {sizes.batch}"
    label, against = "two processes, one core each", "one process"
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if len(cores) < 2:
        yield Row(label, what, against, None, goal=at_least(1.9), note="not run: needs two cores, on Linux")
        return
    laps = Laps({"one": [], "two": []})
    with progress("processes", sizes.rounds, console) as advance:
        for _ in range(sizes.rounds):
            for name, world in (("one", 1), ("two", 2)):
                laps.seconds[name].append(start(sizes, cores[:world]))
            advance()
    yield Row(
        label,
        what,
        against,
        laps.speedup("two", "one"),
        goal=at_least(1.9),
        note=", ".join(
            f"{name} {sizes.steps * sizes.batch / laps.spread(name).middle:.0f} images/s" for name in laps.seconds
        ),
        seconds=laps.spreads(),
    )


def start(sizes: Sizes, cores: list[int]) -> float:
    """Seconds of ``sizes.steps`` steps in one process for each core.

    Processes that fail are started once more: torchrun sometimes fails to start on a busy machine.
    """
    asked = {"steps": sizes.steps, "cores": cores, **Work(sizes.config, sizes.batch).to_dict()}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(len(cores))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [*command, "-m", __name__, json.dumps(asked)], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return float(done.stdout.split()[-1])
    errors = [line for line in done.stderr.splitlines() if "Error" in line]
    raise UserError(f"the processes of the measurement failed: {errors[0] if errors else done.returncode}")


def main(asked: dict[str, Any]) -> None:
    """One process of a lap, started by torchrun: time the steps, and print the seconds in the main process."""
    with joined("cpu") as processes, freed_memory_kept():  # as a run does
        os.sched_setaffinity(0, {asked["cores"][processes.rank]})
        torch.set_num_threads(1)
        work = Work.from_dict(asked)
        share = slice(processes.rank, None, processes.world)
        images, masks = work.images[share], work.masks[share]
        objective = Completing(work.model())
        together = join(objective, processes)
        optimiser = adamw(objective.model, learning_rate=1e-4, weight_decay=0.05)

        def step() -> None:
            together(images, masks).backward()
            optimiser.step()
            optimiser.zero_grad()

        step()
        processes.wait()
        began = time.perf_counter()
        for _ in range(asked["steps"]):
            step()
        processes.wait()
        if processes.is_main:
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
