"""Requests that kazoo has and has not answered: a bounded number, each until it is answered or given up."""

from __future__ import annotations

import asyncio
from typing import Any


class InFlight:
    """See the module. A request is a future, which keeps a slot from `begin` to `settle`."""

    __slots__ = ("_futures", "_slots")

    def __init__(self, most: int) -> None:
        self._slots = asyncio.Semaphore(most)
        self._futures: dict[asyncio.Future[Any], None] = {}

    def __len__(self) -> int:
        return len(self._futures)

    async def slot(self) -> None:
        """Wait for a slot and take it."""
        await self._slots.acquire()

    def give_back(self) -> None:
        """A slot was taken, and nothing begins."""
        self._slots.release()

    def begin(self) -> asyncio.Future[Any]:
        """A request takes the slot of its caller."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures[future] = None
        return future

    def settle(self, future: asyncio.Future[Any], result: Any) -> None:
        """kazoo's answer, or None when the time is up. The first one counts."""
        if self._futures.pop(future, 0) is None:
            self._slots.release()
        if future.done():
            return
        if result is None:
            future.set_exception(TimeoutError())
        elif result.exception is not None:
            future.set_exception(result.exception)
        else:
            future.set_result(result.value)

    def fail_all(self, error: Exception) -> None:
        """None of them will be answered. Slots stay taken until `settle`."""
        for future in list(self._futures):
            if not future.done():
                future.set_exception(error)
