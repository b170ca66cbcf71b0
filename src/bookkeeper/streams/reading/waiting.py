"""Records of a reader a few at a time; a wait that ends early loses nothing.

The wait for the next batch is a task of its own: who gives up waiting leaves it there, and the next call finds what
came meanwhile. At most one batch is held, the rest of one entry or the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Batch(Protocol[T_co]):
    """Some records."""

    def records(self) -> Iterator[T_co]: ...


class Waiting(Generic[T]):
    """The way through the batches of a reader."""

    def __init__(self, batches: AsyncGenerator[Batch[T], None]) -> None:
        self._batches = batches
        self._left: Iterator[T] = iter(())
        self._next: asyncio.Future[Batch[T] | None] | None = None
        self.is_over = False
        """All was read."""

    async def take(self, most: int, timeout: float | None) -> list[T]:
        """The next records, at most so many; none when the time is over, or all was read. Raises as the batches."""
        records = list(islice(self._left, most))
        while not records:
            batch = await self._batch(timeout)
            if batch is None:
                break
            self._left = batch.records()
            records = list(islice(self._left, most))
        return records

    async def _batch(self, timeout: float | None) -> Batch[T] | None:
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._batches, None))
        done, _ = await asyncio.wait([self._next], timeout=timeout)
        if not done:
            return None
        coming, self._next = self._next, None
        batch = coming.result()
        self.is_over = batch is None
        return batch

    def abandon(self) -> None:
        """What is waited for is not wanted any more."""
        if self._next is not None:
            self._next.cancel()

    async def close(self) -> None:
        """End the wait, and let go of what the reader has open."""
        coming, self._next = self._next, None
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
            if not coming.cancelled():
                coming.exception()  # nobody wants to know any more
        await self._batches.aclose()
