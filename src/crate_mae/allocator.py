"""The C library's memory between two steps."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM, _MMAP = -1, -3  # the names that mallopt has for its two thresholds
_NEVER, _LARGEST = -1, 1 << 30
_AFTERWARDS = 32 << 20  # as high as glibc itself goes in the end where large pieces are freed


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep what tensors free for the tensors to come, rather than give it back to the system each time.

    A step on a CPU frees and asks for the same gigabytes again and again. glibc returns large pieces to the kernel,
    which has to map and clear every page of them anew; docs/log.md says what that costs. At the end everything
    is given back. Where the C library is not glibc nothing happens.
    """
    library = ctypes.CDLL(None if sys.platform != "win32" else "msvcrt")
    if not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(_TRIM, _NEVER)
    library.mallopt(_MMAP, _LARGEST)
    try:
        yield
    finally:
        library.mallopt(_TRIM, _AFTERWARDS)
        library.mallopt(_MMAP, _AFTERWARDS)
        library.malloc_trim(0)
