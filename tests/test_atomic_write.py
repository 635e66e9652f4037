"""What an atomic write may replace."""

import os
from pathlib import Path

import pytest

from crate_mae.atomic_write import atomic_write
from crate_mae.errors import UserError


def test_a_device_or_a_pipe_stays_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a device or a pipe"), atomic_write(tmp_path / "pipe") as temporary:
        temporary.write_text("x")
    assert (tmp_path / "pipe").is_fifo()


def test_a_path_without_a_name_gets_one_sentence() -> None:
    with pytest.raises(UserError, match="is a folder"), atomic_write(Path()):
        pass
