"""A contestant in its own process."""

import io
import json
import subprocess
from contextlib import contextmanager
from typing import Any

import pytest

from crate_mae import UserError
from crate_mae.bench import own_process
from crate_mae.bench.contestants import LISTING, OURS, Work
from tests.bench.tiny import CONFIG


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """The processes that a test starts."""
    found: list[subprocess.Popen[str]] = []

    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *words: Any, **more: Any):
            super().__init__(*words, **more)
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    return found


def test_it_runs_once_for_each_call_and_ends_with_the_race(started: list[subprocess.Popen[str]]) -> None:
    with (
        own_process.own_process("training", OURS, Work(CONFIG, 2)) as ours,
        own_process.own_process("encoding", LISTING, Work(CONFIG, 2)) as it,
    ):
        for run in (ours, it, ours):
            run()
        assert [process.poll() for process in started] == [None, None]
    assert [process.returncode for process in started] == [0, 0]
    assert [json.loads(process.args[-1])["name"] for process in started] == [OURS, LISTING]  # type: ignore[index]


def test_an_error_in_the_process_is_reported() -> None:
    said = r"nobody could not be measured \(training\): KeyError: 'nobody'"
    with own_process.own_process("training", "nobody", Work(CONFIG, 2)) as run, pytest.raises(UserError, match=said):
        run()


def test_a_process_that_is_killed_between_two_runs_is_reported(started: list[subprocess.Popen[str]]) -> None:
    with own_process.own_process("training", OURS, Work(CONFIG, 2)) as run:
        run()
        started[0].kill()
        started[0].wait()
        with pytest.raises(UserError, match="crate-mae could not be measured"):
            run()


def test_freed_memory_is_kept_for_every_contestant(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    name = ""

    @contextmanager
    def noted() -> Any:
        kept.append(name)
        yield

    monkeypatch.setattr(own_process, "freed_memory_kept", noted)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    for name in (OURS, LISTING):
        answers = io.StringIO()
        asked = {"task": "training", "name": name, "threads": 1, **Work(CONFIG, 2, 0.5).to_dict()}
        own_process.serve(asked, io.StringIO("\n\n"), answers)
        assert answers.getvalue() == 3 * "done\n"
    assert kept == [OURS, LISTING]
