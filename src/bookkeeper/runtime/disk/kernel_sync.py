"""Syncs by the kernel's asynchronous I/O: no thread of this process waits for them.

Theory of operation

To hand a sync to a thread, and to hear of its end, changes the thread four times, and twice the interpreter's owner:
beside a small write that is more than the write and the sync take of the processor. Linux has threads of its own for
it. `io_submit` with `IOCB_CMD_FDSYNC` lets one of them do the `fdatasync` of what is written by then, and returns; when
it is done an `eventfd` becomes readable, which the event loop watches as it watches sockets, and `io_getevents` gives
the outcome (io_submit(2), linux/aio_abi.h; since Linux 4.18).

Where there is none of it (other systems and processors, sandboxes that forbid it, a system that has given it all to
others) there is no `KernelSync`; a file system that cannot do it refuses when it is asked. The calls have no function
in the C library: they are made by number.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import platform
import sys
from collections.abc import Callable
from typing import NamedTuple, Self

from ..api import BackgroundSync, File
from .files import RealFile

log = logging.getLogger(__name__)


class _Calls(NamedTuple):
    """Numbers of the system's calls."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_CALLS_OF = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}

_FDSYNC = 3
_TELL_EVENTFD = 1


class _Request(ctypes.Structure):
    """`struct iocb`, of processors whose least byte comes first."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Outcome(ctypes.Structure):
    """`struct io_event`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelSync(BackgroundSync):
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calls: _Calls) -> None:
        """Raises `OSError` if the system does not have it, or has none left."""
        self._loop = loop
        self._calls = calls
        # With the interpreter held: to get it back from another thread takes longer than these calls.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if self._call(calls.setup, 1, ctypes.byref(self._context)) < 0:
            number = ctypes.get_errno()
            os.close(self._eventfd)
            raise OSError(number, os.strerror(number))
        self._request = _Request(opcode=_FDSYNC, flags=_TELL_EVENTFD, eventfd=self._eventfd)
        self._requests = ctypes.byref((ctypes.c_void_p * 1)(ctypes.addressof(self._request)))
        self._outcome = _Outcome()
        self._outcomes = ctypes.byref(self._outcome)
        self._under_way: tuple[str, Callable[[OSError | None], None]] | None = None  # the file's path, whom to tell
        self._idle: asyncio.Event | None = None  # from close() on
        self._refused = False
        loop.add_reader(self._eventfd, self._is_over)

    @classmethod
    def open(cls, loop: asyncio.AbstractEventLoop) -> Self | None:
        """None where there is none of it."""
        calls = _CALLS_OF.get(platform.machine())
        if sys.platform != "linux" or calls is None:
            return None
        try:
            return cls(loop, calls)
        except (OSError, AttributeError) as error:  # a C library may have no `syscall`
            log.debug("the kernel does not sync in the background: %s", error)
            return None

    def start(self, file: File, done: Callable[[OSError | None], None]) -> bool:
        if self._under_way is not None or self._refused or self._idle is not None or type(file) is not RealFile:
            return False  # also a file that syncs in a way of its own
        self._request.file = file.fileno()
        if self._call(self._calls.submit, self._context, 1, self._requests) != 1:
            self._refused = ctypes.get_errno() != errno.EAGAIN
            return False
        self._under_way = file.path, done
        return True

    def _is_over(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        assert self._under_way is not None
        (path, done), self._under_way = self._under_way, None
        if self._idle is not None:
            self._idle.set()
        if self._call(self._calls.getevents, self._context, 1, 1, self._outcomes, None) == 1:
            number = -self._outcome.result
        else:
            number = ctypes.get_errno() or errno.EIO  # what became of it is not known
        done(OSError(number, os.strerror(number), path) if number > 0 else None)

    async def close(self) -> None:
        if self._idle is None:
            self._idle = asyncio.Event()
            if self._under_way is None:
                self._idle.set()
        await self._idle.wait()
        if self._eventfd >= 0:
            eventfd, self._eventfd = self._eventfd, -1
            self._loop.remove_reader(eventfd)
            os.close(eventfd)
            self._call(self._calls.destroy, self._context)
