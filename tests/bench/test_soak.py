"""The soak finds cases that raise, crash, hang or take memory, and the same cases again by their seed."""

import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.soak import arguments, checkpoints, images, sandbox
from benchmarks.soak.__main__ import ROWS
from benchmarks.soak.mutations import damaged
from benchmarks.soak.pictures import pictures
from benchmarks.soak.record import Budget, Row, markdown, to_json

ROOT = Path(__file__).parents[2]


def misbehave(number: int) -> tuple[str, str | None, float]:
    match number:
        case 1:
            raise KeyError("task")
        case 2:
            ctypes.string_at(0)
        case 3:
            while True:
                pass
        case 4:
            bytearray(80 * 2**20)
        case 5:
            return "odd", "wrong", 10
    return "fine", None, 10


def test_the_sandbox_reports_every_kind_of_failure() -> None:
    reports = sandbox.run(lambda: misbehave, range(8), 2, 0.5, lambda: True)
    found = {report.number: report.problem for report in reports}
    assert sorted(found) == list(range(8))
    assert found[1] == "KeyError: 'task'"
    assert found[2] == "crashes"
    assert found[3] == "takes too long"
    assert "and 10 are justified" in str(found[4])
    assert found[5] == "wrong"
    assert found[0] is found[6] is found[7] is None


def test_a_seed_gives_the_same_cases() -> None:
    assert images.case(1, 5) == images.case(1, 5) != images.case(2, 5)
    assert arguments.words(1, 5) == arguments.words(1, 5)
    assert len({str(arguments.words(1, number)) for number in range(50)}) > 40
    verbs = {arguments.words(0, number)[0] for number in range(300)}
    assert {"pretrain", "serve", "data", "push", "reproduce"} <= verbs


def test_damage_is_damage() -> None:
    import random

    content = pictures()["PNG"][0]
    changed = [damaged(content, random.Random(number), [content]) for number in range(100)]
    assert sum(each != content for each in changed) > 90


def test_good_pictures_pass_and_a_disagreement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, files in pictures().items():
        assert all(images.attempt(kind, content)[1] is None for content in files), kind
    monkeypatch.setattr(images.Reasons, "__getitem__", lambda *_: "can't be read")
    assert images.attempt("PNG", pictures()["PNG"][0])[1] == "data check disagrees: can't be read"


@pytest.mark.parametrize(
    ("code", "said", "problem"),
    [
        (0, "", None),
        (2, "crate-mae: note: x\ncrate-mae: error: y.\n", None),
        (2, "crate-mae: error: y.\nand more\n", "no single sentence"),
        (3, "", "exit code 3"),
        (1, "Traceback (most recent call last):", "a traceback"),
    ],
)
def test_what_a_call_may_say(code: int, said: str, problem: str | None) -> None:
    found = arguments.wrong(code, said)
    assert (found is None) if problem is None else str(found).startswith(problem)


def test_settings_are_edited_somewhere() -> None:
    import random

    tree = {"a": [1, 2], "b": {"c": "d"}}
    assert sum(checkpoints.edited(tree, random.Random(number)) != tree for number in range(100)) > 85


def test_a_failure_is_kept_and_the_table_has_it(tmp_path: Path) -> None:
    row = Row("images", "100 files", 100, "files")
    row.add("PNG", 0.25, 30.0)
    Budget(row, 3, time.monotonic() + 1, tmp_path / "images", lambda line: None).fail(
        {"number": 4}, "odd", content=b"x"
    )
    kept = tmp_path / "images" / "0001"
    assert json.loads((kept / "case.json").read_text()) == {"row": "images", "seed": 3, "what": "odd", "number": 4}
    assert (kept / "content").read_bytes() == b"x"
    about = {"command": "c", "commit": "a1", "machine": "m", "seed": 3}
    table = markdown(json.loads(to_json([row], about)))
    assert "| images | 100 files | 1 of 100 files (1 PNG) | 1 | 0.2 s | 30 MB | 0.0 min |" in table


def test_the_shares_are_a_whole_and_make_runs_it() -> None:
    assert sum(share for _, share in ROWS.values()) == pytest.approx(1)
    printed = subprocess.run(
        ["make", "-n", "-B", "soak", "SECONDS=600"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "-m benchmarks.soak --seconds 600" in printed


@pytest.mark.slow
def test_a_short_soak_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--seconds", "60", "--out", tmp_path, "--rows"]
    done = subprocess.run([*command, "images", "checkpoints", "arguments"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
