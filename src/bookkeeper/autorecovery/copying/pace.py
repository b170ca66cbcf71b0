"""How fast copies are made: as fast as a setting says, or so that clients hardly notice.

Theory of operation

`replicationRateByBytes` is a bound in bytes a second, for a process. What it should be depends on disks, processors and
what else there is to do; so where none is set, a process copies for `replicationTimeShare` of the time. Copies go in
small *pieces*, so that a client's entry never waits behind much; and after a piece, which it took so long to read and
to write, nothing is copied for as many times longer as the share says. Where bookies are quick much is copied, and
where clients keep them busy a piece takes longer, and is followed by a longer rest.

Ledgers that are made whole side by side have one share together.
"""

from __future__ import annotations

from ...runtime import Runtime
from ...runtime.waiting.rate_limit import RateLimit

SMALL_PIECE = 1 << 16
LARGE_PIECE = 4 << 20
PIECES_A_SECOND = 16
"""At least, where there is a bound in bytes: one piece is no burst."""

FIRST_GUESS = 0.01
"""Seconds that a piece takes."""
NEWEST = 0.1
"""What the last piece counts in the average."""
LONGEST = 0.5
"""Seconds that a piece counts for, at most: what took longer has waited for a bookie that is gone, or this process
stood still. Repair must not rest for minutes because of that."""


class Pace:
    """Of all copies that a process makes."""

    def __init__(self, runtime: Runtime, bytes_per_second: int, time_share: float = 1.0) -> None:
        """`bytes_per_second`: the bound; where it is not positive, `time_share` is: of the time, 1.0 for all of it."""
        self._bytes = RateLimit(runtime, bytes_per_second)
        self._pieces = RateLimit(runtime, 0)
        self._share = time_share if bytes_per_second <= 0 else 1.0
        self._average = FIRST_GUESS
        self.took(FIRST_GUESS)

    @property
    def piece(self) -> int:
        """Bytes that are to be copied together, about."""
        if self._share < 1:
            return SMALL_PIECE
        if self._bytes.rate <= 0:
            return LARGE_PIECE
        return int(min(LARGE_PIECE, max(SMALL_PIECE, self._bytes.rate / PIECES_A_SECOND)))

    async def spend(self, size: int) -> None:
        """Return when a piece of so many bytes may be copied."""
        await self._bytes.take(size)
        await self._pieces.take(1)

    def took(self, seconds: float) -> None:
        """A piece was read and written in so much time."""
        if self._share < 1:
            self._average += NEWEST * (min(seconds, LONGEST) - self._average)
            self._pieces.rate = self._share / max(self._average, 1e-6)
