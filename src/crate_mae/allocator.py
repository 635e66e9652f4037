"""How the C library keeps freed memory between two steps."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM, _MMAP = -1, -3  # mallopt's names for its two thresholds
_NEVER, _LARGEST = -1, 1 << 30
_AFTERWARDS = 32 << 20  # the highest that glibc itself goes


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next tensors, instead of returning it to the system each time.

    A step on a CPU frees and allocates the same gigabytes again and again. glibc returns large blocks to the kernel,
    which has to map and clear every page again; docs/log.md says what that costs. At the end everything is returned.
    Nothing happens if the C library is not glibc.
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
