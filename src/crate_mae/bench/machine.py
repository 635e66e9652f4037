"""The machine that was measured, and the rate of its own matrix products."""

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from crate_mae import __version__
from crate_mae.data.checking import processors
from crate_mae.training.code_version import commit

SIDES = (1024, 2048, 3072)
"""Sides of the square matrices that are tried; the fastest gives the machine's rate."""
SGEMM = "sgemm"


@dataclass(frozen=True)
class Sgemm:
    """Products of large square float32 matrices on all threads, as a contestant of its own."""

    side: int
    times: int

    @property
    def flops(self) -> int:
        """Operations of one run: 2 n^3 for each product of n x n matrices."""
        return self.times * 2 * self.side**3

    def __call__(self) -> None:
        a, b = torch.ones(2, self.side, self.side)
        out = torch.empty(self.side, self.side)
        for _ in range(self.times):
            torch.mm(a, b, out=out)


def sgemm(seconds: float = 0.5) -> Sgemm:
    """The side at which this machine multiplies fastest, repeated for about ``seconds``."""
    rates = {}
    for side in SIDES:
        trial, best = Sgemm(side, 1), float("inf")
        for _ in range(4):
            start = time.perf_counter()
            trial()
            best = min(best, time.perf_counter() - start)
        rates[side] = trial.flops / best
    side = max(rates, key=lambda side: rates[side])
    return Sgemm(side, max(1, round(seconds * rates[side] / (2 * side**3))))


def machine() -> dict[str, Any]:
    """The machine and the versions that were measured."""
    return {
        "cpu": cpu_name(),
        "cores": processors(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "crate_mae": __version__,
        "commit": commit() or "unknown",
    }


def cpu_name() -> str:
    """The processor's name, and the widest vectors that torch uses on it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"
