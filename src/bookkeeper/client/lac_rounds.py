"""When the writers of a client are looked at, to see whether they are quiet and their LAC is to be told.

Theory of operation

- A writer is looked at within `interval` seconds after it asked for it, and again after each further interval in which
  it appended something. If it appended nothing it is told so (`QuietWriter.quiet`), and is looked at no more.
- All have the same interval, so they stand in line in the order in which they are due, and one timer serves them all:
  it runs for the first of them, and not more often than once a round: times are counted in rounds. A client may have
  ten thousand writers; a round looks at those that are due, at a fraction of a microsecond each.
- To tell a LAC costs as much as an entry, and is of no use to a writer that appends again a moment later. Where
  thousands append now and then they would all be found quiet between two of their entries. So there is a limit: a
  client that appends little tells `MOST_A_SECOND`, one that is busy with entries `LEAST_A_SECOND`; who has no place in
  its round comes first in the next, unless it has appended meanwhile.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Protocol

from ..runtime.api import Runtime, TimerHandle
from ..runtime.tasks import call_guarded

ROUND_SECONDS = 0.03
"""Between two rounds, at most."""

ROUNDS = 10
"""In an interval, at least."""

EARLY = 0.01
"""Of a round: a timer may be early by so much."""

MOST_A_SECOND = 5_000
"""Entries appended and LACs told together, as long as that leaves more than `LEAST_A_SECOND`."""

LEAST_A_SECOND = 1_000
"""So many LACs may be told however busy the client is."""


class QuietWriter(Protocol):
    """A writer that may become quiet."""

    def appended(self) -> int:
        """How many entries it appended since this was last asked."""

    def quiet(self) -> None:
        """It has appended nothing for an interval; it is not looked at any more."""


class LacRounds:
    """See the module. One for a client."""

    __slots__ = ("_due", "_held_back", "_interval", "_last", "_period", "_rate", "_rounds", "_runtime", "_timer")

    def __init__(self, runtime: Runtime, interval: float) -> None:
        """`interval`: seconds a writer must be quiet, up to a round less."""
        self._interval = interval
        self._rounds = max(ROUNDS, math.ceil(interval / ROUND_SECONDS))
        self._period = interval / self._rounds
        self._runtime = runtime
        self._due: dict[QuietWriter, int] = {}  # the round that looks at it; in that order
        self._held_back: dict[QuietWriter, None] = {}  # quiet, with no place yet
        self._rate = 0.0  # entries a second that all append, of late
        self._last = 0  # the last round
        self._timer: TimerHandle | None = None

    def look_at(self, writer: QuietWriter) -> None:
        """Look at this writer within an interval from now. One that is looked at already is looked at later."""
        self.forget(writer)
        due = int(self._runtime.now() / self._period) + self._rounds
        if self._due:
            due = max(due, next(reversed(self._due.values())))  # a timer was early: they stay in order
        self._due[writer] = due
        self._run(due)

    def forget(self, writer: QuietWriter) -> None:
        """Look at it no more. Idempotent."""
        self._due.pop(writer, None)
        self._held_back.pop(writer, None)

    def _round_now(self) -> int:
        """The round whose timer this is."""
        return int(self._runtime.now() / self._period + EARLY)

    def _run(self, number: int) -> None:
        if self._timer is None:
            self._timer = self._runtime.call_later(max(0.0, number * self._period - self._runtime.now()), self._round)

    def _round(self) -> None:
        self._timer = None
        now = self._round_now()
        quiet = self._quiet(now)
        places = max(1, int(max(LEAST_A_SECOND, MOST_A_SECOND - self._rate) * self._period))
        places = self._serve_held_back(places, now)
        self._held_back.update(dict.fromkeys(quiet[places:]))
        for writer in quiet[:places]:
            self._tell(writer)
        if self._held_back:
            self._run(now + 1)
        elif self._due:
            self._run(next(iter(self._due.values())))

    def _quiet(self, now: int) -> list[QuietWriter]:
        """Those that are due and appended nothing; who did is looked at again."""
        due = []
        for writer, at in self._due.items():
            if at > now:
                break
            due.append(writer)
        quiet = []
        busy = 0
        for writer in due:
            del self._due[writer]
            count = writer.appended()
            if count:
                busy += count
                self._due[writer] = now + self._rounds
            else:
                quiet.append(writer)
        fading = math.exp((self._last - now) / self._rounds)
        self._rate = self._rate * fading + busy / self._interval
        self._last = now
        return quiet

    def _serve_held_back(self, places: int, now: int) -> int:
        """Tell those that are quiet still, as many as there are places. The places that are left."""
        for writer in list(islice(self._held_back, places)):
            if writer not in self._held_back:
                continue  # telling another one was its end
            del self._held_back[writer]
            if writer.appended():
                self._due[writer] = now + self._rounds
            else:
                places -= 1
                self._tell(writer)
        return places

    def _tell(self, writer: QuietWriter) -> None:
        call_guarded("LAC of a quiet writer", writer.quiet)
