"""Several processes learn what one learns, in whatever way they are joined, and go on with each other's checkpoints."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch

from crate_mae.training.distributed import Processes
from crate_mae.training.training_state import checkpoints_in
from tests.training import together
from tests.training.faults import loss_of_one_process_is_not_finite, no_room_for_weights, samples_are_noted
from tests.training.processes import Cold, finish, finish_group, free_port, start, start_group, until
from tests.training.runs import assert_same, metrics, words
from tests.training.test_kill import last_line

ALONE = Processes(0, 1, torch.device("cpu"))
EXACT = {"precision": "float64", "steps": 20}


def test_two_processes_have_the_gradients_and_weights_of_one(tmp_path: Path) -> None:
    group = start_group([], tmp_path / "log", together.several, RESULT=str(tmp_path / "found"))
    assert [process.wait() for process in group] == [0, 0], group[0].words
    found = torch.load(tmp_path / "found")
    assert len(found) == 12
    for make in together.MAKES:
        gradient, loss, norm = together.gradients(make, together.setting(), ALONE)
        exact = together.setting("float64", clip=0.5)
        weights = {kind: together.trained(make, exact, ALONE, kind) for kind in together.OPTIMISERS}
        scale = max(value.abs().max() for value in gradient.values())
        for case in (case for case in found if case[0] == make):
            (theirs, their_loss, their_norm), their_weights = found[case]
            assert their_loss == pytest.approx(loss, rel=1e-6)
            assert their_norm == pytest.approx(norm, rel=1e-6)
            assert theirs.keys() == gradient.keys()
            for name in gradient:
                assert (theirs[name] - gradient[name]).abs().max() <= 1e-6 * scale, (case, name)
            torch.testing.assert_close(their_weights, weights, rtol=1e-11, atol=1e-11)


def test_a_group_ends_whoever_holds_it_last(tmp_path: Path) -> None:
    """DDP that lets go of the group last would wait for a thread of gloo that waits for Python's lock."""
    process = start([], tmp_path / "log", together.many_ends, WORLD_SIZE="1")
    assert process.wait() == 0, process.words


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unbroken run of one process, with checkpoints of steps 10 and 20."""
    run = tmp_path_factory.mktemp("alone") / "run"
    code, said = finish(words(run, **EXACT), run.with_name("log"))
    assert code == 0, said
    return run


def half(run: Path, to: Path) -> Path:
    """A copy of a run as it was after its first half."""
    shutil.copytree(run, to)
    shutil.rmtree(to / "checkpoints" / "step-00000020")
    return to


def test_every_way_of_running_ends_alike_and_goes_on_from_each_other(alone: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ways = {
        "two": (words(tmp_path / "two", accumulation=2, **EXACT)),
        "parts": words(tmp_path / "parts", "--shard", **EXACT),
    }
    for name, arguments in ways.items():
        codes, said = finish_group(arguments, log)
        assert codes == [0, 0], said
        assert_same(tmp_path / name, alone, 1e-11)
    files = (tmp_path / "parts" / "checkpoints" / "step-00000020" / "optimiser").glob("*.distcp")
    assert len(list(files)) == 2  # each process wrote its own
    for begin in (alone, tmp_path / "two", tmp_path / "parts"):
        for end in ("alone", "two", "parts"):
            if end == begin.name or (begin == alone and end == "alone"):
                continue
            run = half(begin, tmp_path / f"{begin.name} then {end}")
            arguments = words(run, "--resume", *(["--shard"] if end == "parts" else []), **EXACT)
            codes, said = ([finish(arguments, log)[0]], "") if end == "alone" else finish_group(arguments, log)
            assert set(codes) == {0}, said
            assert_same(run, alone, 1e-11)


def test_a_run_of_two_sees_every_sample_once_an_epoch(tmp_path: Path) -> None:
    """Two epochs of 1,276 images in 22 steps."""
    settings = {"steps": 22, "batch": 116, "evaluate_every": 100, "randaugment": "none"}
    run, seen = tmp_path / "run", tmp_path / "seen"
    group = start_group(words(run, **settings), tmp_path / "log", samples_are_noted, SEEN=str(seen))
    assert [process.wait() for process in group] == [0, 0], group[0].words
    lines = [[line.split() for line in Path(f"{seen}.{rank}").read_text().splitlines()] for rank in range(2)]
    steps = [first + second for first, second in zip(*lines, strict=True)]
    assert [len(step) for step in steps] == [116] * 22
    assert [len(share) for share in lines[1]] == [58] * 22
    for epoch in range(2):
        drawn = [int(index) for step in steps[11 * epoch : 11 * epoch + 11] for index in step]
        assert sorted(drawn) == list(range(1276))
    shutil.rmtree(run / "checkpoints" / "step-00000022")  # and again from the middle of the second epoch, alone
    process = start(words(run, "--resume", **settings), tmp_path / "log", samples_are_noted, SEEN=f"{seen} again")
    assert process.wait() == 0, process.words
    again = [line.split() for line in Path(f"{seen} again.0").read_text().splitlines()]
    assert again == steps[20:]


def test_one_process_asked_to_stop_stops_both(tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    group = start_group(words(run, steps=60), tmp_path / "log")
    until(lambda: last_line(run) >= 7, group[0])
    group[1].kill(signal.SIGTERM)
    assert [process.wait() for process in group] == [0, 0], group[0].words
    assert "Resume it with: torchrun --nproc-per-node 2 -m crate_mae pretrain" in group[0].words
    assert finish_group(words(run, "--resume", steps=60), tmp_path / "log")[0] == [0, 0]
    assert finish_group(words(whole, steps=60), tmp_path / "log")[0] == [0, 0]
    assert_same(run, whole)


def test_where_one_loss_is_not_finite_all_stop(tmp_path: Path) -> None:
    run = tmp_path / "run"
    codes, said = finish_group(words(run), tmp_path / "log", loss_of_one_process_is_not_finite)
    assert codes == [2, 2]
    assert "the loss is nan at step 13 with the learning rate" in said
    assert [path.name for path in checkpoints_in(run / "checkpoints")] == ["step-00000010"]


def test_where_one_can_not_write_all_stop(tmp_path: Path) -> None:
    run = tmp_path / "run"
    group = start_group(words(run), tmp_path / "log", no_room_for_weights)
    assert [process.wait(60) for process in group] == [2, 2]
    assert "Traceback" not in group[0].words + group[1].words
    assert [path.name for path in checkpoints_in(run / "checkpoints")] == ["step-00000010"]
    assert not list(run.rglob("*.part"))


@pytest.mark.parametrize("killed", [0, 1])
def test_where_one_is_killed_the_other_says_so_in_a_sentence(killed: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    group = start_group(words(run, steps=400), tmp_path / "log")
    until(lambda: last_line(run) >= 7, group[0])
    group[killed].kill()
    assert group[1 - killed].wait(60) == 2, group[1 - killed].words
    said = group[1 - killed].words
    assert said.endswith("crate-mae: error: another process of this run has stopped; its own message says why.\n")
    assert "Traceback" not in said


def test_a_batch_that_processes_can_not_share_is_refused(tmp_path: Path) -> None:
    codes, said = finish_group(words(tmp_path / "run", batch=7), tmp_path / "log")
    assert codes == [2, 2]
    assert "choose a multiple of 2" in said


def test_after_a_worker_of_torchrun_is_killed_the_run_restarts_by_itself(tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    launcher = ["--max-restarts", "2", "--nproc-per-node", "2", "--master-port", str(free_port()), "-m", "crate_mae"]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, *words(run, "--resume", steps=60)]
    with Cold(command, tmp_path / "said") as process:
        until(lambda: last_line(run) >= 14, process, 200)
        workers = process.workers()
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGKILL)
        assert process.wait(200) == 0, process.words
    starts = (run / "starts.jsonl").read_text().splitlines()
    # One restart, or two where the new processes meet the end of the old group; torchrun was allowed two.
    assert 2 <= len(starts) <= 3
    assert not any('"step": 0' in start for start in starts[1:])  # it went on, not anew
    assert finish_group(words(whole, steps=60), tmp_path / "log")[0] == [0, 0]
    assert_same(run, whole)
    assert metrics(run)[-1]["step"] == 60
