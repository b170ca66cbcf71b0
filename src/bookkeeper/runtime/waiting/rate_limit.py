"""So many units a second."""

from __future__ import annotations

import asyncio

from ..api import Runtime


class RateLimit:
    """Lets `rate` units pass a second, evenly; 0 or less: no limit. It may be changed at any time."""

    def __init__(self, runtime: Runtime, rate: float) -> None:
        self._runtime = runtime
        self.rate = rate
        self._next = runtime.now()

    async def take(self, amount: float) -> None:
        """Return when `amount` more units may pass: when those before them are paid for."""
        if self.rate <= 0:
            return
        now = self._runtime.now()
        self._next = max(self._next, now)
        delay = self._next - now
        self._next += amount / self.rate
        if delay > 0:
            await asyncio.sleep(delay)
