"""The C library's heap: what is freed is kept for what is needed next.

By default glibc gives memory of large objects back to the system as soon as they are freed, and gets it again, page by
page, for the next one. A process that handles data by the megabyte then spends more time on that than on the data: an
object of 1 MB costs 256 page faults, which on a virtual machine are longer than copying it is by a factor of twenty.
"""

from __future__ import annotations

import ctypes
import sys

KEPT_BYTES = 64 << 20
"""Of freed memory, in each process that keeps it."""
LARGEST_BYTES = 16 << 20
"""An object that is larger is not kept."""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Let this process keep up to `KEPT_BYTES` that were freed; whether the C library can. Idempotent."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library, which has no such setting
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
