"""A bound on how much is in progress at once, first come, first served.

A waiter that is woken may take nothing after all: its ledger was fenced meanwhile, its connection is gone, its read is
answered from memory. So nobody relies on a woken waiter to wake the next one: whenever one has run, the next is woken
as long as there are permits.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """`maxAddsInProgressLimit` or `maxReadsInProgressLimit`: 0 means no bound. Counts in any case."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()  # at most two per connection
        self._idle: asyncio.Event | None = None
        self.used = 0

    def free(self) -> bool:
        """Whether another one may start. What is asked for in one piece may overshoot the bound once."""
        return self._limit <= 0 or self.used < self._limit

    def acquire(self, count: int = 1) -> None:
        self.used += count

    def release(self, count: int = 1) -> None:
        self.used -= count
        assert self.used >= 0
        if self.used == 0 and self._idle is not None:
            self._idle.set()
            self._idle = None
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        """Wake the first that waits, if it may start."""
        while self._waiting and self.free():
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                break  # the next one when this one has run: see `wait`

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in progress."""
        while self.used:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    async def wait(self) -> None:
        """Wait until `free`, behind those that wait already."""
        loop = asyncio.get_running_loop()
        queue = self._waiting.append
        while not self.free():
            future: asyncio.Future[None] = loop.create_future()
            queue(future)
            try:
                await future
            finally:
                loop.call_soon(self._wake)  # when the caller has taken what it takes
            queue = self._waiting.appendleft  # woken, and another was faster
