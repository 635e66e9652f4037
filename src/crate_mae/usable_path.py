"""Paths from users: one that no file can have is refused before it is used."""

import os
from pathlib import Path

from crate_mae.errors import UserError

SHOWN = 100
"""Characters of a path in a message, if it has at least twice this number."""


def usable(path: str | Path, name: str = "the path") -> Path:
    """The path with ``~`` expanded; it need not exist. ``name`` is what messages call it."""
    if "\0" in str(path):
        raise UserError(f"{name} has a NUL byte in it; remove it.")
    try:
        expanded = Path(path).expanduser()
        expanded.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return expanded  # whether that matters is for the caller to say
    except RuntimeError:
        raise UserError(f"{name} {shown(path)} names the home of a user that does not exist.") from None
    except OSError as error:  # too long, or links that lead to each other
        raise UserError(f"{name} {shown(path)} can't be used ({error.strerror}); choose another path.") from None
    return expanded


def printable(name: str) -> str:
    """A file name as text that any terminal and JSON file takes, even if it is not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_unicode(text: str) -> bool:
    """Whether a text can be written to a file; names of files, and JSON, may hold what can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(path: str | Path) -> str:
    """A path for a message, shortened if it is long."""
    text = printable(str(path))
    return text if len(text) < 2 * SHOWN else f"{text[:SHOWN]}.."
