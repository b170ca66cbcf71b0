"""Plain iterators over asynchronous ones.

A pump on the loop fills a bounded buffer; the iterator takes over all of it at once. Threads may share an iterator:
each item goes to exactly one of them, and when it is over, all of them come to the end. One request for the next run
is under way at a time, for whichever thread, and all that find nothing ready wait for that one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Generic, Self, TypeVar

from ..client.entry import LedgerEntry
from ..errors import BookKeeperError
from ..runtime.loop_thread import LoopThread, new_lock
from .blocking import Blocking, ClosedAtExit, Deadline

T = TypeVar("T")

READ_AHEAD = 1024
READ_AHEAD_BYTES = 4 << 20
"""What an iterator holds ready: items, and bytes of entries or batches."""


class BlockingIterator(ClosedAtExit, Blocking, Generic[T]):
    """A plain iterator over an asynchronous one. Leaving it early: `close`, or use it in `with`."""

    def __init__(
        self, thread: LoopThread, iterate: Callable[[], AsyncGenerator[T, None]], timeout: float | None
    ) -> None:
        super().__init__(thread)
        self._timeout = timeout
        self._lock = new_lock()  # for the three below; never held while waiting
        self._ready: deque[T] = deque()  # taken over from the loop
        self._taking: concurrent.futures.Future[deque[T]] | None = None  # asked for, not here yet
        self._pump: _Pump[T] | None = None  # None once it is over
        self._pump = self._call(_start_pump(iterate), None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while True:
            try:
                return self._ready.popleft()
            except IndexError:
                self._take()

    def _take(self) -> None:
        """Have something ready for the first thread. Raises the generator's error, `StopIteration` at the end."""
        self._may_wait()
        with self._lock:
            if self._ready:
                return
            if self._pump is None:
                raise StopIteration
            if self._taking is None:
                self._taking = self._submit(self._pump.take())
            taking = self._taking
        try:
            run = self._wait(taking, Deadline(self._timeout), "the next call goes on waiting for it")
        except BaseException:
            if taking.done():
                self.close()
            raise
        with self._lock:
            if self._taking is taking:  # we are the first of those who waited for it
                self._taking = None
                self._ready.extend(run)
        if not run:
            self.close()

    def close(self) -> None:
        """Stop reading ahead. Idempotent."""
        self._may_wait()
        with self._lock:
            pump, self._pump = self._pump, None
            if pump is not None:
                self._taking = None
                self._ready.clear()
        if pump is not None and not self._thread.ended:
            with contextlib.suppress(BookKeeperError):  # the client was closed meanwhile
                self._call(pump.stop(), None)

    def __del__(self) -> None:
        pump = getattr(self, "_pump", None)
        if pump is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the pump with it
                self._thread.call_soon(pump.cancel)


class _Pump(Generic[T]):
    """Runs on the loop: fills a bounded buffer from an asynchronous generator."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._buffer: deque[T] = deque()  # at most READ_AHEAD items
        self._bytes = 0  # in `_buffer`; about READ_AHEAD_BYTES
        self._changed = asyncio.Event()  # something arrived, or it is over
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(items), name="bookkeeper.sync read-ahead")
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # `take` tells of it, if asked

    async def _run(self, items: AsyncGenerator[T, None]) -> None:
        try:
            async with contextlib.aclosing(items):
                async for item in items:
                    self._buffer.append(item)
                    self._bytes += _size_of(item)
                    self._changed.set()
                    if len(self._buffer) >= READ_AHEAD or self._bytes >= READ_AHEAD_BYTES:
                        self._room.clear()
                        await self._room.wait()
        finally:
            self._changed.set()

    async def take(self) -> deque[T]:
        """Everything that is ready, waiting for at least one; empty at the end. Raises the generator's error."""
        while not self._buffer:
            if self._task.done():
                if not self._task.cancelled():
                    self._task.result()
                return deque()
            self._changed.clear()
            await self._changed.wait()
        taken, self._buffer = self._buffer, deque()
        self._bytes = 0
        self._room.set()
        return taken

    def cancel(self) -> None:
        self._task.cancel()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _size_of(item: object) -> int:
    """Bytes of an entry, or of an Arrow batch, whose package need not be there; small things count as items only."""
    size: int = len(item.data) if isinstance(item, LedgerEntry) else getattr(item, "nbytes", 0)
    return size


async def _start_pump(iterate: Callable[[], AsyncGenerator[T, None]]) -> _Pump[T]:
    return _Pump(iterate())
