"""Who may append now: limits what one writer has in flight, first come, first served (spec client §5.2).

An append passes before its entry gets an id, so that waiting never leaves a hole. It waits when the unsettled entries
reach `maxPendingAddEntries` or their frames `maxPendingAddBytes`, when a connection's buffer is above its high-water
mark, or when the `throttle` has no permit. Those that wait are let in in the order they came: a place is reserved for
each before its task runs again, and until it has run nobody else gets in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ..config import ClientConfiguration
from ..errors import BKError
from ..quorum.window import PendingWindow
from ..runtime.api import Runtime, TimerHandle


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


class AppendGate:
    """See the module. One per writer."""

    __slots__ = (
        "_bucket",
        "_granted",
        "_granted_bytes",
        "_limit",
        "_max_bytes",
        "_max_entries",
        "_queue",
        "_runtime",
        "_timer",
        "_unwritable_limit",
        "_window",
        "_writable",
    )

    def __init__(
        self, runtime: Runtime, config: ClientConfiguration, window: PendingWindow, writable: Callable[[], bool]
    ) -> None:
        self._runtime = runtime
        self._window = window
        self._writable = writable
        self._max_entries = config.maxPendingAddEntries
        self._max_bytes = config.maxPendingAddBytes
        # With less than a buffer's worth in flight we cannot be the one who fills it.
        self._unwritable_limit = min(self._max_bytes, config.clientWriteBufferHighWaterMark)
        self._limit = self._max_bytes  # bytes in flight at which appends wait, as of the last `progress`
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._granted = 0  # let in from the queue, not yet run
        self._granted_bytes = 0
        self._bucket = TokenBucket(config.throttle, runtime.now()) if config.throttle else None
        self._timer: TimerHandle | None = None  # until the next permit; only while the queue waits for one

    @property
    def waiting(self) -> bool:
        """Somebody waits, or was let in and has not run yet."""
        return bool(self._queue or self._granted)

    def try_enter(self) -> bool:
        """Pass without waiting, if nobody is before us."""
        if self._queue or self._granted:
            return False
        window = self._window
        if window.unsettled_bytes >= self._limit or len(window.open) >= self._max_entries:
            return False
        return self._bucket is None or self._bucket.take(self._runtime.now())

    def _has_room(self) -> bool:
        window = self._window
        in_flight = window.unsettled_bytes + self._granted_bytes
        return in_flight < self._limit and len(window.open) + self._granted < self._max_entries

    async def enter(self, size: int) -> None:
        """Wait for our turn. The caller then appends `size` bytes before it awaits anything.

        Raises what `close` was given.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, place))
        self.progress()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.exception() is None:
                self._leave(size)
            self.progress()
            raise
        self._leave(size)

    def _leave(self, size: int) -> None:
        self._granted -= 1
        self._granted_bytes -= size

    def progress(self) -> None:
        """Something was sent, answered or became writable: let in whom there is room for."""
        self._limit = self._max_bytes if self._writable() else self._unwritable_limit
        while self._queue and self._has_room():
            size, place = self._queue[0]
            if place.cancelled():
                self._queue.popleft()
                continue
            if self._bucket is not None and not self._bucket.take(self._runtime.now()):
                if self._timer is None:
                    self._timer = self._runtime.call_later(self._bucket.delay(), self._permit)
                return
            self._queue.popleft()
            self._granted += 1
            self._granted_bytes += size
            place.set_result(None)

    def _permit(self) -> None:
        self._timer = None
        self.progress()

    def close(self, error: Callable[[], BKError]) -> None:
        """Nobody gets in any more: all who wait get an error."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue:
            _, place = self._queue.popleft()
            if not place.done():
                place.set_exception(error())
