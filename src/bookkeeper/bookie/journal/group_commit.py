"""When a batch leaves: the rule of group commit, without loop and clock.

Writing and syncing cost some 100 to 200 µs of CPU however little is in a batch, as much as handling some ten to fifty
adds. So:

- A batch leaves at the end of the loop's turn, so that everything the sockets brought in this turn goes with it. On an
  idle journal a lone append is thus written and synced at once.
- While a batch is being synced, the next one gathers. One with records that are answered when they are written does
  not wait for that.
- Each record of the last batch buys `GROUPING_PER_RECORD` of waiting for the next one, counted from when the last one
  left, up to the longest wait. A few writers are never made to wait: their batches are small. Under load (more than
  1 / GROUPING_PER_RECORD appends per second) batches grow until the wait is reached, and syncs stop mattering.
- A full batch leaves as soon as the write lane is free, also while a sync is going on.
- No more than `MAX_UNSYNCED_BATCHES` are on their way.
"""

from __future__ import annotations

from enum import Enum

GROUPING_PER_RECORD = 10e-6
"""Seconds of waiting that a record in one batch buys for the next. About what an add costs the whole bookie, so
waiting begins where the bookie is busy anyway."""

TIMER_GRAIN = 0.0005
"""Seconds; the loop's timers are no finer than a millisecond, so less than half of one is not worth one."""

MAX_UNSYNCED_BATCHES = 8
"""Batches written and not yet synced. More would only keep more acknowledgements waiting for one slow sync."""


class Departure(Enum):
    NOW = 1
    AT_TURN_END = 2
    """Then `wait` says how much later."""
    LATER = 3
    """To be asked again when a sync is done."""


class GroupCommit:
    """See the module. Times are seconds of the runtime's clock."""

    __slots__ = ("_left_at", "_longest_wait", "_wait")

    def __init__(self, longest_wait: float) -> None:
        """At most so many seconds between two batches for the sake of grouping; 0: nothing is waited for."""
        self._longest_wait = longest_wait
        self._left_at = 0.0  # when the last batch left
        self._wait = 0.0  # how long after that the next one may leave, unless it is full

    def departure(self, *, full: bool, answers_when_written: bool, unsynced: int) -> Departure:
        """When the first batch of the queue leaves, while the write lane is free and `unsynced` others are on their
        way."""
        if unsynced >= (MAX_UNSYNCED_BATCHES if full or answers_when_written else 1):
            return Departure.LATER
        return Departure.NOW if full else Departure.AT_TURN_END

    def wait(self, now: float) -> float:
        """Seconds to wait at the end of the turn; 0: none."""
        wait = self._left_at + self._wait - now
        return wait if wait > TIMER_GRAIN else 0.0

    def left(self, now: float, records: int) -> None:
        """A batch of so many records has left."""
        self._left_at = now
        self._wait = min(self._longest_wait, records * GROUPING_PER_RECORD)

    def hurry(self) -> None:
        """Nothing is waited for from now on: the journal closes."""
        self._longest_wait = self._wait = 0.0

    def __str__(self) -> str:
        return f"left at {self._left_at:.4f}, next {self._wait * 1000:.2f} ms later"
