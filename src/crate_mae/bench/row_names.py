"""The groups of rows by name; nothing heavy is imported here, so that a wrong name is refused at once."""

from crate_mae.errors import UserError, did_you_mean

NAMES = (
    "base",
    "memory",
    "encoding",
    "desk",
    "small",
    "profile",
    "forms",
    "rates",
    "probe",
    "pipeline",
    "processes",
    "scaling",
    "start",
    "quality",
)
"""In the order in which they are measured; ``command.GROUPS`` has what each measures."""


def chosen(only: tuple[str, ...]) -> tuple[str, ...]:
    """The chosen names, checked; all names if none is chosen."""
    for name in only:
        if name not in NAMES:
            raise UserError(f"there is no row {name}; {did_you_mean(name, NAMES)}")
    return only or NAMES
