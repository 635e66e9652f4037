"""What to do about a file that could not be written."""

import errno
import os
import re

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system calls a full disk, or a full share of one."""
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""What it calls a disk or folder that may not be written to."""
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ESTALE)
"""What it says where a folder, or the disk that it is on, was removed."""


def error_number(error: BaseException) -> int | None:
    """The system's number of an error, also where Rust or C++ met it and only its text says so."""
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
    return "check that its folder is there" if number in GONE else "check the disk"
