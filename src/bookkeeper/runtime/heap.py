"""The C library's heap: what is freed is kept for what is needed next, by whichever thread.

By default glibc gives memory of large objects back to the system as soon as they are freed, and gets it again, page by
page, for the next one. A process that handles data by the megabyte then spends more time on that than on the data: an
object of 1 MB costs 256 page faults, which on a virtual machine are longer than copying it is by a factor of twenty.

It also gives each thread a heap of its own, and keeps what was freed in each of them. Threads of Python have no use for
that, as only one of them runs: what one thread frees serves another one if they share a heap.
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
_M_ARENA_MAX = -8


def keep_freed_memory() -> bool:
    """Let this process keep up to `KEPT_BYTES` that were freed, for all its threads; whether the C library can.

    Idempotent. Call it before there are threads: a heap that one has is its own for good.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library, which has no such setting
        return False
    settings = ((_M_MMAP_THRESHOLD, LARGEST_BYTES), (_M_TRIM_THRESHOLD, KEPT_BYTES), (_M_ARENA_MAX, 1))
    return all(mallopt(setting, value) for setting, value in settings)
