"""A full disk, in the middle of anything, leaves what was there good; with room the run goes on."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import crate_mae
from crate_mae.training.training_state import checkpoints_in
from tests.training import faults
from tests.training.processes import finish
from tests.training.runs import assert_same, moments, words

SETTINGS = {"steps": 30}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unbroken run."""
    run = tmp_path_factory.mktemp("whole") / "run"
    code, said = finish(words(run, **SETTINGS), run.with_name("log"))
    assert code == 0, said
    return run


@pytest.mark.parametrize(
    ("fault", "subject"),
    [
        (faults.no_room_for_weights, "the checkpoint of step 20"),
        (faults.no_room_for_moments, "the checkpoint of step 20"),
        (faults.no_room_for_state, "the checkpoint of step 20"),
        (faults.no_room_for_best, "checkpoints/best"),
        (faults.no_room_for_pictures, "step-00000015.png"),
        (faults.no_room_for_metrics, "metrics.jsonl"),
    ],
)
def test_no_room(fault: Callable[[], None], subject: str, whole: Path, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    pictures = 2 if fault is faults.no_room_for_pictures else 0
    code, said = finish(words(run, pictures=pictures, **SETTINGS), log, fault)
    check(run, code, said, subject)
    assert finish(words(run, "--resume", **SETTINGS), log)[0] == 0
    assert_same(run, whole)


def check(run: Path, code: int, said: str, subject: str) -> None:
    assert code == 2, said
    error = said.splitlines()[-1]
    assert error.startswith("crate-mae: error: ")
    assert subject in error
    assert "could not be written" in error
    assert re.search(r"(make room|check the disk) and (resume|try again)", error)
    assert "Traceback" not in said
    assert not list(run.rglob("*.part"))
    (last,) = checkpoints_in(run / "checkpoints")
    assert last.name == "step-00000010"
    assert crate_mae.load(last).num_parameters > 0
    assert moments(last)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if (
        not mount
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True).returncode
    ):
        pytest.skip("a small disk can't be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_real_disk_fills_up(disk: Path, whole: Path, tmp_path: Path) -> None:
    ballast, run = disk / "ballast", disk / "run"
    checkpoint = sum(
        file.stat().st_size for file in checkpoints_in(whole / "checkpoints")[-1].rglob("*") if file.is_file()
    )
    ballast.write_bytes(b"x" * (shutil.disk_usage(disk).free - int(1.6 * checkpoint)))
    code, said = finish(words(run, **SETTINGS), tmp_path / "log")
    check(run, code, said, "the checkpoint of step 20")
    assert "No space left on device" in said
    ballast.unlink()
    assert finish(words(run, "--resume", **SETTINGS), tmp_path / "log")[0] == 0
    assert_same(run, whole)


@pytest.mark.parametrize("write", [1, 12, 13, 20])
def test_a_disk_that_becomes_read_only(write: int, whole: Path, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    code, said = finish(words(run, **SETTINGS), log, partial(faults.at_a_write, write, faults.ReadOnly(), run))
    assert code == 2, said
    error = said.splitlines()[-1]
    assert "Read-only file system" in error
    assert "make it writable" in error
    assert "make room" not in error
    assert finish(words(run, "--resume", **SETTINGS), log)[0] == 0
    assert_same(run, whole)
