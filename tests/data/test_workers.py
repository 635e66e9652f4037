"""Processes that read end with whoever started them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from multiprocessing import active_children
from crate_mae.data.workers import read

if __name__ == "__main__":
    batches = read(list(range(100)), [[number] for number in range(100)], list, workers=2)
    assert next(batches) == [0]
    print(*(reader.pid for reader in active_children()), flush=True)
    {end}
"""


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("sys.exit(3)", 3), ("raise SystemExit(batches)", 1)])
def test_one_who_ends_in_the_middle_does_not_wait_for_them(end: str, code: int) -> None:
    """They hear no SIGTERM, which is how Python ends its children at exit, and waits for them for ever."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT.format(end=end)], capture_output=True, text=True, timeout=100)
    assert ended.returncode == code, ended.stderr
    readers = ended.stdout.split()
    assert len(readers) == 2
    assert not any(Path("/proc", reader).exists() for reader in readers)
    assert "killed" not in ended.stderr  # nor does torch complain of their end
