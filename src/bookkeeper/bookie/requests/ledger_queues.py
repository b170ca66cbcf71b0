"""Requests of one connection that may need the disk: in order within a ledger, ledgers side by side.

Theory of operation

Requests wait in a queue per ledger. At most `width` runners, tasks that live as long as there is something to do,
take the ledgers in turn, one request each time. So entries of one ledger are read one after the other, and what the
storage reads ahead for the first is there for the next; a slow ledger does not hold up the others; and there is no
task per request.

Before each request a runner waits until the connection takes output, and then for one of the slots that all
connections share, in turn. No request holds a slot while it waits for its peer: a peer that does not read its socket
stops its own requests only.

What runners do costs the loop's time, and they give way as whoever serves the socket does (`sharing.turns`): for as
long as their peer rests, and after a slice.

`width` may change: it is as many as there may be answers of the size that this connection has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..sharing.memory import Peer
from ..sharing.shares import Shares
from ..sharing.turns import Turns

LONGEST_STEP = 0.0005
"""Seconds of the loop that one request is charged for, at most: what takes longer has waited for something."""


class Work:
    """One piece of work: answers `count` requests and does not raise."""

    __slots__ = ("count", "run")

    def __init__(self, run: Callable[[], Awaitable[Work | None]], count: int = 1) -> None:
        self.run = run
        """Returns what is left to do when the peer does not take more answers now."""
        self.count = count


class Gate:
    """Open while a connection takes output."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()

    @property
    def open(self) -> bool:
        return self._event.is_set()

    def set(self, is_open: bool) -> None:
        if is_open:
            self._event.set()
        else:
            self._event.clear()

    async def passed(self) -> None:
        """Wait until it is open; at once if it is."""
        if not self._event.is_set():
            await self._event.wait()


class LedgerQueues:
    """The queues of one connection and one priority."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        output: Gate,
        ended: Callable[[int], None],
        slots: Shares,
        turns: Turns,
        peer: Callable[[], Peer],
        *,
        width: Callable[[], int],
        limit: int,
    ) -> None:
        self._spawn = spawn
        self._output = output
        self._ended = ended  # told how many requests were finished or dropped
        self._slots = slots
        self._turns = turns
        self._peer = peer
        self._width = width
        self._limit = limit
        # Neither is ever empty, except that of a ledger whose last request runs.
        self._queues: dict[int, deque[Work]] = {}
        self._ready: deque[int] = deque()  # ledgers with a queue that no runner is at
        self._runners = 0
        self.pending = 0
        """Requests in the queues."""

    def submit(self, ledger_id: int, work: Work) -> bool:
        """Queue work; False when that would make more than `limit` requests that wait."""
        if self.pending + work.count > self._limit:
            return False
        self.pending += work.count
        queue = self._queues.get(ledger_id)
        if queue is None:
            self._queues[ledger_id] = deque((work,))
            self._ready.append(ledger_id)
            self._more_runners()
        else:
            queue.append(work)
        return True

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        dropped, self.pending = self.pending, 0
        self._ready.clear()
        for queue in self._queues.values():
            queue.clear()
        self._ended(dropped)

    def _more_runners(self) -> None:
        if self._ready and self._runners < self._width():
            self._runners += 1
            self._spawn(self._run())

    async def _run(self) -> None:
        turns = self._turns
        since = turns.now()  # the loop has not turned since
        try:
            while self._ready and self._runners <= self._width():
                ledger_id = self._ready.popleft()
                await self._slot()
                try:
                    await turns.turn(self._peer())
                    began = turns.now()
                    await self._run_one(self._queues[ledger_id])
                finally:
                    self._slots.release(self._peer())
                if self._queues[ledger_id]:
                    self._ready.append(ledger_id)
                else:
                    del self._queues[ledger_id]
                now = turns.now()
                turns.charge(self._peer(), min(now - began, LONGEST_STEP), now)
                if now - since > turns.slice_seconds(now):
                    await asyncio.sleep(0)
                    since = turns.now()
        finally:
            self._runners -= 1
        self._more_runners()

    async def _run_one(self, queue: deque[Work]) -> None:
        if not queue:
            return
        work = queue.popleft()
        self.pending -= work.count
        left: Work | None = None
        try:
            left = await work.run()
        finally:
            self._ended(work.count - (left.count if left is not None else 0))
        if left is not None:
            self.pending += left.count
            queue.appendleft(left)

    async def _slot(self) -> None:
        """Wait until the connection takes output and there is a slot for it."""
        slots, peer = self._slots, self._peer()
        while True:
            await self._output.passed()
            if slots.try_acquire(peer):
                return
            turn = slots.wait(peer, self)
            try:
                await turn
            except asyncio.CancelledError:
                slots.forget(peer, 1, turn)
                raise
            if self._output.open:
                return
            slots.release(peer)
