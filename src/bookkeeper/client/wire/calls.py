"""What is asked of bookies, and who hears the answers."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Protocol, TypeVar

from ...protocol.messages import Response
from ...types import BookieId
from .results import OK

log = logging.getLogger(__name__)

OnReply = Callable[[int, Response | None], None]
"""Hears the outcome of a request: result code, and the response if one came."""

Answer = tuple[int, int, bytes | None, int | None]
"""Outcome of one entry read: entry id, result code, the packaged entry if the code is 0, and the LAC the bookie
knows if it said."""


Row = tuple[tuple[int, ...], Sequence[bytes], int | None]
"""Entry reads of one call that all succeeded, by columns: entry ids, packaged entries, and the LAC that the bookie
knows if it said."""


class ReadSink(Protocol):
    """Who hears about reads of entries."""

    __slots__ = ()

    @abstractmethod
    def on_answers(self, call: ReadCall, answers: list[Answer], /) -> None:
        """What one socket read brought for this call (or what failed)."""

    def on_row(self, call: ReadCall, row: Row, /) -> None:
        """The same, where all is good."""
        self.on_answers(call, answers_of(row))


def answers_of(row: Row) -> list[Answer]:
    """The same, one by one."""
    entry_ids, entries, lac = row
    return list(zip(entry_ids, repeat(OK), entries, repeat(lac)))


class ReadCall:
    """Reads of entries that share a bookie, a sink and a deadline. One object for many entries."""

    __slots__ = ("answers", "bookie", "deadline", "index", "patience", "rows", "sent", "sink")

    def __init__(self, bookie: BookieId, index: int, sink: ReadSink, deadline: float) -> None:
        self.bookie = bookie
        self.index = index
        """The caller's: which replica this is."""
        self.sink = sink
        self.deadline = deadline
        """From `BookieClient.read_deadline`: a tick of the client's clock."""
        self.sent = 0
        """The tick in which it was handed to a connection."""
        self.patience = 0.0
        """Ticks that it waits when its turn has come."""
        self.answers: list[Answer] = []
        """Collected during one socket read, then delivered together."""
        self.rows: list[Row] = []
        """As `answers`: those that came side by side and are all good."""

    @property
    def collected(self) -> int:
        """Answers to be delivered."""
        return len(self.answers) + sum([len(entry_ids) for entry_ids, _, _ in self.rows])

    def deliver(self) -> None:
        rows, self.rows = self.rows, []
        answers, self.answers = self.answers, []
        for row in rows:
            self.sink.on_row(self, row)
        if answers:
            self.sink.on_answers(self, answers)


def deliver(calls: Iterable[ReadCall]) -> None:
    """Hand out collected answers. One sink's error is logged, and keeps nothing from the others."""
    for call in calls:
        try:
            call.deliver()
        except Exception:
            log.exception("answers of bookie %s to reads: unexpected error", call.bookie)


LONGEST_ROW = 256
"""Answers that are taken together at most: of more, the columns would not stay in the processor's cache."""

ROW_FROM = 4
"""Answers of a call side by side, on average, that are worth taking by columns."""


Call = TypeVar("Call")


def side_by_side(calls: Sequence[Call]) -> list[tuple[Call, int, int]]:
    """Where the answers of each call begin and end, given whose each one is. Empty if those of a call do not stand side
    by side, or are so few that to find out costs more than it brings."""
    counts = Counter(calls)
    if len(counts) * ROW_FROM > len(calls):
        return []
    parts = []
    at = 0
    for call, count in counts.items():
        if calls[at : at + count].count(call) != count:
            return []
        parts.append((call, at, at + count))
        at += count
    return parts
