"""Paths that a person gives, checked before anything slow starts."""

import errno
from pathlib import Path

from crate_mae.errors import UserError

SHOWN = 80
"""Longest path that a message shows in full."""


def checked_path(path: str | Path, what: str) -> Path:
    """The path, if the file system and a report can hold it; it need not exist. ``what`` names it in the message."""
    if reason := _unusable(path):
        shown = str(path).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
        raise UserError(f"{what} {shown} {reason}; choose another path.")
    return Path(path)


def _unusable(path: str | Path) -> str | None:
    """What makes a path unusable; None if nothing does."""
    if "\0" in str(path):
        return "contains a NUL character"
    try:
        str(path).encode()
        Path(path).stat()
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    except OSError as error:
        reasons = {errno.ENAMETOOLONG: "is too long", errno.ELOOP: "is a loop of symbolic links"}
        return reasons.get(error.errno or 0)
    return None
