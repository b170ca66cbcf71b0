"""Turns: the loop's time is shared out among the peers that send requests.

Theory of operation

What a socket read brings is served at once, up to a slice of the loop's time. What is left then waits, and the socket
is not read meanwhile. So does everything that comes from a peer that has had its slice already, in this turn of the
loop, or that has something waiting. What waits is served in rounds, one in each turn: peers take turns, and the
connections of one peer do, one slice each, until the round is over.

A request needs several turns of the loop: to be read, to be written down, to be answered. So turns must be short
where there is more than one peer. They may be long where a peer is alone, which costs less. Whether it is alone is
told by whom was served lately (`contested`). Beside others:

- slices and rounds are short;
- after a request of megabytes, which can take many slices as nothing is cut off once it has begun, its peer rests for
  as long as it took;
- a peer with many requests that wait for the journal waits until half of them are done, as all that the journal takes
  after them is done after them.

So a peer that sends little is served at once, however much others send. A peer that sends much gets all the time
there is when it is alone.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from ...runtime import Runtime, TimerHandle
from .memory import Peer

SLICE_SECONDS = 0.0005
"""For a peer that is alone: some ten requests of the dear kinds, some hundred of the cheap ones."""

SLICE_BESIDE_OTHERS = 0.0001

SLICE_REQUESTS = 4096
"""No more requests than that are served in a slice. The time is not looked at between adds that came in a row, because
they are cheapest together; so many cost some milliseconds, and a socket read has hardly ever more."""

SLICES_IN_A_ROUND = 2

IN_JOURNAL_BESIDE_OTHERS = 64
"""Fences, WRITE_LAC and FORCE requests of a peer that may wait for the journal. To answer one takes some 20 µs."""

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
        self._others_at = -math.inf  # when another peer than that was

    def contested(self, now: float) -> bool:
        """Whether more than one peer was served lately."""
        return now - self._others_at < LATELY_SECONDS

    def slice_seconds(self, now: float) -> float:
        """How long a slice that begins now may take."""
        return SLICE_BESIDE_OTHERS if self.contested(now) else SLICE_SECONDS

    def may_serve(self, peer: Peer, now: float) -> bool:
        """Whether what comes from this peer now is served at once."""
        return (
            peer.spent < self.slice_seconds(now)
            and peer not in self._waiting
            and not self._must_wait(peer, now)
            and not self._runtime.buggify("no turn", 0.01)
        )

    def _must_wait(self, peer: Peer, now: float) -> bool:
        return now < peer.rests_until or self.fills_journal(peer, now)

    def fills_journal(self, peer: Peer, now: float) -> bool:
        """Whether others would wait for what the journal has of this peer."""
        return peer.in_journal >= IN_JOURNAL_BESIDE_OTHERS and self.contested(now)

    def journal_has(self, peer: Peer) -> None:
        """The journal has taken one request of this peer."""
        peer.in_journal -= 1
        if peer.in_journal == IN_JOURNAL_BESIDE_OTHERS // 2 and peer in self._waiting:
            self._schedule()

    def spent(self, peer: Peer, seconds: float, now: float) -> None:
        """Serving what came from this peer took so long, until now."""
        self._was_served(peer, seconds, now)
        peer.spent += seconds
        if peer.spent >= self.slice_seconds(now):
            self._had_theirs.append(peer)
            self._schedule()

    def _was_served(self, peer: Peer, seconds: float, now: float) -> None:
        if peer is not self._last:
            self._last, self._others_at = peer, self._last_at
        self._last_at = now
        if seconds > GIANT_SECONDS and self.contested(now):
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
        end = now + SLICES_IN_A_ROUND * self.slice_seconds(now)
        while now < end and (first := self._next(now)) is not None:
            now = self._serve_one(first, now)
        if self._next(now) is not None:
            self._schedule()
        else:
            self._wait_for_rests(now)

    def _next(self, now: float) -> Peer | None:
        """The first that waits for nothing but its turn."""
        return next((peer for peer in self._waiting if not self._must_wait(peer, now)), None)

    def _wait_for_rests(self, now: float) -> None:
        """Go on when the first rest is over. Who waits for the journal is told by `journal_has`."""
        rests = [peer.rests_until - now for peer in self._waiting if peer.rests_until > now]
        if rests and self._rest is None:
            self._rest = self._runtime.call_later(min(rests), self._rest_is_over)

    def _rest_is_over(self) -> None:
        self._rest = None
        self._schedule()

    def _serve_one(self, peer: Peer, now: float) -> float:
        """One slice; returns the time after it."""
        connections = self._waiting[peer]
        connection = next(iter(connections))
        self.forget(peer, connection)
        if connections:
            del self._waiting[peer]
            self._waiting[peer] = connections
        more = connection.serve_more(now + self.slice_seconds(now))
        after = self._runtime.now()
        self._was_served(peer, after - now, after)
        if more:
            self.wait(peer, connection)
        return after
