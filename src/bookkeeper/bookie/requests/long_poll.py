"""Long polls: reads that wait until the ledger's LAC has moved on (spec wire-protocol §4.4, bookie-server §2.9).

Theory of operation

A poll waits in its ledger's handle. A move of the LAC ends the polls that it passes; the others keep waiting
(Java forgets them, G8). Fencing and deletion end all polls of the ledger. A poll that nothing ends within its time is
answered with what is known then: that is a success too. When its connection goes, so does the poll.

Cost. A ledger's polls are in a heap by the LAC they wait beyond, all deadlines in another with one timer: a poll costs
O(log n) however it ends, a move of the LAC nothing for the polls it does not pass. A poll that ended stays in the
heaps that it is not at the top of, until such polls outnumber the living. Many polls that end together are answered
over several turns of the loop (`ENDED_AT_ONCE`).

Bounds. `maxLongPolls` of the bookie and `maxLongPollsPerLedger` are shared out as they fill: a connection may have a
quarter of what is left of either. So those who have many are refused more, and one with few never is (SEC-23).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable

from ...config import ServerConfiguration
from ...runtime import Runtime, TimerHandle
from ..ledgers import BookieLedger

SPARE_HEAP = 1000
"""Ended polls that a heap may hold before it is cleaned, beside as many as there are live ones."""

ENDED_AT_ONCE = 256
"""Polls that are answered in one turn of the loop when many end together."""

ALWAYS_ALLOWED = 16
"""Polls that a connection may have even where others have taken all there are."""


class LongPoll:
    """One waiting read."""

    __slots__ = ("end", "handle", "previous_lac")

    def __init__(self, handle: BookieLedger, previous_lac: int, end: Callable[[int | None], None]) -> None:
        self.handle: BookieLedger | None = handle
        """None once the poll has ended."""
        self.previous_lac = previous_lac
        self.end = end
        """Called once when the wait is over, with the time (wall clock, ms) of the LAC's move if that ended it."""


class _Heap:
    """Polls by a number, the smallest first; equal ones in the order they came. Ended ones are passed over."""

    __slots__ = ("_items", "_sequence", "living")

    def __init__(self) -> None:
        self._items: list[tuple[float, int, LongPoll]] = []  # < 2 * living + SPARE_HEAP
        self._sequence = 0
        self.living = 0

    def push(self, key: float, poll: LongPoll) -> None:
        self._sequence += 1
        self.living += 1
        heapq.heappush(self._items, (key, self._sequence, poll))

    def first(self) -> float | None:
        """The smallest number of a living poll."""
        while self._items and self._items[0][2].handle is None:
            heapq.heappop(self._items)
        return self._items[0][0] if self._items else None

    def pop(self) -> LongPoll:
        """Take out what `first` told of."""
        self.living -= 1
        return heapq.heappop(self._items)[2]

    def ended(self) -> None:
        """A poll in it has ended."""
        self.living -= 1
        if len(self._items) > 2 * self.living + SPARE_HEAP:
            self._items = [item for item in self._items if item[2].handle is not None]
            heapq.heapify(self._items)


class WaitingPolls(_Heap):
    """The polls of one ledger, by the LAC that they wait beyond. Never empty while it is in a handle."""

    __slots__ = ()


def _of(handle: BookieLedger) -> WaitingPolls:
    """The polls of a ledger that has some."""
    assert isinstance(handle.polls, WaitingPolls)
    return handle.polls


class LongPolls:
    """All waiting polls of a bookie."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration) -> None:
        self._runtime = runtime
        self._limit = config.maxLongPolls
        self._ledger_limit = config.maxLongPollsPerLedger
        self._connection_limit = config.maxLongPollsPerConnection
        self._deadlines = _Heap()
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        self._ending: deque[tuple[LongPoll, int | None]] = deque()  # ended, not answered yet; they were in the heaps
        self._answering = False  # the next turn of the loop goes on with them
        self._closed = False

    @property
    def waiting(self) -> int:
        return self._deadlines.living

    def may_wait(self, handle: BookieLedger, already: int) -> bool:
        """Whether a connection that has `already` so many polls may have one more, on this ledger."""
        if already >= self._connection_limit:
            return False
        on_ledger = handle.polls.living if handle.polls is not None else 0
        left = min(self._limit - self.waiting, self._ledger_limit - on_ledger)
        return already < max(left // 4, ALWAYS_ALLOWED)

    def wait(
        self, handle: BookieLedger, previous_lac: int, timeout: float, end: Callable[[int | None], None]
    ) -> LongPoll:
        """Wait up to `timeout` seconds for a LAC beyond `previous_lac`."""
        poll = LongPoll(handle, previous_lac, end)
        if handle.polls is None:
            handle.polls = WaitingPolls()
        _of(handle).push(previous_lac, poll)
        deadline = self._runtime.now() + timeout
        self._deadlines.push(deadline, poll)
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)
        return poll

    def cancel(self, poll: LongPoll) -> None:
        """Forget a poll; `end` is not called."""
        handle = poll.handle
        if handle is not None:
            poll.handle = None
            self._deadlines.ended()
            self._left(handle)

    def due(self, handle: BookieLedger, lac: int | None) -> None:
        """The ledger's LAC is `lac` now; None: all its polls end, without a LAC's move."""
        if handle.polls is None:
            return
        polls = _of(handle)
        moved_at: int | None = None
        while (previous := polls.first()) is not None and (lac is None or previous < lac):
            if lac is not None and moved_at is None:
                moved_at = self._runtime.wall_ms()
            poll = polls.pop()
            poll.handle = None
            self._deadlines.ended()
            self._ending.append((poll, moved_at))
        if not polls.living:
            handle.polls = None
        if not self._answering:
            self._answer_some()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ending.clear()

    def _left(self, handle: BookieLedger) -> None:
        """A poll of this ledger has ended that may not be at the top of the ledger's heap."""
        polls = _of(handle)
        polls.ended()
        if not polls.living:
            handle.polls = None

    def _answer_some(self) -> None:
        """Answer polls that have ended, the rest in the next turn."""
        self._answering = False
        for _ in range(min(len(self._ending), ENDED_AT_ONCE)):
            poll, moved_at = self._ending.popleft()
            poll.end(moved_at)
        if self._ending and not self._closed:
            self._answering = True
            asyncio.get_running_loop().call_soon(self._answer_some)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._runtime.call_later(max(0.0, deadline - self._runtime.now()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._runtime.now()
        while (first := self._deadlines.first()) is not None and first <= now:
            poll = self._deadlines.pop()
            handle = poll.handle
            assert handle is not None
            poll.handle = None
            self._left(handle)
            self._ending.append((poll, None))
        if first is not None:
            self._set_timer(first)
        if not self._answering:
            self._answer_some()
