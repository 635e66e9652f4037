"""The pages of the documentation, and what stands in them: blocks of code, and code in the text.

A block's language says what the tests do with it:

- ``sh`` and ``python`` run, the commands of a page from top to bottom in a folder like the one that it speaks of;
- ``bash`` and ``py`` are for machines that the tests don't have, a cluster or a network: they are read. Commands of
  ours go through the real parser, Python is compiled and its imports are found.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
Language = Literal["sh", "bash", "python", "py"]
_FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: Language
    text: str


def name(page: Path) -> str:
    """A page as people call it, such as docs/data.md."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The page's blocks of code from top to bottom; those of other languages, such as outputs, are left out."""
    found = [(info.split(" ")[0], text) for info, text in _FENCED.findall(page.read_text())]
    return [Block(language, text) for language, text in found if language in get_args(Language)]


def outputs(page: Path) -> list[str]:
    """The page's blocks that show what a command prints."""
    return [text for info, text in _FENCED.findall(page.read_text()) if info in ("text", "")]


def spans(page: Path) -> list[str]:
    """Code within the text."""
    prose = _FENCED.sub("", page.read_text())
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]


def commands(block: Block) -> list[list[str]]:
    """The words of each line that is a command; a line that ends in a backslash goes on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def ours(words: list[str]) -> list[str] | None:
    """The words after ``crate-mae``, or after ``-m crate_mae`` of another program; None for a command of others."""
    if words[0] == "crate-mae":
        return words[1:]
    return words[words.index("crate_mae") + 1 :] if "crate_mae" in words and "-m" in words else None
