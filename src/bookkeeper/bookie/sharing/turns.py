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
- a peer that keeps the loop busy (`credit`), by many short slices, by requests of megabytes, of which nothing is cut
  off once it has begun, or by its answers, rests now and then in the first milliseconds after a request of one that
  asks for little. So the turns that this one needs come soon, and in between the other has all the time there is;
- a peer with much that waits for the journal waits until half of it is done, as all that the journal takes after it is
  done after it; beside those that want little, it may have little there;
- a peer that wants much leaves some of the write cache to others.

So a peer that sends little is served at once, however much others send. A peer that sends much gets all the time
there is when it is alone.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ...runtime import Runtime, TimerHandle
from .credit import LATELY_SECONDS, Lately
from .memory import Peer

SLICE_SECONDS = 0.0015
"""For a peer that is alone, and one to a turn of the loop: some thirty requests of the dear kinds, a thousand adds."""

SLICE_BESIDE_OTHERS = 0.0001

SLICE_REQUESTS = 4096
"""No more requests than that are served in a slice. A socket read has hardly ever more."""

SLICE_REQUESTS_BESIDE_LIGHT = 32
"""For a peer that wants much, beside others that want little."""

SLICES_BESIDE_OTHERS = 2
"""In a round."""

IN_JOURNAL_BESIDE_OTHERS = 256 << 10
"""Bytes of a peer that may wait for the journal, which takes all that waits: adds with 512 more for each, and"""
IN_JOURNAL_BESIDE_LIGHT = 64 << 10
"""beside others that want little."""
ADD_IN_JOURNAL = 512
REQUEST_IN_JOURNAL = 4 << 10
"""for each fence, WRITE_LAC and FORCE."""
_HALVES = IN_JOURNAL_BESIDE_LIGHT // 2, IN_JOURNAL_BESIDE_OTHERS // 2

ADD_LATER_SECONDS = 2e-6
BYTE_LATER_SECONDS = 8e-9
"""What an add costs after it was served: to be written twice, by threads that share the interpreter, and answered."""

REQUEST_LATER_SECONDS = 5e-5
"""What a fence, WRITE_LAC or FORCE does, by itself: mostly a fence, after which is read, and whose ledger is written to
the index."""

WORTH_CHARGING_SECONDS = 0.0001
"""What a peer owes is charged at once when it is so much."""

HICCUP_SECONDS = 0.1
"""A debt that is paid back within so long tells nothing of what a peer wants: the machine may have given the processor
to others while a single request was served."""

HELD_BACK_SECONDS = 0.01
"""For so long after a request of a light peer others may have to rest: it takes no longer to be answered."""

SHORTEST_REST_SECONDS = 0.001
"""Timers are no finer."""


class Waiting(Protocol):
    """A connection with requests that wait for its turn."""

    def serve_more(self, until: float) -> bool:
        """Serve what waits, up to about this moment; whether some is left."""


class _Task:
    """A task that waits for its turn."""

    __slots__ = ("turn",)

    def __init__(self) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def serve_more(self, _until: float) -> bool:
        if not self.turn.done():
            self.turn.set_result(None)
        return False


