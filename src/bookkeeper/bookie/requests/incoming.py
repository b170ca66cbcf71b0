"""The input side of a connection, up to whole frames: the frame that is incomplete, and the memory it takes.

Theory of operation

What is held of an incomplete frame is counted in the connection's account. A frame of more than `SMALL_FRAME` goes on
only when there is room for all of it (`sharing.shares`), and only if it can be an entry at all
(`protocol.large_frames`). Until then the socket is not read. The room is given back when the frame is complete, or when
the adds that came with it no longer wait.

The service looks at each connection now and then. Here is what it wants to know of the input: whether anything was
asked, and for how many looks the frame has been incomplete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import ProtocolError
from ...protocol import large_frames
from ...protocol.frames import LENGTH_SIZE, FrameSplitter
from ..sharing.memory import SMALL_FRAME, Account
from ..sharing.shares import Shares

SLOWEST_FRAME = 64 << 10
"""Bytes per second. A large frame that is slower, after a second, loses its memory to others that wait for some."""


class Incoming:
    """The frames of one connection on their way in."""

    __slots__ = (
        "_account",
        "_grant",
        "_now",
        "_shares",
        "_units",
        "_wait",
        "_waits",
        "asked",
        "charge",
        "frame_ticks",
        "heard_at",
        "splitter",
    )

    def __init__(
        self,
        limit: int,
        shares: Shares,
        account: Account,
        now: Callable[[], float],
        waits: Callable[[bool], None],
    ) -> None:
        """`limit`: bytes of the largest frame. `waits` is told when the frame begins to wait for room, and its end."""
        self._shares = shares
        self._account = account
        self._now = now
        self._waits = waits
        self._grant = 0  # units of `shares` that the frame has
        self._wait: asyncio.Future[None] | None = None
        self._units = 0  # what _wait waits for
        self.splitter = FrameSplitter(limit)
        self.charge = 0
        """Bytes counted in the account for the frame that is incomplete now."""
        self.asked = False
        """The peer has sent a request."""
        self.frame_ticks = 0
        """Looks of the service since the frame that is incomplete now began, or the socket was read again."""
        self.heard_at = now()
        """When something was received, or could be again."""

    def count(self, *, keep: bool) -> None:
        """Count the frame that is incomplete now, and ask for room if it is large.

        `keep` the room of the frame before it: its adds still wait. Raises `ProtocolError` for a large frame that is
        no entry.
        """
        pending, needed = self.splitter.pending, self.splitter.needed
        if needed > SMALL_FRAME:
            asks = self._wait is None and self._shares.units(needed) > self._grant
            if asks and pending >= LENGTH_SIZE + large_frames.ENOUGH_TO_JUDGE:
                if fault := large_frames.fault_of(self.splitter.start(large_frames.ENOUGH_TO_JUDGE), needed):
                    raise ProtocolError(fault)
                self._give_back()
                self._ask(needed)
        elif self._grant and not keep:
            self._give_back()
        charge = max(pending, self._grant)
        if charge != self.charge:
            more, self.charge = charge - self.charge, charge
            self._account.add(more)

    def _ask(self, needed: int) -> None:
        self._units = units = self._shares.units(needed)
        if self._shares.try_acquire(self._account.peer, units):
            self._grant = units
            return
        self._waits(True)
        self._wait = self._shares.wait(self._account.peer, self, units)
        self._wait.add_done_callback(self._granted)

    def _granted(self, wait: asyncio.Future[None]) -> None:
        if wait.cancelled() or self._wait is not wait:
            return
        self._wait = None
        self._grant = self._units
        self.heard_at = self._now()  # it could not send before
        self.count(keep=True)
        self._waits(False)

    def _give_back(self) -> None:
        if self._grant:
            units, self._grant = self._grant, 0
            self._shares.release(self._account.peer, units)
        elif self._wait is not None:
            wait, self._wait = self._wait, None
            self._shares.forget(self._account.peer, self._units, wait)

    def close(self) -> None:
        """The connection is gone: hold and wait for nothing."""
        self._give_back()
        self.splitter.take_pending()

    @property
    def has_room(self) -> bool:
        """It has room for a large frame."""
        return self._grant > 0

    @property
    def begun(self) -> bool:
        """A frame is incomplete."""
        return self.splitter.pending > 0

    def slow(self, seconds: float) -> bool:
        """Whether it has room for its frame and has not used it fast enough, in so many seconds in which it could."""
        return bool(self._grant) and self.splitter.pending < (seconds - 1.0) * SLOWEST_FRAME
