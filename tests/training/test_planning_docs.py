"""The commands and the example in docs/planning.md run, and print what stands there."""

import re
import shlex
from pathlib import Path

import pytest

from crate_mae.cli import main

TEXT = (Path(__file__).parents[2] / "docs" / "planning.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_every_command_runs_and_the_outputs_are_those_shown(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for command in (line for block in blocks("sh") for line in block.splitlines()):
        verb, *words = shlex.split(command)
        assert verb == "crate-mae"
        main(words)
        printed.append(capsys.readouterr().out)
    assert len(printed) == 5
    whole, last_line = blocks("text")
    assert printed[0] == whole
    assert printed[1].endswith(last_line)


def test_the_check_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")
    exec(compile(example, "planning.md", "exec"), {})
    planned, took = map(float, re.findall(r"([\d.]+) s", capsys.readouterr().out))
    assert planned / 10 < took < 10 * planned
