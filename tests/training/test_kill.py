"""A run that is killed, wherever it is, and resumed ends as if it had never been."""

import json
import random
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

import crate_mae
from crate_mae.training.loop import STOPPING
from crate_mae.training.run_folder import Run
from crate_mae.training.training_state import checkpoints_in
from tests.training.faults import a_step_takes_an_hour, an_image_takes_an_hour
from tests.training.processes import Cold, finish, start, until
from tests.training.runs import assert_same, metrics, weights, words

OFTEN = {"steps": 60, "batch": 4, "log_every": 3, "checkpoint_every": 5, "evaluate_every": 12, "keep": 1}
KILLS = 14


def last_line(run: Path) -> int:
    """The step that metrics.jsonl has come to."""
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    steps = [json.loads(line)["step"] for line in text.splitlines(True) if line.endswith("\n")]
    return max(steps, default=-1)


def begun(run: Path) -> int:
    """So many times it was started."""
    path = run / "starts.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def test_killed_at_random_steps_and_in_the_middle_of_saves(tmp_path: Path) -> None:
    run, whole, chance = tmp_path / "killed", tmp_path / "whole", random.Random(0)
    torn = 0
    for number in range(KILLS):
        target = OFTEN["steps"] * number // (KILLS + 1) + chance.randrange(3)
        process, before = start(words(run, "--resume", **OFTEN), tmp_path / "log"), begun(run)
        until(lambda seen=before: begun(run) > seen, process)
        if number % 2:  # in the middle of a save
            until(lambda at=target: saving(run, at), process)
            time.sleep(chance.uniform(0, 0.01))
        else:
            until(lambda at=target: last_line(run) >= at, process)
            time.sleep(chance.uniform(0, 0.03))
        process.kill()
        assert process.wait() == -signal.SIGKILL, process.words
        torn += bool(list(run.rglob("*.part")))
    assert torn >= 3  # it was in the middle of a save
    assert finish(words(run, "--resume", **OFTEN), tmp_path / "log")[0] == 0
    assert begun(run) == KILLS + 1
    assert finish(words(whole, **OFTEN), tmp_path / "log")[0] == 0
    assert_same(run, whole)


