"""Paths that no file system or report can hold get one sentence."""

from pathlib import Path

import pytest

from crate_mae.errors import UserError
from crate_mae.paths import checked_path


def unusable(folder: Path) -> dict[str, str]:
    """Paths below a folder that can't be used, by what the message says about them."""
    (folder / "loop").symlink_to(folder / "loop")
    return {
        "is too long": str(folder / ("x" * 5000)),
        "contains a NUL character": str(folder / "a\0b"),
        "is not valid UTF-8": str(folder / "a\udcff"),
        "is a loop of symbolic links": str(folder / "loop" / "out"),
    }


def test_a_usable_path_is_returned_whether_it_exists_or_not(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "new" / "folder", tmp_path / "ünder", Path("relative")):
        assert checked_path(str(path), "--out") == path


def test_an_unusable_path_is_named_in_one_short_sentence(tmp_path: Path) -> None:
    for reason, path in unusable(tmp_path).items():
        with pytest.raises(UserError) as raised:
            checked_path(path, "--out")
        message = str(raised.value)
        assert message.startswith("--out ")
        assert f"{reason}; choose another path." in message
        assert len(message) < 200
        assert message.encode().isascii()
