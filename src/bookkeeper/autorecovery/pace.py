"""How fast copies are made: as fast as a setting says, or as fast as clients hardly notice.

Theory of operation

`replicationRateByBytes` is a bound in bytes a second, for a process. Where none is set a worker yields to clients
(`replicationYieldsToClients`): it looks at how long bookies take to store its copies. Copies and what clients append
wait in the same queues for the same processors and disks, so that what holds up the one holds up the other. (LEDBAT,
RFC 6817, shares a network link by the same idea.)

- Copies go in small *pieces*, so that a client's entry never waits behind much.
- Time is cut into *looks*. In each the median time of the pieces that a bookie stored counts. While some bookie takes
  more than `SLOWER` times what it takes at rest, the rate falls at every look, down to `SLOWEST`; else it rises, if it
  is used, up to `FASTEST`.
- What it takes *at rest* is seen in looks in which next to nothing is copied, `RESTING` bytes a second, every
  `REST_SECONDS`: by the clock on the wall, so that all workers rest together. Without these each would take for rest
  what others cause, and all would go faster and faster. (BBR looks for the delay of an empty network in this way.)
  The shortest of the last `REMEMBERED` counts. The first look is one of these.

Workers know nothing of each other: each sees what all together cause, and all slow down.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection

from ..runtime import Runtime
from ..runtime.rate_limit import RateLimit
from ..types import BookieId

MIB = 1 << 20
RESTING = 1 * MIB
SLOWEST, FASTEST = MIB // 4, 1024 * MIB
"""Bytes a second."""
SLOWER = 1.5
"""How many times longer a piece may take than at rest."""
FALL, RISE = 0.7, 1.25
LOOK_SECONDS, REST_LOOK_SECONDS = 0.5, 1.0
REST_SECONDS = 20
ENOUGH = 3
"""Pieces of a bookie in a look, for their median to mean something."""
REMEMBERED = 3
"""Looks at rest: a minute. What was quick long ago says nothing of now."""

SMALL_PIECE = MIB // 16
LARGE_PIECE = 4 * MIB
PIECES_A_SECOND = 16
"""At least, where there is a bound: one piece is no burst."""


class Pace:
    """Of all copies that a process makes."""

    def __init__(self, runtime: Runtime, bytes_per_second: int, *, yields: bool = False) -> None:
        """`bytes_per_second`: the bound; where it is not positive there is none, or what is found if this `yields`."""
        self._runtime = runtime
        self._limit = RateLimit(runtime, bytes_per_second)
        self.yields = yields and bytes_per_second <= 0
        self._times: dict[BookieId, list[float]] = {}  # of this look
        self._at_rest: dict[BookieId, deque[float]] = {}
        self._slow: set[BookieId] = set()  # when last judged, since it rested
        self._spent = 0
        self._began = runtime.now()
        self._rests = 0  # the last time that it did
        self._after_rest: float | None = None  # the rate that was there before, while it rests
        if self.yields:
            self._limit.rate = RESTING
            self._rest()

    @property
    def rate(self) -> float:
        """Bytes a second; not positive: no bound."""
        return self._limit.rate

    @property
    def piece(self) -> int:
        """Bytes that are to be copied together, about."""
        if self.yields:
            return SMALL_PIECE
        if self.rate <= 0:
            return LARGE_PIECE
        return int(min(LARGE_PIECE, max(SMALL_PIECE, self.rate / PIECES_A_SECOND)))

    async def spend(self, size: int) -> None:
        """Return when so many bytes may be copied."""
        self._spent += size
        await self._limit.take(size)

    def took(self, bookie: BookieId, seconds: float) -> None:
        """A bookie stored a piece."""
        if not self.yields:
            return
        times = self._times.setdefault(bookie, [])
        times.append(seconds)
        seconds = LOOK_SECONDS if self._after_rest is None else REST_LOOK_SECONDS
        if len(times) >= ENOUGH and self._runtime.now() >= self._began + seconds:
            self._look()

    def _look(self) -> None:
        """Judge by what was stored since the last one."""
        judged = {bookie: times for bookie, times in self._times.items() if len(times) >= ENOUGH}
        medians = {bookie: statistics.median(times) for bookie, times in judged.items()}
        for bookie in judged:
            del self._times[bookie]
        now = self._runtime.now()
        used = self._spent / (now - self._began) >= FALL * self.rate
        self._spent, self._began = 0, now
        if self._after_rest is not None:
            for bookie, median in medians.items():
                self._at_rest.setdefault(bookie, deque(maxlen=REMEMBERED)).append(median)
            self._limit.rate, self._after_rest = self._after_rest, None
        else:
            self._adjust({bookie for bookie, median in medians.items() if self._is_slow(bookie, median)}, medians, used)
        if self._rest_due() != self._rests:
            self._rest()

    def _rest_due(self) -> int:
        return self._runtime.wall_ms() // (1000 * REST_SECONDS)

    def _rest(self) -> None:
        self._rests = self._rest_due()
        self._after_rest = self.rate
        self._slow.clear()
        self._limit.rate = min(RESTING, self.rate)

    def _adjust(self, slow: set[BookieId], judged: Collection[BookieId], used: bool) -> None:
        self._slow = self._slow.difference(judged) | slow
        if slow:
            self._limit.rate = max(SLOWEST, self.rate * FALL)
        elif used and not self._slow:
            self._limit.rate = min(FASTEST, self.rate * RISE)

    def _is_slow(self, bookie: BookieId, median: float) -> bool:
        return median > SLOWER * min(self._at_rest.get(bookie, (median,)))
