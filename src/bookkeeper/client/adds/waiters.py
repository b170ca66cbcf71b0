"""Callers that wait for entries of one writer: for one entry, or for all up to an id.

Each is told once: by `confirmed` when its entries are acknowledged, or by `fail` when the writer's pipeline stops.
A caller that was cancelled is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...errors import BKError


class AddWaiters:
    """See the module."""

    __slots__ = ("_flushes", "futures")

    def __init__(self) -> None:
        self.futures: dict[int, asyncio.Future[int]] = {}
        """By id of a pending entry that a caller waits for. The pipeline enters them itself: one store for an entry."""
        self._flushes: dict[asyncio.Future[int], int] = {}  # done when everything up to an id is confirmed

    def __len__(self) -> int:
        return len(self.futures) + len(self._flushes)

    def confirmed(self, entry_ids: range) -> None:
        """These entries, at least one, are confirmed, and all below them."""
        futures = self.futures
        if futures:
            for entry_id in entry_ids:
                future = futures.pop(entry_id, None)
                if future is not None and not future.done():
                    future.set_result(entry_id)
        if self._flushes:
            self._flushed(entry_ids[-1])

    def _flushed(self, head: int) -> None:
        for future, last in list(self._flushes.items()):
            if last <= head:
                del self._flushes[future]
                if not future.done():
                    future.set_result(last)

    async def until(self, entry_id: int) -> None:
        """Wait until everything up to an id is confirmed. Raises what `fail` says."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._flushes[future] = entry_id
        try:
            await future
        finally:
            self._flushes.pop(future, None)

    def fail(self, entry_ids: Sequence[int], first: int, error: Callable[[int], BKError]) -> None:
        """These entries have failed, `first` before all. `error` makes the error of an entry; each caller gets one."""
        for entry_id in entry_ids:
            _fail(self.futures.pop(entry_id, None), error(entry_id))
        for future in self._flushes:
            _fail(future, error(first))
        self._flushes.clear()


def _fail(future: asyncio.Future[int] | None, error: BKError) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()  # callers that do not ask for it are told by the log, once for all entries
