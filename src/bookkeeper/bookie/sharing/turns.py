"""Turns: the loop's time is shared out among those who send requests.

Theory of operation

What a socket read brings is served at once, up to `SLICE_SECONDS` of the loop's time. What is left then waits, and the
socket is not read meanwhile. So does everything that comes from a peer that has had its slice already, in this turn
of the loop, or that has something waiting. What waits is served in rounds, one in each turn: peers take turns, and the
connections of one peer do, one slice each, until `ROUND_SECONDS` are over.

So a peer that sends little is served at once, however much others send; and who sends much gets all the time there
is when it is alone.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from bookkeeper.runtime import Runtime

from .memory import Peer

SLICE_SECONDS = 0.0005
"""Some ten requests of the dear kinds, some hundred of the cheap ones."""

SLICE_REQUESTS = 4096
"""No more requests than that are served in a slice. The time is not looked at between adds that came in a row, because
they are cheapest together; so many cost some milliseconds, and a socket read has hardly ever more."""

ROUND_SECONDS = 0.001


class Waiting(Protocol):
    """A connection with requests that wait for its turn."""

    def serve_more(self, until: float) -> bool:
        """Serve what waits, up to about this moment; whether some is left."""


class Turns:
    """Whose requests are served next."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Peer, dict[Waiting, None]] = {}  # in the order of turns; nothing in it is empty
        self._had_theirs: list[Peer] = []  # peers with `spent` beyond a slice: until the next round
        self._scheduled = False

    def may_serve(self, peer: Peer) -> bool:
        """Whether what comes from this peer now is served at once."""
        return peer.spent < SLICE_SECONDS and peer not in self._waiting and not self._runtime.buggify("no turn", 0.01)

    def spent(self, peer: Peer, seconds: float) -> None:
        """Serving this peer took so long."""
        peer.spent += seconds
        if peer.spent >= SLICE_SECONDS:
            self._had_theirs.append(peer)
            self._schedule()

    def wait(self, peer: Peer, connection: Waiting) -> None:
        """Call `connection.serve_more` when it is its turn, until nothing is left."""
        self._waiting.setdefault(peer, {})[connection] = None
        self._schedule()

    def forget(self, peer: Peer, connection: Waiting) -> None:
        """The connection has ended."""
        if (connections := self._waiting.get(peer)) is not None:
            connections.pop(connection, None)
            if not connections:
                del self._waiting[peer]

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._scheduled = False
        for peer in self._had_theirs:
            peer.spent = 0.0
        self._had_theirs.clear()
        now = self._runtime.now()
        end = now + ROUND_SECONDS
        while self._waiting and now < end:
            self._serve_one(now)
            now = self._runtime.now()
        if self._waiting:
            self._schedule()

    def _serve_one(self, now: float) -> None:
        peer, connections = next(iter(self._waiting.items()))
        connection = next(iter(connections))
        self.forget(peer, connection)
        if connections:
            del self._waiting[peer]
            self._waiting[peer] = connections
        if connection.serve_more(now + SLICE_SECONDS):
            self.wait(peer, connection)
