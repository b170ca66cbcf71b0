"""When the writers of a client are looked at, to see whether they are quiet and their LAC is to be told.

Theory of operation

- A writer is looked at within `interval` seconds after it asked for it, and again after each further interval in which
  it appended something. If it appended nothing it is told so (`QuietWriter.quiet`), and is looked at no more.
- A client may have ten thousand writers. They share one timer, which runs while there are any, and goes around: each
  round looks at those of its slot, so that a turn of the loop is short, and looking costs a fraction of a microsecond.
- To tell a LAC costs as much as an entry, and is of no use to a writer that appends again a moment later. Where
  thousands append now and then they would all be found quiet between two of their entries. So there is a limit: a
  client that appends little tells `MOST_A_SECOND`, one that is busy with entries `LEAST_A_SECOND`; who has no place in
  its round comes first in the next, unless it has appended meanwhile.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

from ..runtime.api import Runtime, TimerHandle
from ..runtime.tasks import guarded

ROUND_SECONDS = 0.03
"""Between two rounds, at most."""

MOST_A_SECOND = 5_000
"""Entries appended and LACs told together, as long as that leaves more than `LEAST_A_SECOND`."""

LEAST_A_SECOND = 1_000
"""So many LACs may be told however busy the client is."""


class QuietWriter(Protocol):
    """A writer that may become quiet. It asks to be looked at while it is not looked at already."""

    def appended(self) -> int | None:
        """How many entries it appended since this was last asked; None: look no more."""

    def quiet(self) -> None:
        """It has appended nothing for an interval; it is not looked at any more."""


class LacRounds:
    """See the module. One for a client."""

    __slots__ = ("_appended", "_held_back", "_least", "_period", "_runtime", "_slots", "_timer")

    def __init__(self, runtime: Runtime, interval: float) -> None:
        """`interval`: seconds a writer must be quiet, up to a round less."""
        rounds = max(2, math.ceil(interval / ROUND_SECONDS))
        self._period = interval / rounds
        self._least = max(1, int(LEAST_A_SECOND * self._period))
        self._appended: deque[int] = deque(maxlen=rounds)  # in each round of the last interval
        self._runtime = runtime
        self._slots: deque[list[QuietWriter]] = deque([] for _ in range(rounds))
        self._held_back: deque[QuietWriter] = deque()  # quiet, with no place yet
        self._timer: TimerHandle | None = None

    def look_at(self, writer: QuietWriter) -> None:
        """Look at this writer in the last round within an interval from now."""
        self._slots[-1].append(writer)
        self._run()

    def _run(self) -> None:
        if self._timer is None:
            self._timer = self._runtime.call_later(self._period, self._round)

    def _round(self) -> None:
        self._timer = None
        due = self._slots.popleft()
        again: list[QuietWriter] = []
        self._slots.append(again)
        quiet: list[QuietWriter] = []
        busy = 0
        for writer in due:
            count = writer.appended()
            if count:
                busy += count
                again.append(writer)
            elif count is not None:
                quiet.append(writer)
        self._appended.append(busy)
        places = self._serve_held_back(self._places(), again)
        self._held_back.extend(quiet[places:])
        for writer in quiet[:places]:
            self._tell(writer)
        if self._held_back or any(self._slots):
            self._run()

    def _places(self) -> int:
        """How many may be told in this round."""
        return max(self._least, int(MOST_A_SECOND * self._period) - sum(self._appended) // len(self._slots))

    def _serve_held_back(self, places: int, again: list[QuietWriter]) -> int:
        """Tell those that are quiet still, while there are places. The places that are left."""
        while self._held_back and places:
            writer = self._held_back.popleft()
            count = writer.appended()
            if count:
                again.append(writer)
            elif count is not None:
                places -= 1
                self._tell(writer)
        return places

    def _tell(self, writer: QuietWriter) -> None:
        with guarded("LAC of a quiet writer"):
            writer.quiet()
