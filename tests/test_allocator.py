"""Freed memory is kept for the next tensors, and given back at the end."""

import resource
import subprocess
import sys

import pytest

from crate_mae.allocator import freed_memory_kept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the page faults are counted on Linux")

# In a process of its own: what a process has freed before is glibc's own secret.
SCRIPT = """
import resource, sys
from contextlib import nullcontext
import numpy
from crate_mae.allocator import freed_memory_kept

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def work():  # like a step: many large pieces at once, all freed
    pieces = [numpy.ones(48 << 20, numpy.uint8) for _ in range(4)]

with freed_memory_kept() if sys.argv[1] == "kept" else nullcontext():
    work()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    during = resident()
print(during - resident())
"""


def run(how: str) -> tuple[int, int]:
    out = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    faults, given_back = map(int, out.stdout.split())
    return faults, given_back


@pytest.fixture(scope="module")
def is_glibc() -> None:
    import ctypes

    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("the C library is not glibc")


@pytest.mark.usefixtures("is_glibc")
def test_pages_are_mapped_once_and_given_back_at_the_end() -> None:
    pages = 4 * (48 << 20) // resource.getpagesize()
    faults_without, _ = run("as it is")
    faults, given_back = run("kept")
    assert faults < pages / 50
    assert faults_without > 10 * faults + 100
    assert given_back > 100 << 20


def test_where_the_c_library_is_another_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    with freed_memory_kept():
        pass
