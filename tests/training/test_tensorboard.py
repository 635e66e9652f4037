"""TensorBoard files have the points of metrics.jsonl, each once, over all starts."""

import shutil
import warnings
from pathlib import Path

import pytest

from tests.training.faults import no_tensorboard
from tests.training.processes import finish
from tests.training.runs import words


def points(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        events = reader.EventAccumulator(str(run / "tensorboard")).Reload()
    return {name: [(point.step, point.value) for point in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_points_are_those_of_the_metrics_also_after_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run, log = tmp_path / "run", tmp_path / "log"
    assert finish(words(run, "--tensorboard", steps=20), log)[0] == 0
    whole = points(run)
    assert [step for step, _ in whole["loss"]] == [7, 14, 20]
    assert [step for step, _ in whole["val_loss"]] == [0, 15, 20]
    for name in ("step-00000020", "step-00000010"):  # as if killed at step 20, and then before any checkpoint
        shutil.rmtree(run / "checkpoints" / name)
        assert finish(words(run, "--tensorboard", "--resume", steps=20), log)[0] == 0
        again = points(run)
        assert {name: again[name] for name in ("loss", "val_loss")} == {
            name: whole[name] for name in ("loss", "val_loss")
        }
        shutil.rmtree(run / "checkpoints" / "step-00000020")


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    code, said = finish(words(tmp_path / "run", "--tensorboard"), tmp_path / "log", no_tensorboard)
    assert code == 2
    assert said.splitlines()[-1].endswith("pip install 'crate-mae[tensorboard]' installs them.")
