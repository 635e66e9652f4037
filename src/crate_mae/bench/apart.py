"""A contestant in a process of its own, which runs as its users run it: with its own heap and its own memory policy."""

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import IO, Any, Literal

import torch

from crate_mae.bench.contestants import ENCODERS, OURS, TRAINEES, Work
from crate_mae.bench.harness import Run
from crate_mae.errors import UserError
from crate_mae.memory import freed_memory_kept
from crate_mae.models.config import ModelConfig

Task = Literal["training", "encoding"]
TASKS: Mapping[Task, Mapping[str, Callable[[Work], Run]]] = {"training": TRAINEES, "encoding": ENCODERS}


@contextmanager
def apart(task: Task, name: str, work: Work) -> Iterator[Run]:
    """Start the process; each call of what is given lets it run once and waits for it.

    It starts while others do: the first call, which should not count, waits until it is ready.
    """
    asked = {
        "task": task,
        "name": name,
        "config": work.config.to_dict(),
        "batch": work.batch,
        "mask_ratio": work.mask_ratio,
        "threads": torch.get_num_threads(),
    }
    words = [sys.executable, "-m", __name__, json.dumps(asked)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        orders, answers = process.stdin, process.stdout

        def wait() -> None:
            if not answers.readline():
                errors.seek(0)
                said = errors.read().strip().splitlines() or ["it said nothing"]
                raise UserError(f"{name} could not be measured ({task}): {said[-1]}")

        ready = False

        def run() -> None:
            nonlocal ready
            if not ready:
                wait()
                ready = True
            orders.write("\n")
            orders.flush()
            wait()

        try:
            yield run
        finally:
            orders.close()  # which ends it


def serve(asked: Mapping[str, Any], orders: IO[str], answers: IO[str]) -> None:
    """Run once for each line. This project keeps freed memory, as it does when it trains and encodes; others don't."""

    def answer() -> None:
        answers.write("done\n")
        answers.flush()

    torch.set_num_threads(asked["threads"])
    work = Work(ModelConfig.from_dict(asked["config"]), asked["batch"], asked["mask_ratio"])
    run = TASKS[asked["task"]][asked["name"]](work)
    memory = freed_memory_kept() if asked["name"] == OURS else nullcontext()
    with memory, torch.set_grad_enabled(asked["task"] == "training"):
        gc.freeze()  # all that is there stays: to look through it again each time would take seconds
        answer()
        for _ in orders:
            run()
            answer()
            gc.collect()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    serve(json.loads(sys.argv[1]), sys.stdin, answers)
