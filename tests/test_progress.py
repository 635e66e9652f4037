"""Progress without a terminal."""

import io

import pytest
from rich.console import Console

from crate_mae import progress


def test_a_board_prints_a_line_a_minute_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0, 30, 60, 90, 120))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    console = Console(file=io.StringIO())
    with progress.Board("all", 2, console) as board:
        for share in (0.0, 0.2, 0.4, 0.6, None):
            board.show("train", share, "loss 0.5")
        board.finish("train", "loss 0.4")
        board.finish("probe")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == ["train 40%  loss 0.5", "train   loss 0.5", "1/2  train  loss 0.4", "2/2  probe"]


def test_a_board_has_a_bar_for_each_task_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.Board("all", 2, console) as board:
        board.show("train", 0.5)
        board.show("probe", None)
        board.bars.refresh()
        board.finish("train")
        assert [task.description for task in board.bars.tasks] == ["all", "probe"]
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "train" in shown
    assert "50%" in shown
