"""A file that could not be written: the system's reason, and what to do about it."""

import errno
import os
import re

import pytest
from safetensors import SafetensorError

from crate_mae.disk_errors import reason, remedy
from crate_mae.errors import UserError


@pytest.mark.parametrize(
    ("error", "why", "what"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a/b"), "No space left on device", "make room"),
        (SafetensorError("Error: I/O error: No space left on device (os error 28)"), "No space left", "make room"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "a/b"), "Read-only file system", "make it writable"),
        (SafetensorError("I/O error: Read-only file system (os error 30)"), "Read-only", "make it writable"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "Permission denied", "make it writable"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), "No such file", "its folder is there"),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG)), "File too large", "check the disk"),
        (UserError("x could not be written (No space left on device); make room"), "^No space left", "make room"),
        (RuntimeError("stream failed.\nmore"), "^stream failed$", "check the disk"),
        (RuntimeError(), "RuntimeError", "check the disk"),
    ],
)
def test_reason_and_remedy(error: BaseException, why: str, what: str) -> None:
    assert re.search(why, reason(error))
    assert what in remedy(error)
