"""Parse the words of a command line into the arguments of a verb; a parsing error is one sentence."""

import functools
import inspect
import io
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from itertools import takewhile
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from crate_mae.errors import UserError, did_you_mean

POSITIONAL = get_args(tyro.conf.Positional[int])[1]
OPTION = re.compile(r"--[a-zA-Z]")
KINDS = {int: "a whole number", float: "a number", str: "a word", Path: "a path"}


def parse(verb: Callable[..., None], name: str, words: Sequence[str]) -> dict[str, Any]:
    """The arguments that the words give to a verb, by name; ``--help`` prints it and exits."""
    taken: dict[str, Any] = {}

    @functools.wraps(verb)
    def take(*values: Any, **named: Any) -> None:
        taken.update(inspect.signature(verb).bind(*values, **named).arguments)

    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            tyro.cli(take, prog=f"crate-mae {name}", args=list(words))
    except SystemExit as stop:
        if stop.code:
            raise UserError(_what_is_wrong(verb, name, words, printed.getvalue())) from None
        raise
    sys.stderr.write(printed.getvalue())
    return taken


def _what_is_wrong(verb: Callable[..., None], name: str, words: Sequence[str], box: str) -> str:
    """The error as one sentence, from the verb's signature. The parser's message only tells which argument is wrong."""
    parameters = inspect.signature(verb).parameters
    hints = get_type_hints(verb, include_extras=True)
    places = [each for each in parameters if POSITIONAL in getattr(hints[each], "__metadata__", ())]
    options = {f"--{each.strip('_').replace('_', '-')}": each for each in parameters if each not in places}
    given = [_option(word) for word in words if OPTION.match(word)]
    for flag in given:
        if flag not in options and flag.replace("--no-", "--") not in options:
            return f"crate-mae {name} has no option {flag}; {did_you_mean(flag, options)}"
    text = " ".join(re.sub(r"[│╭╮╰╯─]+", " ", box).split())
    required = [flag for flag, each in options.items() if parameters[each].default is inspect.Parameter.empty]
    missing = [flag for flag in required if flag not in given]
    if not missing and "Missing from" in text:
        missing = [each.upper() for each in places if parameters[each].default is inspect.Parameter.empty]
    if missing:
        return f"crate-mae {name} needs {' and '.join(missing)}; crate-mae {name} --help says more."
    if found := re.search(r"Unrecognized \w+: (\S+)", text):
        return f"crate-mae {name} can't use {found[1].rstrip(',')}; crate-mae {name} --help says what it takes."
    for flag in sorted(options, key=len, reverse=True):
        if re.search(rf"{flag}(?![\w-])", text):
            value = _given_to(flag, words)
            return f"{flag} takes {_kind(hints[options[flag]])}, " + (
                f"not {value}." if value else "and none is given."
            )
    reason = re.split(r" (?:For full helptext|Argument helptext|Got errors)", text)[0].rstrip(". ")
    return f"{reason}; crate-mae {name} --help says more."


def _option(word: str) -> str:
    """--mask_ratio=0.5 as --mask-ratio."""
    return word.split("=")[0].replace("_", "-")


def _given_to(flag: str, words: Sequence[str]) -> str:
    """The value of the last occurrence of an option."""
    places = [place for place, word in enumerate(words) if OPTION.match(word) and _option(word) == flag]
    if not places:
        return ""
    if "=" in words[places[-1]]:
        return words[places[-1]].split("=", 1)[1]
    return " ".join(takewhile(lambda word: not OPTION.match(word), words[places[-1] + 1 :]))


def _kind(hint: Any) -> str:
    """What an option of this type takes, in words."""
    parts = get_args(hint)
    match get_origin(hint):
        case origin if origin is Annotated:
            return _kind(parts[0])
        case origin if origin is Literal:
            return f"one of {', '.join(map(str, parts))}"
        case origin if origin in (Union, UnionType):
            return " or ".join(_kind(part) for part in parts if part is not NoneType)
        case origin if origin is tuple and parts[-1] is Ellipsis:
            return _kind(parts[0])
        case origin if origin is tuple:
            return f"{len(parts)} {_kind(parts[0]).removeprefix('a ')}s"
    return KINDS.get(hint, "no value")
