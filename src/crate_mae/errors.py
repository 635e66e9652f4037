"""The one exception for bad input, and sentences that several messages share."""

import reprlib
from collections.abc import Iterable


class UserError(ValueError):
    """What is wrong and what to do, in one sentence; the command line prints it and exits with code 2."""


def brief(value: object) -> str:
    """A value for a message, shortened if it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # a number of more digits than Python prints
        return "too large a number"


def missing_extra(what: str, extra: str) -> UserError:
    """The error for a failed import: ``what`` needs packages that the optional ``extra`` installs."""
    return UserError(f"{what} needs packages that are not installed; pip install 'crate-mae[{extra}]' installs them.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is spelled most like this one; None if none is similar."""
    from difflib import get_close_matches  # only needed after a mistake

    return next(iter(get_close_matches(name, list(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of a message about an unknown name: the nearest known one; without one, ``otherwise`` or all of them."""
    names = list(known)
    near = nearest(name, names)
    return f"did you mean {near}?" if near else otherwise or f"there are {', '.join(names) or 'none'}."


def check_at_least(name: str, value: int, least: int) -> None:
    """Refuse a whole number below ``least``."""
    if value < least:
        raise UserError(f"{name} is {value}; choose a whole number from {least} up.")
