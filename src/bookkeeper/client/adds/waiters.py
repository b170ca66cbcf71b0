"""Callers that wait for entries of one writer. Who waits for one entry is in the window, with the entry; who waits for
all up to an id is in `Flushes`.

Each is told once: when its entries are acknowledged, or when the writer's pipeline stops. A caller that was cancelled
is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import BKError


class Flushes:
    """Callers that wait for all entries up to an id."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Future[int], int] = {}
        """Done when everything up to an id is confirmed."""

    def confirmed(self, head: int) -> None:
        """Everything up to this id is confirmed."""
        for future, last in list(self.waiting.items()):
            if last <= head:
                del self.waiting[future]
                if not future.done():
                    future.set_result(last)

    async def until(self, entry_id: int) -> None:
        """Wait until everything up to an id is confirmed. Raises what `fail` says."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting[future] = entry_id
        try:
            await future
        finally:
            self.waiting.pop(future, None)

    def fail(self, error: Callable[[], BKError]) -> None:
        """Nothing more is confirmed. Each caller gets an error of its own."""
        for future in self.waiting:
            fail(future, error())
        self.waiting.clear()


def fail(future: asyncio.Future[int], error: BKError) -> None:
    """Tell a caller, if it waits still."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # callers that do not ask for it are told by the log, once for all entries
