"""When what a client sends leaves: once a turn of the loop, over all writers and all connections.

Theory of operation

A client may have thousands of writers, each with one entry a turn, and few bookies. So what is gathered during a turn
is not a writer's, but that of all writers whose entries go to the same connections: a `Bundle`, whose frames are joined
once and handed to each of them. A writer puts its frames in and has nothing to do when the turn ends. One callback then
empties the bundles into the connections, and has each connection write what it was given in one piece. So a turn costs
one callback and one write for each connection, and a writer that sends nothing costs nothing. Reads of single entries
leave in the same way (`reads.single`).

An error of one bundle or connection is logged, and keeps nothing from the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakValueDictionary

from ...types import BookieId
from .add_channel import JointSink

log = logging.getLogger(__name__)


class Sending(Protocol):
    """A connection."""

    bookie: BookieId

    def send(self, frames: bytes) -> None:
        """Take complete frames."""


class Watched(Protocol):
    """What a writer puts frames in by."""

    def look(self) -> None:
        """A tick is over: tell the routes what was put in and answered."""


class Bundle:
    """Frames of one turn that all go to the same connections. Made by `Departures.bundle`."""

    __slots__ = ("__weakref__", "_connections", "_frames", "_here", "_taken_back", "due", "put", "sinks")

    def __init__(self, connections: tuple[Sending, ...]) -> None:
        self._connections = connections
        self._frames: list[bytes] = []
        self._here: set[int] = set()  # identities of the frames, when one of them was last taken back
        self._taken_back: set[int] = set()
        self.put: Callable[[bytes], None] = self._frames.append
        """Add a frame. It leaves if the bundle is `due`."""
        self.due = False
        """It leaves at the end of this turn."""
        self.sinks: dict[int, JointSink] = {}
        """By ledger id, the writers whose entries go to exactly these connections now."""

    def take_back(self, frames: Iterable[bytes]) -> int:
        """Leave these very objects out, not what is equal. Returns how many of them are here."""
        if len(self._here) + len(self._taken_back) != len(self._frames):
            self._here = {id(frame) for frame in self._frames} - self._taken_back
        found = self._here.intersection(map(id, frames))
        self._here -= found
        self._taken_back |= found
        return len(found)

    def leave(self) -> None:
        """Hand the frames to the connections."""
        self.due = False
        frames = self._frames
        if self._taken_back:
            frames[:] = [frame for frame in frames if id(frame) not in self._taken_back]
            self._taken_back.clear()
        self._here.clear()
        if frames:
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            frames.clear()
            for connection in self._connections:
                connection.send(data)


class Departures:
    """See the module. One per client."""

    __slots__ = ("_bundles", "_connections", "_leaving", "blocked", "due", "watched")

    def __init__(self) -> None:
        self._bundles: WeakValueDictionary[tuple[Sending, ...], Bundle] = WeakValueDictionary()
        self._leaving: list[Callable[[], None]] = []  # each once a turn
        self._connections: list[Callable[[], None]] = []  # each once a turn
        self.due = False
        """Something was handed over in this turn of the loop, and has not left yet."""
        self.watched: dict[Watched, None] = {}
        """Those with frames under way. They come and go by themselves."""
        self.blocked: set[object] = set()
        """Connections with a buffer above its high-water mark."""

    def bundle(self, connections: tuple[Sending, ...]) -> Bundle:
        """That of all writers with these connections."""
        found = self._bundles.get(connections)
        if found is None:
            found = self._bundles[connections] = Bundle(connections)
        return found

    def found(self, connections: tuple[Sending, ...]) -> Bundle | None:
        """That of the writers whose entries go to exactly these connections, if there are any such."""
        return self._bundles.get(connections)

    def look(self) -> None:
        """A tick is over: have the routes told what left and was answered, before they are looked at."""
        for lane in list(self.watched):
            lane.look()

    def leaves(self, bundle: Bundle) -> None:
        """At the end of this turn have a bundle handed over. Once a turn for each: look at its `due`."""
        bundle.due = True
        self.gathered(bundle.leave)

    def gathered(self, leave: Callable[[], None]) -> None:
        """At the end of this turn have something handed to connections. Once a turn for each."""
        self._leaving.append(leave)
        if not self.due:
            self._schedule()

    def connection(self, write: Callable[[], None]) -> None:
        """At the end of this turn, behind what was gathered, have a connection write. Once a turn for each."""
        self._connections.append(write)
        if not self.due:
            self._schedule()

    def _schedule(self) -> None:
        self.due = True
        asyncio.get_running_loop().call_soon(self._depart)

    def _depart(self) -> None:
        leaving, self._leaving = self._leaving, []
        for leave in leaving:
            try:
                leave()
            except Exception:
                log.exception("some of what was gathered for bookies cannot be sent: unexpected error")
        connections, self._connections = self._connections, []
        self.due = False
        for write in connections:
            try:
                write()
            except Exception:
                log.exception("a connection to a bookie cannot send: unexpected error")
