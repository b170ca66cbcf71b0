"""Which bookies answer batch reads (spec client §9.7).

Bookies before 4.17 close the connection when they meet one. So does, for all the client can see, a bookie that is
restarted at that moment, or whose answer would be too large for a frame. What tells them apart is experience:

- A bookie that has not answered any since its last loss is asked on a connection that carries nothing else: adds would
  be lost with it.
- A bookie that has answered batch reads knows them. It is doubted only after `TRUST` losses in a row.
- Any other that is lost while it has one to answer is *doubted*: asked for single entries, and for batches only after
  all others. Doubt ends after a time that doubles with each loss, so an old bookie is seldom asked in vain, and a new
  one is not misjudged for good.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.waiting.backoff import Backoff
from ...types import BookieId

TRUST = 3
"""Losses in a row until a bookie is doubted that has answered before."""

DOUBT = Backoff(first=60.0, longest=3600.0)
"""For how long a bookie is doubted."""


class BatchSupport:
    """What a client knows of its bookies. `now` is the runtime's clock."""

    def __init__(self) -> None:
        self._losses_left: dict[BookieId, int] = {}  # of bookies that have answered; others: none
        self._doubted: dict[BookieId, tuple[float, int]] = {}  # until when, and how many times it was doubted

    def answered(self, bookie: BookieId) -> None:
        """It has answered a batch read, with entries or with an error."""
        self._losses_left[bookie] = TRUST
        if self._doubted:
            self._doubted.pop(bookie, None)

    def knows(self, bookie: BookieId) -> bool:
        """Whether it has answered one, and lost none since: it may have been put back to an older version."""
        return self._losses_left.get(bookie) == TRUST

    def lost(self, bookie: BookieId, now: float) -> None:
        """Its connection ended, or could not be made, with a batch read to be answered."""
        left = self._losses_left.get(bookie, 1) - 1
        if left > 0:
            self._losses_left[bookie] = left
            return
        self._losses_left.pop(bookie, None)
        until, times = self._doubted.get(bookie, (0.0, 0))
        if until <= now:  # several requests that were lost together are one loss
            self._doubted[bookie] = (now + DOUBT.pause(times), times + 1)

    def doubts(self, bookie: BookieId, now: float) -> bool:
        """Whether it should not be asked now."""
        return bool(self._doubted) and self._doubted.get(bookie, (0.0, 0))[0] > now

    def any(self, bookies: Iterable[BookieId], now: float) -> bool:
        """Whether one of these may be asked."""
        return not self._doubted or not all(self.doubts(bookie, now) for bookie in bookies)
