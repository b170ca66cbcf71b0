"""Turns: the loop's time is shared out among those who send requests.

Theory of operation

What a socket read brings is served at once, up to `SLICE_SECONDS` of the loop's time. What is left then waits, and the
socket is not read meanwhile. So does everything that comes from a peer that has had its slice already, in this turn
of the loop, or that has something waiting. What waits is served in rounds, one in each turn: peers take turns, and the
connections of one peer do, one slice each, until `ROUND_SECONDS` are over.

A single request of megabytes can take many slices, as nothing is cut off once it has begun. After such a one its peer
rests for as long as it took, if others have been served lately: what a request of theirs needs several turns of the
loop for is then done in between.

So a peer that sends little is served at once, however much others send; and who sends much gets all the time there
is when it is alone.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from bookkeeper.runtime import Runtime, TimerHandle

from .memory import Peer

SLICE_SECONDS = 0.0005
"""Some ten requests of the dear kinds, some hundred of the cheap ones."""

SLICE_REQUESTS = 4096
"""No more requests than that are served in a slice. The time is not looked at between adds that came in a row, because
they are cheapest together; so many cost some milliseconds, and a socket read has hardly ever more."""

ROUND_SECONDS = 0.001

GIANT_SECONDS = 0.004
"""A slice that took longer is followed by a rest. No row of adds that one socket read brings takes so long."""

LONGEST_REST_SECONDS = 0.05
"""A slice that took longer was not the peer's doing: this process, or its machine, stood still."""

LATELY_SECONDS = 0.1
"""For so long after they were served others are expected to come again."""


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
        self._rest: TimerHandle | None = None  # until one that waits may be served again
        self._last: Peer | None = None  # who was served last
        self._last_at = -math.inf
        self._others_at = -math.inf  # when somebody else was

    def may_serve(self, peer: Peer) -> bool:
        """Whether what comes from this peer now is served at once."""
        return (
            peer.spent < SLICE_SECONDS
            and peer not in self._waiting
            and (not peer.rests_until or self._runtime.now() >= peer.rests_until)
            and not self._runtime.buggify("no turn", 0.01)
        )

    def spent(self, peer: Peer, seconds: float, now: float) -> None:
        """Serving what came from this peer took so long, until now."""
        self._was_served(peer, seconds, now)
        peer.spent += seconds
        if peer.spent >= SLICE_SECONDS:
            self._had_theirs.append(peer)
            self._schedule()

    def _was_served(self, peer: Peer, seconds: float, now: float) -> None:
        if peer is not self._last:
            self._last, self._others_at = peer, self._last_at
        self._last_at = now
        if seconds > GIANT_SECONDS and now - self._others_at < LATELY_SECONDS:
            peer.rests_until = now + min(seconds, LONGEST_REST_SECONDS)

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
        while now < end and (first := self._next(now)) is not None:
            now = self._serve_one(first, now)
        if self._next(now) is not None:
            self._schedule()
        elif self._waiting and self._rest is None:
            rest = min(waiting.rests_until for waiting in self._waiting) - now
            self._rest = self._runtime.call_later(rest, self._rest_is_over)

    def _rest_is_over(self) -> None:
        self._rest = None
        self._schedule()

    def _next(self, now: float) -> Peer | None:
        """The first that waits and does not rest."""
        return next((peer for peer in self._waiting if now >= peer.rests_until), None)

    def _serve_one(self, peer: Peer, now: float) -> float:
        """One slice; returns the time after it."""
        connections = self._waiting[peer]
        connection = next(iter(connections))
        self.forget(peer, connection)
        if connections:
            del self._waiting[peer]
            self._waiting[peer] = connections
        more = connection.serve_more(now + SLICE_SECONDS)
        after = self._runtime.now()
        self._was_served(peer, after - now, after)
        if more:
            self.wait(peer, connection)
        return after
