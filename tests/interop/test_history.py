"""A random history: each step is done by a client chosen at random, on bookies of both kinds, with faults between.

What the history knows of each ledger: which of its entries were acknowledged, and, once somebody has closed or
recovered it, where it ends. From then on every client must read exactly that.

    pytest tests/interop/test_history.py -m interop --rounds 1000 --seed 7
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.interop.support.clients import Client, Handle, expected
from tests.interop.support.cluster import Bookie, Cluster
from tests.interop.support.peer import KILL, Refused
from tests.interop.support.report import Report, verifies

Connect = Callable[..., Any]

NAMES = ("java-v2", "java-v3", "ours-v2", "ours-v3", "ours-auto")
OTHER = {"java": "ours", "ours": "java"}
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")
SHAPES = ((3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 3, 2), (2, 2, 2))
SECONDS_PER_ROUND = 20


@dataclass
class Ledger:
    """What the history knows of a ledger."""

    id: int
    digest: str
    shape: tuple[int, int, int]
    writer: Handle | None
    """None: nobody holds it open any more."""
    sizes: list[int] = field(default_factory=list)
    """Of all entries sent, in order."""
    acked: int = 0
    """Entries below are acknowledged."""
    end: int | None = None
    """Entries of the closed ledger."""


class History:
    """Runs steps and judges what they bring."""

    def __init__(self, seed: int, cluster: Cluster, clients: list[Client]) -> None:
        self.dice = random.Random(seed)
        self.cluster = cluster
        self.clients = clients
        self.ledgers: list[Ledger] = []
        self.story: list[str] = []
        self.down: Bookie | None = None
        self.tally: Counter[str] = Counter()
        """What was done, how often."""

    def summary(self, rounds: int) -> str:
        """What the history saw, for the report."""
        seen = self.tally
        return (
            f"{rounds} rounds, {seen['ledgers']:,} ledgers, {seen['entries']:,} entries acknowledged, "
            f"{seen['recoveries']:,} recoveries ({seen['races']:,} by two clients at once while the writer appended), "
            f"{seen['fenced']:,} writers fenced, {seen['reads']:,} readings of a whole ledger, "
            f"{seen['kills']} bookies killed and started again, {seen['swaps']} started as the other kind"
        )

    def tell(self, line: str) -> None:
        self.story.append(f"{len(self.story)}: {line}")

    async def run(self, rounds: int) -> None:
        steps = (
            (self.create, 4),
            (self.append, 10),
            (self.close, 2),
            (self.recover, 2),
            (self.race, 2),
            (self.read, 5),
            (self.peek, 4),
            (self.delete, 2),
            (self.kill, 2),
            (self.start, 2),
            (self.change_kind, 2),
        )
        weighted = [step for step, weight in steps for _ in range(weight)]
        for _ in range(rounds):
            while not await self.dice.choice(weighted)():
                pass  # there was nothing to do it to
        await self.start()
        for ledger in self.ledgers:
            for client in self.clients:
                await self.verify(client, ledger)

    def some_client(self) -> Client:
        return self.dice.choice(self.clients)

    def some_ledger(self, *, open_for_writing: bool = False) -> Ledger | None:
        fitting = [ledger for ledger in self.ledgers if ledger.writer is not None or not open_for_writing]
        return self.dice.choice(fitting) if fitting else None

    # --- steps ---

    async def create(self) -> bool:
        client, digest = self.some_client(), self.dice.choice(DIGESTS)
        shape = self.dice.choice(SHAPES)
        e, qw, qa = shape
        writer = await client.create(e=e, qw=qw, qa=qa, digest=digest, password="h")
        self.ledgers.append(Ledger(writer.ledger, digest, shape, writer))
        self.tally["ledgers"] += 1
        self.tell(f"{client.name} creates {writer.ledger} {shape} {digest}")
        return True

    async def append(self) -> bool:
        """To a few ledgers at once."""
        writable = [ledger for ledger in self.ledgers if ledger.writer is not None]
        chosen = self.dice.sample(writable, min(len(writable), self.dice.choice((1, 1, 3))))
        await asyncio.gather(*map(self.append_to, chosen))
        return bool(chosen)

    async def append_to(self, ledger: Ledger, *, racing: bool = False) -> None:
        """`racing`: somebody is recovering the ledger at this moment."""
        assert ledger.writer is not None
        ended = ledger.end is not None
        count, size = self.dice.choice((1, 5, 50, 300)), self.dice.choice((0, 1, 100, 2000))
        self.tell(f"{count} entries of {size} to {ledger.id}")
        ledger.sizes.extend([size] * count)
        try:
            last = await ledger.writer.fill(count, size)
        except Refused as error:
            # A lost bookie must not fail appends.
            assert ended or racing, self.report(f"{ledger.id} refused entries: {error}")  # noqa: PT017
            self.tell(f"{ledger.id} refused: {error}")
            self.tally["fenced"] += 1
            ledger.writer = None
        else:
            assert not ended, self.report(f"ledger {ledger.id} took an append after its end")
            assert ledger.end is None or last < ledger.end, self.report(f"ledger {ledger.id} ends before {last}")
            ledger.acked = last + 1
            self.tally["entries"] += count
            assert ledger.acked == len(ledger.sizes)

    async def close(self) -> bool:
        ledger = self.some_ledger(open_for_writing=True)
        if ledger is None or ledger.end is not None:
            return False
        assert ledger.writer is not None
        self.tell(f"close {ledger.id}")
        ledger.end = await ledger.writer.close() + 1
        ledger.writer = None
        assert ledger.end == ledger.acked, self.report(f"ledger {ledger.id} ends at {ledger.end}, not {ledger.acked}")
        return True

    async def recover(self) -> bool:
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is None:
            return False
        self.tell(f"{client.name} opens {ledger.id} with recovery")
        await self.verify(client, ledger)
        return True

    async def race(self) -> bool:
        """Two clients recover a ledger while its writer appends."""
        ledger = self.some_ledger(open_for_writing=True)
        if ledger is None or ledger.end is not None:
            return False
        rivals = self.dice.sample(self.clients, 2)
        self.tell(f"{rivals[0].name} and {rivals[1].name} race for {ledger.id}")
        await asyncio.gather(self.append_to(ledger, racing=True), *(self.rival(client, ledger) for client in rivals))
        self.tally["races"] += 1
        for client in rivals:
            await self.verify(client, ledger)
        return True

    async def rival(self, client: Client, ledger: Ledger) -> None:
        await asyncio.sleep(self.dice.random() * 0.02)
        try:
            await self.verify(client, ledger)
        except Refused as error:  # who comes second may lose; not again when nobody else is at it
            self.tell(f"{client.name} did not get {ledger.id}: {error}")

    async def verify(self, client: Client, ledger: Ledger) -> None:
        reader = await client.open(ledger.id, password="h", digest=ledger.digest)
        state = await reader.state()
        assert state.closed
        found = state.lac + 1
        if ledger.end is None:
            assert found >= ledger.acked, self.report(f"{client.name} lost entries of {ledger.id}: {found}")
            ledger.end = found
            self.tally["recoveries"] += 1
        assert found == ledger.end, self.report(f"{client.name} finds {found} entries in {ledger.id}, not {ledger.end}")
        assert state.length == sum(ledger.sizes[:found]), self.report(f"length {state.length} of {ledger.id}")
        if found:
            assert await reader.read() == expected(ledger.sizes[:found]), self.report(f"{client.name} read {ledger.id}")
        self.tally["reads"] += 1

    async def read(self) -> bool:
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is None or ledger.end is None:
            return False
        self.tell(f"{client.name} reads {ledger.id}")
        await self.verify(client, ledger)
        return True

    async def peek(self) -> bool:
        """Read an open ledger without recovery, up to its LAC."""
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is None or ledger.end is not None:
            return False
        self.tell(f"{client.name} peeks into {ledger.id}")
        reader = await client.open(ledger.id, password="h", digest=ledger.digest, recovery=False)
        lac = await reader.lac()
        assert lac < ledger.acked, self.report(f"LAC {lac} of {ledger.id}")
        if lac >= 0:
            assert await reader.read(0, lac) == expected(ledger.sizes[: lac + 1]), self.report(f"peek {ledger.id}")
        return True

    async def delete(self) -> bool:
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is None or ledger.end is None:
            return False
        self.tell(f"{client.name} deletes {ledger.id}")
        await client.delete(ledger.id)
        self.ledgers.remove(ledger)
        with pytest.raises(Refused, match=r"^-25:"):
            await self.some_client().open(ledger.id, password="h", digest=ledger.digest)
        return True

    # --- faults: one bookie at a time, under appends ---

    async def kill(self) -> bool:
        if self.down is not None:
            return False
        self.down = self.dice.choice(self.cluster.bookies)
        self.tell(f"{self.down.id} ({self.down.kind}) is killed")
        await asyncio.gather(self.append(), self.end(self.down, KILL))
        self.tally["kills"] += 1
        return True

    async def start(self) -> bool:
        if self.down is None:
            return False
        self.tell(f"{self.down.id} starts")
        await asyncio.gather(self.append(), self.begin(self.down, self.down.kind))
        self.down = None
        await self.make_up()
        return True

    async def change_kind(self) -> bool:
        """Killed or stopped as one kind, started as the other."""
        if self.down is not None:
            return False
        bookie, how = self.dice.choice(self.cluster.bookies), self.dice.choice((KILL, signal.SIGTERM))
        self.tell(f"{bookie.id} ({bookie.kind}) changes its kind after {how.name}")
        await asyncio.gather(self.append(), self.end(bookie, how))
        await asyncio.gather(self.append(), self.begin(bookie, OTHER[bookie.kind]))
        await self.make_up()
        self.tally["swaps"] += 1
        return True

    async def begin(self, bookie: Bookie, kind: str) -> None:
        await asyncio.to_thread(bookie.start, kind)
        for client in self.clients:
            await client.sees(bookie.id)

    async def make_up(self) -> None:
        """Bring every writer's loss to its end before the next bookie is lost.

        A bookie that fails an entry behind its ack quorum is replaced when the next entry comes; until then an ensemble
        of 4 of 5 has none to spare.
        """
        for ledger in self.ledgers:
            if ledger.writer is not None and ledger.shape[0] == len(self.cluster.bookies) - 1:
                await self.append_to(ledger)

    async def end(self, bookie: Bookie, how: signal.Signals) -> None:
        await asyncio.sleep(self.dice.random() * 0.02)
        await asyncio.to_thread(bookie.stop, how)
        bookie.expire()

    def report(self, problem: object) -> str:
        return f"{problem}\n" + "\n".join(self.story)


AREA = "Random history"


@pytest.mark.timeout(0)
@verifies(AREA, "every client in turn, bookies killed and changing their kind: nothing is lost or changed")
async def test_random_history(
    new_cluster: Callable[..., Cluster],
    connect: Connect,
    pytestconfig: pytest.Config,
    report: Report,
    history_seed: int,
) -> None:
    """RT-27, RT-28."""
    rounds = pytestconfig.getoption("--rounds")
    cluster = new_cluster("java", "ours", "java", "ours", "ours")
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    clients = [await connect(cluster, name, alone=True) for name in NAMES]
    history = History(history_seed, cluster, clients)
    try:
        async with asyncio.timeout(120 + SECONDS_PER_ROUND * rounds):
            await history.run(rounds)
    except Exception as error:
        raise AssertionError(history.report(f"seed {history_seed}: {error!r}")) from error
    report.tell(AREA, f"seed {history_seed}", history.summary(rounds))
