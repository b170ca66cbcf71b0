"""How much one range read may ask for at once, and altogether (spec client §9.2).

At most `readEntriesWindow` entries are outstanding, and about `readEntriesWindowBytes` bytes. The sizes of entries are
not known before they come: `size` below is what entries of the ledger had on average so far, 0 while none came.
"""

from __future__ import annotations

FIRST_WAVE = 16
"""Entries asked for at once while nothing is known of their size."""

WORTH_ASKING = 8
"""The rest of `max_bytes` is asked for only if it has more than the eighth part of the entries asked for so far."""


class ReadBudget:
    """See the module."""

    __slots__ = ("_max_bytes", "_received", "_window", "_window_bytes")

    def __init__(self, window: int, window_bytes: int, max_bytes: int) -> None:
        """`max_bytes`: about so many bytes altogether; 0: no limit."""
        assert max_bytes >= 0
        self._window = window
        self._window_bytes = window_bytes
        self._max_bytes = max_bytes
        self._received = 0.0  # bytes, about

    def received(self, size: float) -> None:
        """About so many bytes came."""
        self._received += size

    def outstanding(self, size: float) -> int:
        """How many entries may be outstanding: one at least."""
        if not size:
            return min(self._window, FIRST_WAVE)
        return max(1, min(self._window, int(self._window_bytes / size)))

    def affordable(self, size: float, asked: int, outstanding: int) -> int:
        """How many more entries `max_bytes` allows; 0 when it is not worth while to ask for them.

        `asked`: entries asked for so far, `outstanding` of them have not come. The first entry is always affordable.
        """
        if not self._max_bytes or not size:
            return self._window
        count = int((self._max_bytes - self._received) / size) - outstanding
        if asked == 0:
            return max(1, count)
        return count if count > asked // WORTH_ASKING else 0
