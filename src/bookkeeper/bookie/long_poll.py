"""Long polls: reads that wait until the ledger's LAC has moved on (spec wire-protocol §4.4, bookie-server §2.9).

Theory of operation

A poll waits in its ledger's handle. Whoever raises the LAC ends the polls that it passes; the others keep waiting
(Java forgets them, G8). Fencing and deletion end all polls of the ledger. A poll that nothing ends within its time is
answered with what is known then: that is a success too. When its connection goes, so does the poll.

All deadlines are in one heap with one timer. A poll that ended early stays in the heap until its deadline, or until
such polls outnumber the live ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from bookkeeper.runtime import Runtime, TimerHandle

from .ledgers import LedgerHandle

SPARE_HEAP = 1000
"""Ended polls that the heap may hold before it is cleaned, beside as many as there are live ones."""


class LongPoll:
    """One waiting read."""

    __slots__ = ("end", "handle", "previous_lac")

    def __init__(self, handle: LedgerHandle, previous_lac: int, end: Callable[[int | None], None]) -> None:
        self.handle: LedgerHandle | None = handle
        """None once the poll has ended."""
        self.previous_lac = previous_lac
        self.end = end
        """Called once when the wait is over, with the time (wall clock, ms) of the LAC's move if that ended it."""


class LongPolls:
    """All waiting polls of a bookie."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._heap: list[tuple[float, int, LongPoll]] = []
        self._sequence = 0
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        self.waiting = 0

    def wait(
        self, handle: LedgerHandle, previous_lac: int, timeout: float, end: Callable[[int | None], None]
    ) -> LongPoll:
        """Wait up to `timeout` seconds for a LAC beyond `previous_lac`."""
        poll = LongPoll(handle, previous_lac, end)
        handle.polls.append(poll)
        self.waiting += 1
        deadline = self._runtime.now() + timeout
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, poll))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)
        return poll

    def cancel(self, poll: LongPoll) -> None:
        """Forget a poll; `end` is not called."""
        if poll.handle is not None:
            poll.handle.polls.remove(poll)
            self._ended(poll)

    def due(self, handle: LedgerHandle, lac: int | None) -> None:
        """The ledger's LAC is `lac` now; None: all its polls end, without a LAC's move."""
        if lac is None:
            ended, handle.polls, moved_at = handle.polls, [], None
        else:
            ended = [poll for poll in handle.polls if poll.previous_lac < lac]
            if not ended:
                return
            handle.polls = [poll for poll in handle.polls if poll.previous_lac >= lac]
            moved_at = self._runtime.wall_ms()
        for poll in ended:
            self._ended(poll)
        for poll in ended:
            poll.end(moved_at)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    def _ended(self, poll: LongPoll) -> None:
        poll.handle = None
        self.waiting -= 1
        if len(self._heap) > 2 * self.waiting + SPARE_HEAP:
            self._heap = [item for item in self._heap if item[2].handle is not None]
            heapq.heapify(self._heap)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._runtime.call_later(max(0.0, deadline - self._runtime.now()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._runtime.now()
        expired: list[LongPoll] = []
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].handle is None):
            poll = heapq.heappop(self._heap)[2]
            if poll.handle is not None:
                poll.handle.polls.remove(poll)
                self._ended(poll)
                expired.append(poll)
        if self._heap:
            self._set_timer(self._heap[0][0])
        for poll in expired:
            poll.end(None)
