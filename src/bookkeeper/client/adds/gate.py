"""Who may append now: limits what one writer has in flight, first come, first served (spec client §5.2).

An append passes before its entry gets an id, so that waiting never leaves a hole. It waits when the unsettled entries
reach `maxPendingAddEntries` or their frames `maxPendingAddBytes`, when a connection's buffer is above its high-water
mark, or when the `throttle` has no permit. Those that wait are let in in the order they came: a place is reserved for
each before its task runs again, and until it has run no other gets in.

Ids chosen by the caller are let in in their own order, lowest first: what waits behind a gap cannot be acknowledged
and holds its room until the gap is filled. The id that all others wait for, the first one that is not acknowledged,
enters even where there is no room; else entries behind a gap could fill the window and lock out the one that fills the
gap, for ever. That is one entry more than the limits at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import NamedTuple, Protocol

from ...config import ClientConfiguration
from ...errors import BKError
from ...quorum.window import PendingWindow
from ...runtime.api import Runtime, TimerHandle
from ...runtime.waiting.wait_queue import WaitQueue


class TokenBucket:
    """`rate` permits a second; up to one second's worth is kept."""

    __slots__ = ("_permits", "_rate", "_time")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._permits = rate
        self._time = now

    def take(self, now: float) -> bool:
        """Take a permit if there is one."""
        self._permits = min(self._rate, self._permits + (now - self._time) * self._rate)
        self._time = now
        if self._permits < 1.0:
            return False
        self._permits -= 1.0
        return True

    def delay(self) -> float:
        """Seconds from the last `take` until there is a permit."""
        return max(0.0, (1.0 - self._permits) / self._rate)


class _Ticket(NamedTuple):
    size: int
    """Bytes that will be appended."""
    entry_id: int | None
    """The id chosen by the caller, if it chose one."""


class Watched(Protocol):
    """What lets the gate know of progress (`AppendGate.progress`) for as long as anybody waits."""

    waiting: int
    """Tasks that wait at the gate, or were let in and have not run yet. The gate counts them."""


class AppendGate:
    """See the module. One per writer."""

    __slots__ = (
        "_blocked",
        "_bucket",
        "_line",
        "_max_bytes",
        "_max_entries",
        "_runtime",
        "_timer",
        "_unwritable_limit",
        "_watched",
        "_window",
        "_writable",
    )

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfiguration,
        window: PendingWindow,
        writable: Callable[[], bool],
        blocked: Sized,
        watched: Watched,
    ) -> None:
        """`writable`: whether none of this writer's connections is among the `blocked` ones of the client.

        `watched`: who calls `progress`.
        """
        self._runtime = runtime
        self._window = window
        self._writable = writable
        self._blocked = blocked  # looked at for each append
        self._max_entries = config.maxPendingAddEntries
        self._max_bytes = config.maxPendingAddBytes
        # With less than a buffer's worth in flight we cannot be the one who fills it.
        self._unwritable_limit = min(self._max_bytes, config.clientWriteBufferHighWaterMark)
        self._line: WaitQueue[_Ticket] = WaitQueue(self.progress)
        self._watched = watched
        self._bucket = TokenBucket(config.throttle, runtime.now()) if config.throttle else None
        self._timer: TimerHandle | None = None  # until the next permit; only while a task waits for one

    @property
    def waiting(self) -> bool:
        """A task waits, or was let in and has not run yet."""
        return self._watched.waiting > 0

    def try_enter(self, entry_id: int | None = None) -> bool:
        """Pass without waiting, if none is before us."""
        window = self._window
        in_flight = window.unsettled_bytes
        if (
            in_flight >= self._max_bytes
            or (self._blocked and in_flight >= self._limit())
            or len(window.open) >= self._max_entries
            or self._watched.waiting
        ) and not self._awaited(entry_id):
            return False
        return self._bucket is None or self._bucket.take(self._runtime.now())

    def _limit(self) -> int:
        """Bytes in flight at which appends wait now."""
        return self._max_bytes if self._writable() else self._unwritable_limit

    def _awaited(self, entry_id: int | None) -> bool:
        """Whether nothing can be acknowledged before this id is (or it is no new id, and will be refused)."""
        return entry_id is not None and entry_id <= self._window.head + 1

    def next_is_waiting(self) -> bool:
        """Whether the next entry to be acknowledged waits here, or was let in and has not run yet."""
        first = self._line.first()
        tickets = [*self._line.admitted.values(), *([first] if first is not None else [])]
        return any(ticket.entry_id is None or self._awaited(ticket.entry_id) for ticket in tickets)

    async def enter(self, size: int, entry_id: int | None = None) -> None:
        """Wait for our turn. The caller then appends `size` bytes before it awaits anything.

        Raises what `close` was given.
        """
        self._watched.waiting += 1
        try:
            await self._line.wait(_Ticket(size, entry_id), 0 if entry_id is None else entry_id)
        finally:
            self._watched.waiting -= 1

    def progress(self) -> None:
        """Something was answered or became writable: let in those that there is room for."""
        if not self._line.waiting:
            return
        limit = self._limit()
        line = self._line
        window = self._window
        in_flight = window.unsettled_bytes + sum(ticket.size for ticket in line.admitted.values())
        while (ticket := line.first()) is not None:
            full = in_flight >= limit or len(window.open) + len(line.admitted) >= self._max_entries
            if full and not self._awaited(ticket.entry_id):
                return
            if self._bucket is not None and not self._bucket.take(self._runtime.now()):
                if self._timer is None:
                    self._timer = self._runtime.call_later(self._bucket.delay(), self._permit)
                return
            in_flight += ticket.size
            line.admit()

    def _permit(self) -> None:
        self._timer = None
        self.progress()

    def close(self, error: Callable[[], BKError]) -> None:
        """No task gets in any more: all that wait get an error."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._line.close(error)
