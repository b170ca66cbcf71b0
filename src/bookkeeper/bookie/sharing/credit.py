"""Credit: the share of the loop's time that a peer may have beside others that want little.

Theory of operation

A loop that is busy all the time lets each request wait for a whole turn at each of its steps, however short its own
work is. So a peer that could keep the loop busy alone gives way when there is a request of one that asks for little
(`turns`). `peerLoopSharePercent` of the time is its own in any case, and it may save up `BURST_SECONDS` of it: one
that stays within that has credit. One that has none is in debt, and may have to wait until it is paid back.

A peer that was not in debt lately, or for a moment only, is *light*. Where all peers want much, none is light and none
gives way. Where many want the same, each has less than its share, and none gives way either.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

BURST_SECONDS = 0.001

LONGEST_REST_SECONDS = 0.05
"""What took longer was not the peer's doing: this process, or its machine, stood still."""

LATELY_SECONDS = 0.1
"""For so long after they were served others are expected to come again."""

P = TypeVar("P")


class Credit:
    """Seconds of work that one peer may still ask for, at a moment."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._left = BURST_SECONDS
        self._at = 0.0

    def spend(self, seconds: float, now: float, share: float) -> float:
        """So much was used until now. Returns for how long to rest then: 0 while credit is left."""
        left = self._left + (now - self._at) * share
        left = (left if left < BURST_SECONDS else BURST_SECONDS) - seconds
        self._at = now
        if left >= 0.0:
            self._left = left
            return 0.0
        self._left = left = max(left, -LONGEST_REST_SECONDS * share)
        return -left / share


class Lately(Generic[P]):
    """Who came lately: whether it was one alone."""

    __slots__ = ("_last", "_last_at", "_others_at")

    def __init__(self) -> None:
        self._last: P | None = None
        self._last_at = -math.inf
        self._others_at = -math.inf  # when another than the last one came

    def came(self, who: P, now: float) -> None:
        if who != self._last:
            self._last, self._others_at = who, self._last_at
        self._last_at = now

    def several(self, now: float) -> bool:
        """Whether more than one came lately."""
        return now - self._others_at < LATELY_SECONDS

    def other_than(self, who: P, now: float, seconds: float = LATELY_SECONDS) -> bool:
        """Whether another one than this came, so many seconds ago at most."""
        return now - (self._others_at if who == self._last else self._last_at) < seconds
