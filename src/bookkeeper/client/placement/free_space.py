"""How much room bookies have, for `diskWeightBasedPlacementEnabled` (spec client §11.6, §12.2).

All writable bookies are asked at the start and every `getBookieInfoIntervalSeconds`; new ones when they appear; those
that did not answer, after `getBookieInfoRetryIntervalSeconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from ...config import ClientConfiguration
from ...runtime import Runtime, guarded
from ...types import BookieId
from .bookie_watcher import BookieWatcher

log = logging.getLogger(__name__)


class FreeSpace:
    """`known`: free bytes by bookie, as last heard."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfiguration,
        bookies: BookieWatcher,
        ask: Callable[[BookieId], Awaitable[int | None]],
    ) -> None:
        """`ask` gives a bookie's free bytes, None if it does not answer."""
        self._runtime = runtime
        self._interval = config.getBookieInfoIntervalSeconds
        self._retry = config.getBookieInfoRetryIntervalSeconds
        self._bookies = bookies
        self._ask = ask
        self.known: dict[BookieId, int] = {}

    async def run(self) -> None:
        """Ask, for ever."""
        due = self._runtime.now()
        while True:
            writable = self._bookies.writable
            if self._runtime.now() >= due:
                due = self._runtime.now() + self._interval
                asked = writable
            else:
                asked = tuple(bookie for bookie in writable if bookie not in self.known)
            with guarded("free space of bookies"):
                await self._ask_all(asked)
            silent = any(bookie not in self.known for bookie in writable)
            wait = due - self._runtime.now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait, self._retry) if silent else wait):
                    await self._bookies.changed(writable)

    async def _ask_all(self, bookies: Collection[BookieId]) -> None:
        answers = await asyncio.gather(*map(self._ask, bookies))
        for bookie, free in zip(bookies, answers, strict=True):
            if free is not None:
                self.known[bookie] = free
            elif bookie not in self.known:
                log.info("bookie %s does not say how much room it has", bookie)
        for gone in self.known.keys() - set(self._bookies.writable):
            del self.known[gone]
