"""Small JSON files, such as the configuration of a checkpoint or of a run."""

import json
from pathlib import Path
from typing import Any

MOST = 16 * 2**20
"""Bytes. A configuration has a few thousand; the names of a million classes fit too."""


def read_json(path: Path) -> Any:
    """The content of a file; ValueError if it is not JSON or too long for a configuration, OSError as from ``open``.

    At most ``MOST`` bytes are read, so that a file that was made to fill the memory can't do so.
    """
    with path.open("rb") as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise ValueError(f"it is longer than {MOST // 2**20} MB")
    return parse_json(content)


def parse_json(content: bytes | str) -> Any:
    """What a text says; ValueError where it is no JSON."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
