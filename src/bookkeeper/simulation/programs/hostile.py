"""Peers of bookies that do not behave: they ask and never listen, begin and do not go on, take what they can get.

Each works on connections of its own, without the client, and on a ledger that no other client knows; only its reads are
of ledgers that others have written. The checkers do not look at its answers (`wire` leaves it out): the question
is what becomes of the others. The one exception is a *demanding* peer, which asks for much, but is honest: each of its
adds must be answered.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

from ...client.client import BookKeeper
from ...protocol import v2, v3
from ...protocol.entry import HEADER, LAC_HEADER
from ...protocol.frames import FrameSplitter
from ...protocol.messages import AddRequest, BatchReadRequest, ReadRequest, Request, Status, WriteLacRequest
from ..cluster import PORT
from ..history import Violation
from ..programs.users import OPERATION_SECONDS, Programs
from ..world.world import SimulatedRuntime

OWN_LEDGERS = 1 << 40
"""Ids from here on are those of hostile peers' ledgers."""

LARGE = 40 << 10
"""Bytes of an entry, or of what pretends to be something small."""

DEMANDING = 200 << 10
"""Bytes of an entry of a demanding peer: three of them are more than half of the smallest journal's memory."""

KEY = bytes(20)


class HostilePeer(asyncio.Protocol):
    """A connection to a bookie."""

    def __init__(self, listens: bool) -> None:
        self._listens = listens
        self._frames = FrameSplitter(64 << 20)
        self.transport: asyncio.Transport | None = None
        self.answers: list[Any] = []
        self.changed = asyncio.Event()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self._listens:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        for body in self._frames.feed(data):
            self.answers.append(v2.decode_response(body) if body[0] < 8 else v3.decode_response(body))
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.changed.set()

    def send(self, *requests: Request) -> None:
        assert self.transport is not None
        frames = [(v2 if request.version < 3 else v3).encode_request(request) for request in requests]
        self.transport.write(b"".join(frames))


class Hostility:
    """The program, for all machines of a run."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._cluster = programs.cluster
        self._next_ledger = OWN_LEDGERS

    async def live(self, bk: BookKeeper, dice: random.Random) -> None:
        """Some connections to one bookie, held for a while."""
        runtime = bk.context.runtime
        assert isinstance(runtime, SimulatedRuntime)
        ways = (self._reads, self._batch_reads, self._polls, self._half_frames, self._records, self._demands)
        way = dice.choice(ways)
        bookie = dice.choice(self._cluster.names)
        listens = way in (self._records, self._demands)
        peers: list[HostilePeer] = []
        try:
            for _ in range(dice.choice((2, 5, 12))):
                _, peer = await runtime.network.connect(bookie, PORT, lambda: HostilePeer(listens), timeout=2.0)
                peers.append(cast(HostilePeer, peer))
            self._cluster.world.note(runtime.hostname(), f"{way.__name__[1:]} on {len(peers)} connections to {bookie}")
            self._programs.sometimes(f"hostile: {way.__name__[1:].replace('_', ' ')}")
            await way(peers, dice)
            if not listens:
                await asyncio.sleep(dice.choice((0.5, 5.0, 10.0)))
        except OSError:
            await asyncio.sleep(0.5)
        finally:
            for peer in peers:
                if peer.transport is not None:
                    peer.transport.abort()

    def _some_reads(self, dice: random.Random) -> list[tuple[int, int]]:
        """Entries of others, old and new, there or not."""
        ledgers = [ledger for ledger in self._programs.history.ledgers.values() if ledger.sent]
        return [
            ((ledger := dice.choice(ledgers)).ledger_id, dice.randrange(ledger.sent + 2))
            for _ in range(dice.choice((50, 300)) if ledgers else 0)
        ]

    async def _reads(self, peers: list[HostilePeer], dice: random.Random) -> None:
        """Plain reads whose answers are not taken from the connection."""
        for peer in peers:
            peer.send(*(ReadRequest(ledger, entry) for ledger, entry in self._some_reads(dice)))
            await asyncio.sleep(0.001)

    async def _batch_reads(self, peers: list[HostilePeer], dice: random.Random) -> None:
        """As many and as large answers as can be had for little; first something to read is put there."""
        ledger, writer = self._own_ledger(), peers[0]
        writer.send(*(AddRequest(ledger, number, _entry(ledger, number, LARGE), KEY) for number in range(20)))
        await asyncio.sleep(0.5)
        for peer in peers:
            peer.send(*(BatchReadRequest(ledger, 0, number, 0, 5 << 20) for number in range(90)))
            await asyncio.sleep(0.001)

    async def _polls(self, peers: list[HostilePeer], dice: random.Random) -> None:
        """Long polls for what will not come soon."""
        ledgers = list(self._programs.history.ledgers) or [0]
        for peer in peers:
            ledger = dice.choice(ledgers[-3:])
            peer.send(
                *(
                    ReadRequest(ledger, 0, previous_lac=1 << 40, timeout_ms=60_000, txn_id=number, version=3)
                    for number in range(200)
                )
            )
            await asyncio.sleep(0.001)

    async def _half_frames(self, peers: list[HostilePeer], dice: random.Random) -> None:
        """The beginning of a large request."""
        for peer in peers:
            frame = v2.encode_request(AddRequest(0, 0, _entry(OWN_LEDGERS - 1, 0, LARGE), KEY))
            assert peer.transport is not None
            peer.transport.write(frame[: dice.randint(1, len(frame) - 1)])
            await asyncio.sleep(0.001)

    async def _records(self, peers: list[HostilePeer], dice: random.Random) -> None:
        """What a bookie keeps for each ledger, in memory and for ever: keys and explicit LACs. Those must be small."""
        for peer in peers:
            ledger = self._own_ledger()
            peer.send(
                AddRequest(ledger, 0, _entry(ledger, 0, 10), bytes(LARGE), txn_id=1, version=3),
                WriteLacRequest(ledger, 0, bytes(LARGE), LAC_HEADER.pack(ledger, 0) + bytes(LARGE), txn_id=2),
            )
        await asyncio.sleep(2.0)
        for peer in peers:
            for answer in peer.answers:
                if answer.status == Status.EOK:
                    raise Violation(f"a bookie keeps {LARGE} bytes of a ledger's {type(answer).__name__} in memory")

    async def _demands(self, peers: list[HostilePeer], dice: random.Random) -> None:
        """Large adds on several connections at once: each is answered."""
        count = dice.choice((2, 3, 4))
        for peer in peers:
            ledger = self._own_ledger()
            peer.send(*(AddRequest(ledger, number, _entry(ledger, number, DEMANDING), KEY) for number in range(count)))
        deadline = asyncio.get_running_loop().time() + OPERATION_SECONDS
        for peer in peers:
            while len(peer.answers) < count and not peer.lost:
                peer.changed.clear()
                try:
                    async with asyncio.timeout_at(deadline):
                        await peer.changed.wait()
                except TimeoutError:
                    raise Violation(
                        f"{count - len(peer.answers)} of {count} large adds are not answered for "
                        f"{OPERATION_SECONDS:.0f} seconds"
                    ) from None

    def _own_ledger(self) -> int:
        self._next_ledger += 1
        return self._next_ledger


def _entry(ledger_id: int, entry_id: int, size: int) -> bytes:
    return HEADER.pack(ledger_id, entry_id, -1, size) + bytes(size)


__all__ = ["OWN_LEDGERS", "Hostility"]
