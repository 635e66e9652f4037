"""The one exception for bad input."""


class UserError(ValueError):
    """What is wrong and what to do, in one sentence; the command line prints it and exits with code 2."""
