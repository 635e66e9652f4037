"""Runs of the command line in processes of their own, which a test can signal and kill.

They are forked from a server that has imported torch and nothing has run, so that a start costs a tenth of a second
instead of several.
"""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "tests.training.processes",
        "crate_mae.cli",
        "crate_mae.recipes",
        "crate_mae.training.pretrain",
        "crate_mae.training.finetune",
        "sklearn.datasets",
        "tests.training.faults",
        "tests.training.together",
    ]
)
PATIENCE = 120
"""Seconds after which a process that should have ended hangs."""


@dataclass
class Process:
    """A process that runs the command line, and where its words go."""

    process: Any
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code, negative for a signal."""
        self.process.join(patience)
        if self.process.is_alive():
            self.kill()
            raise AssertionError(f"it hangs: {self.words}")
        return self.process.exitcode

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def is_alive(self) -> bool:
        return self.process.is_alive()

    @property
    def words(self) -> str:
        """All that it printed; nothing if it was killed before it could."""
        return self.log.read_text() if self.log.exists() else ""


@dataclass
class Cold:
    """A program as a user starts it from a terminal: in a process group of its own."""

    command: list[str]
    log: Path

    def __post_init__(self) -> None:
        with self.log.open("w") as file:
            self.process = subprocess.Popen(self.command, stdout=file, stderr=file, start_new_session=True)

    def wait(self, patience: float = PATIENCE) -> int:
        return self.process.wait(patience)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def words(self) -> str:
        return self.log.read_text()

    def kill_all(self, number: int = signal.SIGKILL) -> None:
        """Every process of the group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def workers(self) -> list[int]:
        """The processes that it started."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def __enter__(self) -> "Cold":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.kill_all()
        self.process.wait()


def start(arguments: list[str], log: Path, prepare: Callable[[], None] | None = None, **variables: str) -> Process:
    """``crate-mae ARGUMENTS`` with these environment variables, after a call of ``prepare`` (a function of a module).

    Without arguments ``prepare`` is all.
    """
    process = _context.Process(target=_main, args=(arguments, log, prepare, variables))
    process.start()
    return Process(process, log)


def finish(arguments: list[str], log: Path, prepare: Callable[[], None] | None = None) -> tuple[int, str]:
    """The exit code and the words of a run that ends by itself."""
    process = start(arguments, log, prepare)
    return process.wait(), process.words


def start_group(
    arguments: list[str], log: Path, prepare: Callable[[], None] | None = None, **variables: str
) -> list[Process]:
    """The same in two processes as torchrun starts them."""
    port, world = free_port(), 2
    return [
        start(
            arguments,
            log.with_name(f"{log.name}.{rank}"),
            prepare,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            LOCAL_WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            **variables,
        )
        for rank in range(world)
    ]


def finish_group(arguments: list[str], log: Path, prepare: Callable[[], None] | None = None) -> tuple[list[int], str]:
    """Both exit codes, and the words of the first process."""
    group = start_group(arguments, log, prepare)
    return [process.wait() for process in group], group[0].words


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(condition: Callable[[], Any], process: Process | Cold, patience: float = PATIENCE) -> None:
    """Wait for a condition while the process lives."""
    end = time.monotonic() + patience
    while not condition():
        assert process.is_alive(), f"it ended: {process.words}"
        assert time.monotonic() < end, f"it takes too long: {process.words}"
        time.sleep(0.001)


def _main(arguments: list[str], log: Path, prepare: Callable[[], None] | None, variables: dict[str, str]) -> None:
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv = ["crate-mae", *arguments]
    os.environ |= variables
    multiprocessing.set_start_method("fork", force=True)  # readers of images are its own children, as usual
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import torch

    torch.set_num_threads(1)
    from crate_mae.cli import main

    if prepare:
        prepare()
    if arguments:
        main(arguments)
