"""What is asked of bookies, and who hears the answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from ...protocol.messages import Response
from ...types import BookieId

log = logging.getLogger(__name__)

OnReply = Callable[[int, Response | None], None]
"""Hears the outcome of a request: result code, and the response if one came."""

Answer = tuple[int, int, bytes | None, int | None]
"""Outcome of one entry read: entry id, result code, the packaged entry if the code is 0, and the LAC the bookie
knows if it said."""


class ReadSink(Protocol):
    """Who hears about reads of entries."""

    def on_answers(self, call: ReadCall, answers: list[Answer], /) -> None:
        """What one socket read brought for this call (or what failed)."""


class ReadCall:
    """Reads of entries that share a bookie, a sink and a deadline. One object for many entries."""

    __slots__ = ("answers", "bookie", "deadline", "index", "patience", "sent", "sink")

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

    def deliver(self) -> None:
        answers, self.answers = self.answers, []
        if answers:
            self.sink.on_answers(self, answers)


def deliver(calls: Iterable[ReadCall]) -> None:
    """Hand out collected answers. One sink's error is logged, and keeps nothing from the others."""
    for call in calls:
        try:
            call.deliver()
        except Exception:
            log.exception("answers of bookie %s to reads: unexpected error", call.bookie)
