"""Room for what waits to be written: limits of the journal's queue, and whose turn it is when they are reached.

Theory of operation

Entries have room within `journalMaxMemorySizeMb` and `journalQueueSize`; one append always has room when nothing waits
to be written. Fences do not ask: how many of them may wait is bounded for each connection.

A task that finds no room waits, first come, first served, one at a time (`OneByOne`). From its admission to the end of
its turn of the loop, in which it may append, no other task has room. So those that wait never take it away from each
other, and each is asked again only when there is room indeed.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import FatalBookieError
from ...runtime.waiting.wait_queue import OneByOne

Refusal = Callable[[], FatalBookieError]
"""Makes an error. Each waiter gets one of its own: raising it adds to its traceback."""


class Room:
    """See the module."""

    def __init__(self, limit: int, max_records: int) -> None:
        """`limit` bytes, no limit if 0 or less."""
        self.limit = limit
        self._max_records = max_records
        self.bytes = 0
        """Appended and not yet written."""
        self.records = 0
        self._line: OneByOne[int] = OneByOne(self._fits)
        self._refusal: Refusal | None = None  # why there is no room any more

    def has(self, size: int) -> bool:
        """Whether `size` more bytes of entries can be appended now: within the limits, and no task waits for that.

        For the caller of `wait` this is so at its return, until it waits for something else.
        """
        return (self._line.in_turn or not self._line.busy) and self._fits(size)

    def _fits(self, size: int) -> bool:
        used = self.bytes
        return self.records < self._max_records and (self.limit <= 0 or used == 0 or used + size <= self.limit)

    def fill(self, size: int, records: int) -> None:
        """So much was appended."""
        self.bytes += size
        self.records += records

    def empty(self, size: int, records: int) -> None:
        """So much was written."""
        self.bytes -= size
        self.records -= records
        self._line.serve()

    async def wait(self, size: int) -> None:
        """Return when it `has` room. Raises what `close` or `refuse` were given."""
        self._raise_if_over()
        if not self.has(size):
            await self._line.wait(size)
            self._raise_if_over()

    def _raise_if_over(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    def close(self, error: Refusal) -> None:
        """From now on there is no room: a task hears this error when it asks, or when its turn comes."""
        if self._refusal is None:
            self._refusal = error

    def refuse(self, error: Refusal) -> None:
        """There will be no room any more: all that wait hear this error now."""
        self._refusal = error
        self._line.close(error)
