"""The one exception for bad input."""


class UserError(ValueError):
    """What is wrong and what to do, in one sentence; the command line prints it and exits with code 2."""


def missing_extra(what: str, extra: str) -> UserError:
    """What to raise where an import fails: ``what`` needs packages that the optional ``extra`` brings."""
    return UserError(f"{what} needs packages that are not installed; pip install 'crate-mae[{extra}]' brings them.")
