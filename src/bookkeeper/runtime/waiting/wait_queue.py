"""Lines of tasks that wait for their turn.

Theory of operation

- A task that comes waits; the owner of the line looks at the `first` and admits it when there is room for it. First
  come, first served; with ranks, the lowest rank first, and among equals who came first.
- One that is admitted has its turn when its task runs again. Until then it is still `admitted`: a place is taken for
  it, and no other may have it.
- Cancellation is where such lines go wrong. One that is cancelled while it waits leaves the line at once. One that is
  cancelled after it was admitted gives the place back. In both cases the line is served again, so the turn goes to the
  next and is never lost.

`OneByOne` is such a line for what its members take or do not take when their turn comes: a woken task may find that it
needs nothing any more. One at a time is admitted. It has the rest of its turn of the loop to take what it wants; then
the next is looked at. So no member takes anything away from another one, and none has to wake the next.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

STALE_PLACES = 64
"""So many places of tasks that left may be kept in the line, and as many as there are that wait."""


class WaitQueue(Generic[T]):
    """See the module. `T` is the ticket that a task waits with, never None: what its owner must know to admit it."""

    __slots__ = ("_arrivals", "_line", "_serve", "admitted", "waiting")

    def __init__(self, serve: Callable[[], None]) -> None:
        """`serve` looks at the line: called when a task came, or left."""
        self._serve = serve
        self._line: list[tuple[int, int, asyncio.Future[None]]] = []  # heap: rank, arrival, place
        self._arrivals = 0
        self.waiting: dict[asyncio.Future[None], T] = {}
        """Not yet admitted; every one is in `_line`. Read only; always this same object, as is `admitted`."""
        self.admitted: dict[asyncio.Future[None], T] = {}
        """Let in, and not yet run. Read only."""

    async def wait(self, ticket: T, rank: int = 0) -> None:
        """Wait to be admitted. Raises what `close` was given."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[place] = ticket
        self._arrivals += 1
        heapq.heappush(self._line, (rank, self._arrivals, place))
        if len(self._line) > 2 * len(self.waiting) + STALE_PLACES:
            self._line = [entry for entry in self._line if entry[2] in self.waiting]
            heapq.heapify(self._line)
        self._serve()
        try:
            await place
        except asyncio.CancelledError:
            self.waiting.pop(place, None)
            self.admitted.pop(place, None)
            self._serve()
            raise
        finally:
            self.admitted.pop(place, None)

    def first(self) -> T | None:
        """The ticket of the one whose turn is next; None when none waits."""
        line = self._line
        while line:
            ticket = self.waiting.get(line[0][2])
            if ticket is not None:
                return ticket
            heapq.heappop(line)  # it left
        return None

    def admit(self) -> None:
        """Let in the first. To be called after `first` found one."""
        _, _, place = heapq.heappop(self._line)
        self.admitted[place] = self.waiting.pop(place)
        if not place.done():  # else it was cancelled in this very moment, and gives its place back
            place.set_result(None)

    def close(self, error: Callable[[], BaseException]) -> None:
        """No task gets in any more: each that waits gets an error of its own."""
        self._line.clear()
        waiting = list(self.waiting)
        self.waiting.clear()
        for place in waiting:
            if not place.done():
                place.set_exception(error())


class OneByOne(Generic[T]):
    """See the module. `T` says what a task waits for; it is never None."""

    __slots__ = ("_closed", "_has_turn", "_line", "_may_go")

    def __init__(self, may_go: Callable[[T], bool]) -> None:
        """`may_go`: whether there is now what the first in the line waits for."""
        self._may_go = may_go
        self._line: WaitQueue[T] = WaitQueue(self.serve)
        self._has_turn = False  # one runs that was admitted; _turn_over is scheduled
        self._closed: Callable[[], BaseException] | None = None

    @property
    def in_turn(self) -> bool:
        """Whether what runs now is one that was admitted, in its turn."""
        return self._has_turn

    @property
    def busy(self) -> bool:
        """Whether a task waits, or was admitted and has not had its turn."""
        return bool(self._line.waiting or self._line.admitted)

    async def wait(self, ticket: T) -> None:
        """Return when the task may go and it is its turn, which lasts until it waits for something else.

        Raises what `close` was given.
        """
        line = self._line
        self._raise_if_closed()
        await line.wait(ticket, 1)
        while not self._may_go(ticket):  # taken by what does not wait here
            self._raise_if_closed()
            await line.wait(ticket, 0)  # first in the line again
        self._has_turn = True
        asyncio.get_running_loop().call_soon(self._turn_over)

    def _raise_if_closed(self) -> None:
        if self._closed is not None:
            raise self._closed()

    def _turn_over(self) -> None:
        self._has_turn = False
        self.serve()

    def serve(self) -> None:
        """Admit the first if it may go. To be called whenever there may be something."""
        line = self._line
        if self._has_turn or line.admitted:
            return
        first = line.first()
        if first is not None and self._may_go(first):
            line.admit()

    def close(self, error: Callable[[], BaseException]) -> None:
        """Each that waits, or would have to from now on, gets an error of its own. One that was admitted has its turn
        still, if it may go."""
        self._closed = error
        self._line.close(error)
