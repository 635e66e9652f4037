"""What a run folder is resumed from, what is refused, and what stops a run."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crate_mae
from crate_mae.cli import main
from crate_mae.data.checking import processors
from crate_mae.training.run_folder import Run
from crate_mae.training.training_state import checkpoints_in
from tests.training import faults
from tests.training.processes import finish, start, until
from tests.training.runs import assert_same, metrics, words
from tests.training.test_kill import last_line


def stopped(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence with which a command line ends that is refused."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unbroken run, with checkpoints of steps 10 and 20."""
    run = tmp_path_factory.mktemp("whole") / "run"
    main(words(run, steps=20))
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "weights cut short": lambda path: cut(path / "model.safetensors"),
    "no weights": lambda path: (path / "model.safetensors").unlink(),
    "moments cut short": lambda path: cut(path / "optimiser" / "__0_0.distcp"),
    "no moments": lambda path: shutil.rmtree(path / "optimiser"),
    "index of the moments cut short": lambda path: cut(path / "optimiser" / ".metadata"),
    "no index of the moments": lambda path: (path / "optimiser" / ".metadata").unlink(),
    "garbage for a state": lambda path: (path / "state.json").write_text("\x00garbage"),
    "an empty state": lambda path: (path / "state.json").write_text(""),
    "another state": lambda path: (path / "state.json").write_text('{"stepp": 3}'),
    "no numbers in the state": lambda path: (path / "state.json").write_text("[]"),
    "no step in the state": lambda path: (path / "state.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: str, run: Path, whole: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    DAMAGE[damage](run / "checkpoints" / "step-00000020")
    main(words(run, "--resume", steps=20))
    assert not [record.getMessage() for record in caplog.records if record.exc_info]
    said = capsys.readouterr().out
    assert "step-00000020 can't be used (" in said
    assert "Resuming from the one before it." in said
    assert_same(run, whole)


def test_without_any_good_checkpoint_it_begins_anew(run: Path, whole: Path) -> None:
    for checkpoint in checkpoints_in(run / "checkpoints"):
        cut(checkpoint / "optimiser" / "__0_0.distcp")
    main(words(run, "--resume", steps=20))
    assert_same(run, whole)


def test_leftovers_of_a_kill_are_removed(run: Path, whole: Path) -> None:
    for name in (".step-00000030.part", ".step-00000005.old.part"):
        shutil.copytree(run / "checkpoints" / "step-00000010", run / "checkpoints" / name)
    for left in (run / ".metrics.jsonl.123.part", run / "checkpoints" / "best" / ".config.json.123.part"):
        left.write_text("half")
    main(words(run, "--resume", steps=20))
    assert_same(run, whole)


def test_only_the_run_s_own_leftovers_are_removed(run: Path, whole: Path) -> None:
    others = [run / ".movie.mkv.part", run / "notes" / ".draft.12.part"]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_text("mine")
    main(words(run, "--resume", steps=20))
    assert [other.read_text() for other in others] == ["mine", "mine"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints/best/model.safetensors", "pictures/cat.png"])
def test_a_folder_that_is_no_run_is_not_overwritten(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    said = stopped(words(tmp_path / "mine", steps=2), capsys)
    assert f"mine is no run, and its {name.split('/')[0]} would be overwritten; choose another --out." in said
    assert mine.read_text() == "mine"


def test_other_files_in_a_new_run_s_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "run" / "slurm").mkdir(parents=True)
    (tmp_path / "run" / "slurm" / "1.out").write_text("a job")
    main(words(tmp_path / "run", steps=2))
    assert (tmp_path / "run" / "slurm" / "1.out").read_text() == "a job"


def test_a_finished_run_is_left_as_it_is(run: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*") if path.is_file()}
    main(["pretrain", "--out", str(run), "--resume"])
    assert "Done: 20 steps" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*") if path.is_file()} == before
    assert_same(run, whole)


def test_fewer_steps_than_done_are_refused(run: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = stopped(["pretrain", "--out", str(run), "--resume", "--set", "steps=12"], capsys)
    assert "has done 20 steps, more than steps=12; set steps to 20 or more" in said
    assert_same(run, whole)
    main(["pretrain", "--out", str(run), "--resume"])  # its settings are still those it had


def test_workers_beyond_the_processors_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    most = processors()
    main(words(tmp_path / "run", steps=1, workers=most + 5))
    assert f"workers is {most + 5}, and this machine has {most} processors: {most} are used." in capsys.readouterr().err
    assert Run(tmp_path / "run").stored().config.workers == most + 5  # another machine may have more


def test_loading_a_run_says_which_step_it_is(
    run: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level("INFO", "crate_mae"):
        crate_mae.load(run)
    assert f"{run}: step 20 of 20." in caplog.text
    best = run / "checkpoints" / "best" / "config.json"
    best.write_text(best.read_text().replace('"step": 20', '"step": 0'))
    caplog.clear()
    crate_mae.load(run)  # a warning, which Python prints where nobody has set up any logging
    assert "step 0 of 20. Its weights are the initial ones" in caplog.text


def test_a_batch_beyond_the_memory_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = stopped(words(tmp_path / "run", batch=10**9, workers=2), capsys)
    assert "micro-batches of 1,000,000,000 images need about" in said
    assert "images fit: choose a smaller batch" in said
    assert not (tmp_path / "run").exists()


def test_more_steps_go_on(run: Path) -> None:
    main(["pretrain", "--out", str(run), "--resume", "--set", "steps=25"])
    assert [line["step"] for line in metrics(run) if "loss" in line] == [7, 14, 20, 21, 25]


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ([], "holds a run already; resume it with --resume"),
        (
            ["--resume", "--set", "learning_rate=1"],
            "was started with learning_rate=0.001 and can't be resumed with 1.0",
        ),
        (["--resume", "--set", "model.dim=12"], "was started with model_settings="),
        (["--resume", "--set", "batch=4"], "was started with batch=8"),
        (["--resume", "--set", "seed=1"], "was started with seed=0"),
        (["--resume", "--recipe", "cifar10_cpu"], "was started with --recipe digits"),
        (["--resume", "--set", "setps=1"], "did you mean steps?"),
    ],
)
def test_another_run_in_its_place_is_refused(
    more: list[str], hint: str, run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hint in stopped(["pretrain", "--out", str(run), *more], capsys)
    assert_same(run, whole)


def test_what_does_not_change_the_run_may_change(run: Path, whole: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-00000020")
    changes = {"workers": 1, "keep": 1, "checkpoint_every": 3}
    main(words(run, "--resume", steps=20, **changes))
    assert [path.name for path in checkpoints_in(run / "checkpoints")] == ["step-00000020"]
    assert_same(run, whole)
    assert json.loads((run / "config.json").read_text())["settings"]["keep"] == 1


def test_a_folder_that_is_no_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file" in stopped(words(tmp_path / "file"), capsys)
    assert "holds no run to resume" in stopped(["pretrain", "--out", str(tmp_path / "new"), "--resume"], capsys)
    assert not (tmp_path / "new").exists()
    assert "holds a run of pretrain, not of finetune" in stopped(["finetune", "--out", str(run), "--resume"], capsys)
    (run / "config.json").write_text("{")
    assert "can't be read as JSON" in stopped(words(run, "--resume"), capsys)
    (run / "config.json").write_text("[]")
    assert "holds something else than a run" in stopped(words(run, "--resume"), capsys)


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        stored = json.loads(path.read_text())
        change(stored)
        path.write_text(json.dumps(stored))

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edited(lambda stored: stored.pop("task")), "no settings of a task that this crate-mae knows"),
        (edited(lambda stored: stored.update(task=["pretrain"])), "no settings of a task"),
        (edited(lambda stored: stored.pop("settings")), "no settings of a task"),
        (edited(lambda stored: stored.pop("training_images")), "how many training images"),
        (edited(lambda stored: stored.update(commit=3)), "its commit is 3"),
        (edited(lambda stored: stored["settings"].pop("steps")), "the configuration of a run lacks steps"),
        (edited(lambda stored: stored["settings"].update(stpes=3)), "a run has no setting stpes; did you mean steps?"),
        (edited(lambda stored: stored["settings"].update(steps="3")), "steps is '3'; choose a whole number from 1 up"),
        (edited(lambda stored: stored["settings"]["model_settings"].update(dmi=3)), "did you mean dim?"),
        (edited(lambda stored: stored.update(format_version=5)), "format version 5"),
    ],
)
def test_a_record_that_can_t_be_used_gets_one_sentence(
    damage: Callable[[Path], None], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run / "config.json")
    for command in (["pretrain", "--out", str(run), "--resume"], words(run, "--resume"), words(run)):
        assert message in stopped(command, capsys)


def test_other_images_are_refused(run: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = json.loads((run / "config.json").read_text())
    stored["training_images"]["fingerprint"] = "0"
    (run / "config.json").write_text(json.dumps(stored))
    said = stopped(["pretrain", "--out", str(run), "--resume"], capsys)
    assert "was trained on 1276 images and --data digits has 1276 or others" in said


def test_a_second_start_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    process = start(words(run, steps=100_000), tmp_path / "log")
    until(lambda: last_line(run) >= 0, process)
    assert "another process works on the run" in stopped(words(run, "--resume", steps=100_000), capsys)
    process.kill()
    process.wait()
    main(words(run, "--resume", steps=1))  # the lock went with the process


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("fault", "what"),
    [(faults.loss_is_not_finite, "the loss is nan"), (faults.gradient_is_not_finite, "the gradient's norm is")],
)
def test_what_is_not_finite_stops_the_run(fault: Callable[[], None], what: str, workers: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    began = time.monotonic()
    code, said = finish(words(run, workers=workers, log_every=100, evaluate_every=100), tmp_path / "log", fault)
    assert code == 2, said
    error = said.splitlines()[-1]
    assert f"error: {what}" in error
    assert "at step 13 with the learning rate 0.000" in error or "at step 13 with the learning rate 0.001" in error
    last = run / "checkpoints" / "step-00000010"
    assert f"the last good checkpoint is {last}" in error
    assert checkpoints_in(run / "checkpoints") == [last]
    assert all(value.isfinite().all() for value in crate_mae.load(last).state_dict().values())
    assert all(value.isfinite().all() for value in crate_mae.load(run).state_dict().values())
    assert time.monotonic() - began < 100


def test_features_that_are_not_finite_get_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["pretrain", "--recipe", "digits", "--out", str(tmp_path / "run"), "--set", "batch=8", "--set", "steps=2"]
    said = stopped([*run, "--set", "learning_rate=1e30"], capsys)
    assert "the model's features are not finite; start again with a lower learning_rate." in said


def test_a_finetuning_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    """Also with drop path and mixup, which draw from torch's own generators."""
    settings = {"task": "finetune", "steps": 20, "drop_path": 0.3, "mixup": 0.8, "label_smoothing": 0.1}
    whole, run = tmp_path / "whole", tmp_path / "run"
    main(words(whole, "--random", layer_decay=0.7, **settings))
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints" / "step-00000020")
    main(words(run, "--random", "--resume", layer_decay=0.7, **settings))
    assert_same(run, whole)
    assert crate_mae.load(run).class_names == tuple("0123456789")
