"""When what a client sends leaves: once a turn of the loop, over all writers and all connections.

Theory of operation

A client may have thousands of writers, each with one entry a turn. What they push waits in their outboxes; one callback
at the end of the turn empties all of them into the connections, then writes each connection's frames in one piece. So a
turn costs one callback and one write for each connection, however many writers there are, and a writer that sends
nothing costs nothing. Whether a connection took them is known only now: if there is one that has enough for now, the
writers hear at last that their frames have left.

An error of one writer or connection is logged, and keeps nothing from the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)


class Sender(Protocol):
    """A writer's outbox."""

    def gather(self) -> None:
        """Hand the frames to the connections."""

    def left(self) -> None:
        """They have been written, and some connection is `blocked`."""


class Departures:
    """See the module. One per client."""

    __slots__ = ("_connections", "_senders", "blocked", "due")

    def __init__(self) -> None:
        self._senders: list[Sender] = []  # each once a turn
        self._connections: list[Callable[[], None]] = []  # each once a turn
        self.due = False
        """Something was handed over in this turn of the loop, and has not left yet."""
        self.blocked: set[object] = set()
        """Connections with a buffer above its high-water mark."""

    def sender(self, sender: Sender) -> None:
        """At the end of this turn have an outbox emptied. Once a turn for each."""
        self._senders.append(sender)
        self._schedule()

    def connection(self, write: Callable[[], None]) -> None:
        """At the end of this turn, behind the outboxes, have a connection write. Once a turn for each."""
        self._connections.append(write)
        self._schedule()

    def _schedule(self) -> None:
        if not self.due:
            self.due = True
            asyncio.get_running_loop().call_soon(self._depart)

    def _depart(self) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            try:
                sender.gather()
            except Exception:
                log.exception("the entries of a writer cannot be sent: unexpected error")
        connections, self._connections = self._connections, []
        self.due = False
        for write in connections:
            try:
                write()
            except Exception:
                log.exception("a connection to a bookie cannot send: unexpected error")
        for sender in senders if self.blocked else ():
            try:
                sender.left()
            except Exception:
                log.exception("a writer whose entries were sent: unexpected error")
