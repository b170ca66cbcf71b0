"""A bound on how much is in progress at once, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """`maxAddsInProgressLimit` or `maxReadsInProgressLimit`: 0 means no bound. Counts in any case."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Event | None = None
        self.used = 0

    def free(self) -> bool:
        """Whether another one may start. What is asked for in one piece may overshoot the bound once."""
        return self._limit <= 0 or self.used < self._limit

    def take(self, count: int = 1) -> None:
        self.used += count

    def give_back(self, count: int = 1) -> None:
        self.used -= count
        assert self.used >= 0
        if self.used == 0 and self._idle is not None:
            self._idle.set()
        while self._waiting and self.free():
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                break  # it takes its permit when it runs; the next one is woken when that is given back

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in progress."""
        while self.used:
            self._idle = asyncio.Event()
            await self._idle.wait()

    async def wait(self) -> None:
        """Wait until `free`, behind those that wait already."""
        while not self.free():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
