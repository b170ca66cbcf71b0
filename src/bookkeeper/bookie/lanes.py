"""Requests of one connection that may need the disk: in order within a ledger, ledgers side by side.

Theory of operation

Requests wait in a queue per ledger. At most `width` runners, tasks that live as long as there is something to do,
take the ledgers in turn, one request each time. So entries of one ledger are read one after the other, and what the
storage reads ahead for the first is there for the next; a slow ledger does not hold up the others; and there is no
task per request.

A runner waits before each request until the connection takes output (`gate`): a peer that does not read its socket
stops its own requests and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Work = Callable[[], Awaitable[None]]

TURN = 32
"""Requests that a runner handles before it lets the loop turn, when none of them had to wait."""


class Lanes:
    """The queues of one connection and one priority."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        gate: Callable[[], Awaitable[None]],
        ended: Callable[[int], None],
        *,
        width: int,
        limit: int,
    ) -> None:
        self._spawn = spawn
        self._gate = gate
        self._ended = ended  # told how many requests were finished or dropped
        self._width = width
        self._limit = limit
        self._queues: dict[
            int, deque[tuple[Work, int]]
        ] = {}  # never empty, except that of a ledger whose last request runs
        self._ready: deque[int] = deque()  # ledgers with a queue that no runner is at
        self._runners = 0
        self.pending = 0
        """Requests in the queues."""

    def submit(self, ledger_id: int, work: Work, count: int = 1) -> bool:
        """Queue `count` requests as one piece; False when that would make more than `limit` that wait.

        `work` answers them and does not raise.
        """
        if self.pending + count > self._limit:
            return False
        self.pending += count
        queue = self._queues.get(ledger_id)
        if queue is None:
            self._queues[ledger_id] = deque(((work, count),))
            self._ready.append(ledger_id)
            if self._runners < self._width:
                self._runners += 1
                self._spawn(self._run())
        else:
            queue.append((work, count))
        return True

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        dropped, self.pending = self.pending, 0
        self._ready.clear()
        for queue in self._queues.values():
            queue.clear()
        self._ended(dropped)

    async def _run(self) -> None:
        done = 0
        try:
            while self._ready:
                ledger_id = self._ready.popleft()
                await self._gate()
                queue = self._queues[ledger_id]
                if queue:
                    work, count = queue.popleft()
                    self.pending -= count
                    try:
                        await work()
                    finally:
                        self._ended(count)
                if queue:
                    self._ready.append(ledger_id)
                else:
                    del self._queues[ledger_id]
                done += 1
                if done % TURN == 0:
                    await asyncio.sleep(0)
        finally:
            self._runners -= 1
