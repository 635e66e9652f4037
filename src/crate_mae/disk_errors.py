"""What to do about a file that could not be written."""

import errno
import os
import re

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk or an exhausted quota."""
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Error numbers of a disk or folder without write permission."""
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ESTALE)
"""Error numbers of a folder, or of its disk, that was removed."""


def error_number(error: BaseException) -> int | None:
    """The system's error number, also if the error comes from Rust or C++ and only its text has the number."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    text = str(error)
    if found := re.search(r"os error (\d+)|\[Errno (\d+)\]", text):
        return int(found[1] or found[2])
    return next((number for number in (*FULL, *CLOSED, errno.ENOENT) if os.strerror(number) in text), None)


def reason(error: BaseException) -> str:
    """What went wrong, in a few words without the paths that the caller names."""
    number = error_number(error)
    return os.strerror(number) if number else (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def remedy(error: BaseException) -> str:
    """What a person should do before trying again."""
    number = error_number(error)
    if number in FULL:
        return "make room"
    if number in CLOSED:
        return "make it writable"
    if number in (errno.EEXIST, errno.EISDIR):
        return "there is a file or folder of that name"
    return "check that its folder is there" if number in GONE else "check the disk"
