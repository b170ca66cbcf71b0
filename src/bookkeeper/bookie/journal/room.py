"""Room for what waits to be written: limits of the journal's queue, and whose turn it is when they are reached.

Theory of operation

Entries have room within `journalMaxMemorySizeMb` and `journalQueueSize`; one append always has room when nothing waits
to be written. Fences do not ask: how many of them may wait is bounded for each connection.

Who finds no room waits, first come, first served. One waiter is admitted at a time: nobody else has room from then
until it has had its turn of the loop, in which it may append. So those that wait never take it away from each other,
and each is asked again only when there is room indeed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from bookkeeper.errors import FatalBookieError


@dataclass(slots=True)
class _Waiter:
    """Somebody who waits for room for `size` bytes."""

    size: int
    admitted: asyncio.Future[None]


class Room:
    """See the module."""

    def __init__(self, limit: int, max_records: int) -> None:
        """`limit` bytes, no limit if 0 or less."""
        self.limit = limit
        self._max_records = max_records
        self.bytes = 0
        """Appended and not yet written."""
        self.records = 0
        self._waiters: deque[_Waiter] = deque()  # in the order they came
        self._turn_given = False  # a waiter was admitted and has not had its turn of the loop
        self._turn_taken = False  # this is its turn; _hand_on is scheduled
        self._refusal: FatalBookieError | None = None  # why nobody gets any more

    def has(self, size: int) -> bool:
        """Whether `size` more bytes of entries can be appended now: within the limits, and nobody waits for that.

        For the caller of `wait` this is so at its return, until it waits for something else.
        """
        return (self._turn_taken or not (self._waiters or self._turn_given)) and self._fits(size)

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
        self._admit()

    async def wait(self, size: int) -> None:
        """Return when it `has` room. Raises what `refuse` was given."""
        self._refuse_if_over()
        if self.has(size):
            return
        waiter = _Waiter(size, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        while True:
            try:
                await waiter.admitted
            except asyncio.CancelledError:
                if waiter.admitted.done() and not waiter.admitted.cancelled() and not waiter.admitted.exception():
                    self._hand_on()
                raise
            self._refuse_if_over()
            if self._fits(size):
                break
            self._turn_given = False  # a fence or a LAC came in between: first in the row again
            waiter.admitted = asyncio.get_running_loop().create_future()
            self._waiters.appendleft(waiter)
        self._turn_taken = True
        asyncio.get_running_loop().call_soon(self._hand_on)

    def _refuse_if_over(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _hand_on(self) -> None:
        """The turn of the waiter that was admitted is over, whether it appended or not."""
        self._turn_given = self._turn_taken = False
        self._admit()

    def _admit(self) -> None:
        """Give the first waiter its turn if there is room for it. Called whenever there may be some."""
        waiters = self._waiters
        while waiters and waiters[0].admitted.done():
            waiters.popleft()  # it has given up
        if waiters and not self._turn_given and self._fits(waiters[0].size):
            self._turn_given = True
            waiters.popleft().admitted.set_result(None)

    def close(self, error: FatalBookieError) -> None:
        """Whoever asks from now on is refused with this error; those that wait are served still."""
        if self._refusal is None:
            self._refusal = error

    def refuse(self, error: FatalBookieError) -> None:
        """Nobody gets any room any more: all that wait hear this error."""
        self._refusal = error
        while self._waiters:
            admitted = self._waiters.popleft().admitted
            if not admitted.done():
                admitted.set_exception(error)
