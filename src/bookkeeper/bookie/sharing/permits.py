"""A bound on how much is in progress at once, first come, first served.

A waiter that is let in may take nothing after all: its ledger was fenced meanwhile, its connection is gone, its read is
answered from memory. So the next one is looked at when its turn is over (`OneByOne`), not when it takes something.
"""

from __future__ import annotations

import asyncio

from ...runtime.waiting.wait_queue import OneByOne


class Permits:
    """`maxAddsInProgressLimit` or `maxReadsInProgressLimit`: 0 means no bound. Counts in any case."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: OneByOne[int] = OneByOne(lambda _: self.free())  # at most two per connection
        self._idle: asyncio.Event | None = None
        self.used = 0

    def free(self, count: int = 1) -> bool:
        """Whether so many more may start. What is asked for in one piece may overshoot the bound once."""
        return self._limit <= 0 or self.used + count <= self._limit

    def acquire(self, count: int = 1) -> None:
        self.used += count

    def release(self, count: int = 1) -> None:
        self.used -= count
        assert self.used >= 0
        if self.used == 0 and self._idle is not None:
            self._idle.set()
            self._idle = None
        if self._line.busy:
            self._line.serve()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in progress."""
        while self.used:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    async def wait(self) -> None:
        """Wait until `free`, behind those that wait already. The caller takes its permits before it awaits anything."""
        if not self.free():
            await self._line.wait(1)
