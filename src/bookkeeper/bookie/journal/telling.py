"""Who is told of what the journal has done: those whose records are durable, and who watches the disk fill up.

Theory of operation

Those whose records were written or synced are told in the order in which that happened. A batch may hold many thousands
of them, and each may answer a client: so `DONE_AT_ONCE` are told in one turn of the loop, and the rest in the next.
After a failure no caller is told any more, also not of what was durable before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

DONE_AT_ONCE = 32
"""Callbacks in one turn of the loop: less than a millisecond. Adds that came together have one; fences and LACs have
one each."""

Done = Callable[[], None]


class Telling:
    """See the module."""

    def __init__(self, all_told: Callable[[], None]) -> None:
        """`all_told` is called each time after the last one was told."""
        self._all_told = all_told
        self._done: deque[Done] = deque()  # written or synced, not told yet
        self._scheduled = False  # _tell_some is, for the next turn

    @property
    def waiting(self) -> bool:
        """Whether there are some who have not been told."""
        return bool(self._done)

    def add(self, records: Sequence[Done]) -> None:
        """These are to be told, after those before them."""
        self._done += records

    def tell(self) -> None:
        """Begin to tell, unless that is under way."""
        if not self._scheduled:
            self._tell_some()

    def stop(self) -> None:
        """Those who have not been told never are."""
        self._done.clear()

    def _tell_some(self) -> None:
        self._scheduled = False
        done = self._done
        try:
            for _ in range(DONE_AT_ONCE):
                if not done:
                    break
                done.popleft()()
        finally:
            if done:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._tell_some)
            else:
                self._all_told()


class Growth:
    """Tells after every so many bytes written that the disk has so much less room."""

    def __init__(self) -> None:
        self._grown = 0  # since it was told
        self._step = 0
        self._tell: Callable[[], None] | None = None

    def watch(self, step: int, tell: Callable[[], None]) -> None:
        """Call `tell()` after every `step` bytes."""
        self._step, self._tell = step, tell

    def written(self, size: int) -> None:
        self._grown += size
        if self._tell is not None and self._grown >= self._step:
            self._grown = 0
            self._tell()