class Turns:
    """Whose requests are served next."""

    def __init__(self, runtime: Runtime, share: float) -> None:
        """`share` of the loop's time for a peer beside others that want little (`peerLoopSharePercent`)."""
        self._runtime = runtime
        self._share = share
        self.now = runtime.now
        self._waiting: dict[Peer, dict[Waiting, None]] = {}  # in the order of turns; nothing in it is empty
        self._had_theirs: list[Peer] = []  # peers with `spent` beyond a slice: until the next round
        self._scheduled = False
        self._rest: TimerHandle | None = None  # until one that waits may be served again
        self._served: Lately[str] = Lately()  # by address: peers come and go with their connections
        self._light: Lately[str] = Lately()  # of those served, who had credit left

    def contested(self, now: float) -> bool:
        """Whether more than one peer was served lately."""
        return self._served.several(now)

    def slice_seconds(self, now: float) -> float:
        """How long a slice that begins now may take."""
        return SLICE_BESIDE_OTHERS if self.contested(now) else SLICE_SECONDS

    def slice_requests(self, peer: Peer, now: float) -> int:
        """How many requests of this peer are served in a slice that begins now, at most."""
        return SLICE_REQUESTS_BESIDE_LIGHT if self.must_spare(peer, now) else SLICE_REQUESTS

    def may_serve(self, peer: Peer, now: float) -> bool:
        """Whether what comes from this peer now is served at once."""
        return (
            peer.spent < self.slice_seconds(now)
            and peer not in self._waiting
            and not self._must_wait(peer, now)
            and not self._runtime.buggify("no turn", 0.01)
        )

    def _must_wait(self, peer: Peer, now: float) -> bool:
        if now >= peer.rests_until and peer.in_journal < IN_JOURNAL_BESIDE_LIGHT:
            return False
        return self._rests(peer, now) or self.fills_journal(peer, now)

    def fills_journal(self, peer: Peer, now: float) -> bool:
        """Whether others would wait for what the journal has of this peer."""
        size = peer.in_journal
        if size < IN_JOURNAL_BESIDE_LIGHT:
            return False
        return (size >= IN_JOURNAL_BESIDE_OTHERS and self.contested(now)) or self.must_spare(peer, now)

    def journal_gets_adds(self, peer: Peer, size: int, count: int) -> None:
        """So many adds of this peer, of so many bytes together, wait for the journal now."""
        peer.in_journal += size + count * ADD_IN_JOURNAL
        self.owe(peer, size * BYTE_LATER_SECONDS + count * ADD_LATER_SECONDS)

    def journal_has_adds(self, peer: Peer, size: int, count: int) -> None:
        self.journal_has(peer, size + count * ADD_IN_JOURNAL)

    def journal_gets(self, peer: Peer) -> None:
        """One request of this peer waits for the journal now."""
        peer.in_journal += REQUEST_IN_JOURNAL
        self.charge(peer, REQUEST_LATER_SECONDS, self.now())

    def journal_has(self, peer: Peer, size: int = REQUEST_IN_JOURNAL) -> None:
        """The journal has taken one request of this peer."""
        before = peer.in_journal
        peer.in_journal = after = before - size
        if peer in self._waiting and any(after <= half < before for half in _HALVES):
            self._schedule()

    def spent(self, peer: Peer, seconds: float, now: float) -> None:
        """Serving what came from this peer took so long, until now."""
        self.charge(peer, seconds, now)
        peer.spent += seconds
        if peer.spent >= self.slice_seconds(now):
            self._had_theirs.append(peer)
            self._schedule()

    def owe(self, peer: Peer, seconds: float) -> None:
        """It made the loop work for so long, or will: charged with what comes next of it, if it is little."""
        peer.owes += seconds
        if peer.owes >= WORTH_CHARGING_SECONDS:
            self.charge(peer, 0.0, self.now())

    def charge(self, peer: Peer, seconds: float, now: float) -> None:
        """This peer made the loop work for so long, until now."""
        self._served.came(peer.address, now)
        seconds, peer.owes = seconds + peer.owes, 0.0
        rest = peer.credit.spend(seconds, now, self._share)
        if rest > 0:
            if now - peer.in_debt_at >= LATELY_SECONDS:
                peer.in_debt_since = now
            peer.in_debt_at = now
            peer.rests_until = now + max(rest, SHORTEST_REST_SECONDS)
        elif not self._wants_much(peer, now):
            self._light.came(peer.address, now)

    @staticmethod
    def _wants_much(peer: Peer, now: float) -> bool:
        """Whether it was in debt lately, and not just once. One that was not is light."""
        return now - peer.in_debt_at < LATELY_SECONDS and peer.in_debt_at - peer.in_debt_since >= HICCUP_SECONDS

    def must_spare(self, peer: Peer, now: float) -> bool:
        """Whether it wants much, and there are others that want little."""
        return self._wants_much(peer, now) and self._light.other_than(peer.address, now)

    def _rests(self, peer: Peer, now: float) -> bool:
        return now < peer.rests_until and self._light.other_than(peer.address, now, HELD_BACK_SECONDS)

    async def turn(self, peer: Peer) -> None:
        """For a task that works for this peer: wait while it rests, and then for its turn."""
        if self._rests(peer, self.now()):
            task = _Task()
            self.wait(peer, task)
            try:
                await task.turn
            finally:
                self.forget(peer, task)

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
        end = now + (SLICES_BESIDE_OTHERS * SLICE_BESIDE_OTHERS if self.contested(now) else SLICE_SECONDS)
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
        slice_seconds = self.slice_seconds(now)
        more = connection.serve_more(now + slice_seconds)
        if isinstance(connection, _Task):
            return now + slice_seconds  # which it uses after this round, and is charged for then
        after = self._runtime.now()
        self.charge(peer, after - now, after)
        if more:
            self.wait(peer, connection)
        return after
