"""A contestant in its own process, with its own heap; freed memory is kept for all of them alike."""

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, Literal

import torch
from rich.console import Console

from crate_mae.allocator import freed_memory_kept
from crate_mae.bench.contestants import ENCODERS, TRAINEES, Work
from crate_mae.bench.harness import Laps, Run, race
from crate_mae.errors import UserError

Task = Literal["training", "encoding"]
TASKS: Mapping[Task, Mapping[str, Callable[[Work], Run]]] = {"training": TRAINEES, "encoding": ENCODERS}


@contextmanager
def own_process(task: Task, name: str, work: Work) -> Iterator[Run]:
    """Start the process; each call of the yielded function lets it run once and waits for it.

    Several processes can start at the same time: the first call, which should not count, waits until it is ready.
    """
    asked = {"task": task, "name": name, "threads": torch.get_num_threads(), **work.to_dict()}
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
                said = errors.read().strip().splitlines() or ["it printed nothing"]
                raise UserError(f"{name} could not be measured ({task}): {said[-1]}")

        ready = False

        def run() -> None:
            nonlocal ready
            if not ready:
                wait()
                ready = True
            with suppress(BrokenPipeError):  # it has ended; wait() reports that
                os.write(orders.fileno(), b"\n")
            wait()

        try:
            yield run
        finally:
            orders.close()  # ends it


def race_in_processes(
    task: Task,
    what: str,
    contestants: Mapping[str, tuple[str, Work]],
    rounds: int,
    console: Console,
    here: Mapping[str, Run] | None = None,
) -> Laps:
    """A race of contestants in their own processes, each with its work, and of those that run ``here``, in this one."""
    with ExitStack() as stack:
        started = {who: stack.enter_context(own_process(task, *each)) for who, each in contestants.items()}
        return race(what, {**started, **(here or {})}, rounds, console)


def serve(asked: Mapping[str, Any], orders: IO[str], answers: IO[str]) -> None:
    """Run once for each line. Freed memory is kept, as in this project's runs: any program can do that in two lines, so
    it should not decide a comparison of models."""

    def answer() -> None:
        answers.write("done\n")
        answers.flush()

    torch.set_num_threads(asked["threads"])
    run = TASKS[asked["task"]][asked["name"]](Work.from_dict(asked))
    with freed_memory_kept(), torch.set_grad_enabled(asked["task"] == "training"):
        gc.freeze()  # existing objects stay: collecting them each time would take seconds
        answer()
        for _ in orders:
            run()
            answer()
            gc.collect()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    serve(json.loads(sys.argv[1]), sys.stdin, answers)