def saving(run: Path, step: int) -> bool:
    """Whether a checkpoint of this step or a later one is being written."""
    parts = [path.name for path in (run / "checkpoints").glob(".step-*.part")]
    return any(int(name.split("-")[1].split(".")[0]) >= step for name in parts)


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGINT, 2)])
def test_asked_to_stop_it_saves_and_says_how_to_go_on(number: int, workers: int, tmp_path: Path) -> None:
    run, whole = tmp_path / "a run", tmp_path / "whole"
    settings = {"steps": 60, "workers": workers, "evaluate_every": 40}
    with Cold([sys.executable, "-m", "crate_mae", *words(run, **settings)], tmp_path / "said") as process:
        until(lambda: last_line(run) >= 14, process)
        process.kill_all(number)
        assert process.wait() == 0, process.words
        with pytest.raises(ProcessLookupError):
            process.kill_all(0)  # no reader of images is left
    said = process.words
    stopped = checkpoints_in(run / "checkpoints")[-1]
    step = int(stopped.name.removeprefix("step-"))
    assert 14 <= step < 60
    assert said.count(STOPPING) == 1
    assert said.index(STOPPING) < said.index(f"Stopped after step {step} of 60; nothing is lost.")
    assert Run(run).best_step() == step  # it was evaluated when it stopped
    assert metrics(run)[-1].items() >= {"step": step, "stopped": True}.items()
    assert f"step {step} of 60: train loss" in said
    assert "Traceback" not in said
    program, *again = shlex.split(said.splitlines()[-1].split("Resume it with: ")[1])
    assert program == "crate-mae"
    assert finish(again, tmp_path / "log")[0] == 0
    assert finish(words(whole, steps=60, evaluate_every=40), tmp_path / "log")[0] == 0
    assert_same(run, whole)


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGTERM, 2), (signal.SIGINT, 2)])
def test_a_signal_is_heard_while_a_batch_is_waited_for(number: int, workers: int, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    process = start(words(run, workers=workers, log_every=1), tmp_path / "log", an_image_takes_an_hour)
    until(lambda: last_line(run) >= 2, process)
    time.sleep(1)
    process.kill(number)
    assert process.wait(60) == 0
    step = last_line(run)
    assert f"Stopped after step {step} of 40; nothing is lost." in process.words
    assert Run(run).best_step() == step
    assert "Traceback" not in process.words
    for path in (run, whole):
        assert finish(words(path, "--resume", log_every=1), tmp_path / "log")[0] == 0
    assert_same(run, whole)


def test_what_a_stop_found_to_be_best_is_undone_by_a_resume(tmp_path: Path) -> None:
    """A best checkpoint of a step that an unbroken run does not evaluate is not kept where the rest is worse."""
    run = Run(tmp_path)
    crate_mae.create_model("crate_mae_tiny", depth=1, image_size=32).save(run.best)
    (run.best / "which").write_text("before")
    run.copy_best()
    (run.best / "which").write_text("at the stop")
    run.copy_best()  # a second stop without a resume between
    run.restore_best()
    run.restore_best()
    assert (run.best / "which").read_text() == "before"
    assert [path.name for path in run.checkpoints.iterdir()] == ["best"]


def test_a_second_interrupt_stops_it_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(words(run, workers=2, log_every=1), tmp_path / "log", a_step_takes_an_hour)
    until(lambda: last_line(run) >= 12, process)
    process.kill(signal.SIGINT)
    time.sleep(0.5)
    assert process.is_alive()
    process.kill(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.words.endswith("crate-mae: stopped.\n")
    assert "Traceback" not in process.words
    assert [path.name for path in checkpoints_in(run / "checkpoints")] == ["step-00000010"]


def test_killed_before_the_first_checkpoint_it_begins_anew(tmp_path: Path) -> None:
    run, whole = tmp_path / "killed", tmp_path / "whole"
    for path in (run, whole):
        assert finish(words(path, steps=8, checkpoint_every=8), tmp_path / "log")[0] == 0
    (checkpoint,) = checkpoints_in(run / "checkpoints")
    checkpoint.rename(checkpoint.with_name(f".{checkpoint.name}.part"))  # as if killed just before the name is given
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "lo')
    assert finish(words(run, "--resume", steps=8, checkpoint_every=8), tmp_path / "log")[0] == 0
    assert_same(run, whole)
    assert metrics(run)[0]["step"] == 0


def test_a_first_line_cut_short_does_not_stay(tmp_path: Path) -> None:
    run, whole = tmp_path / "killed", tmp_path / "whole"
    for path in (run, whole):
        assert finish(words(path, steps=3, log_every=1), tmp_path / "log")[0] == 0
    for checkpoint in checkpoints_in(run / "checkpoints"):
        checkpoint.rename(checkpoint.with_name(f".{checkpoint.name}.part"))
    (run / "metrics.jsonl").write_text('{"step": 0, "val')
    assert finish(words(run, "--resume", steps=3, log_every=1), tmp_path / "log")[0] == 0
    assert_same(run, whole)


def test_the_best_checkpoint_is_chosen_over_all_starts(tmp_path: Path) -> None:
    """The best of the first part stays where the second is worse."""
    settings = {"steps": 10, "evaluate_every": 5, "learning_rate": 3.0, "warmup": 0.9, "clip": "none"}
    run = tmp_path / "run"
    assert finish(words(run, **settings), tmp_path / "log")[0] == 0
    losses = {line["step"]: line["val_loss"] for line in metrics(run) if "val_loss" in line}
    assert losses[10] > min(losses.values())
    best = weights(run / "checkpoints" / "best")
    assert finish(words(run, "--resume", **settings | {"steps": 15}), tmp_path / "log")[0] == 0
    losses = {line["step"]: line["val_loss"] for line in metrics(run) if "val_loss" in line}
    assert losses[15] > min(losses.values())
    assert all((weights(run / "checkpoints" / "best")[name] == best[name]).all() for name in best)
