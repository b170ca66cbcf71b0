"""A random history: each step is done by a client chosen at random, on bookies of both kinds, with faults between.

What the history knows of each ledger: which of its entries were acknowledged, and, once somebody has closed or
recovered it, where it ends. From then on every client must read exactly that.

    pytest tests/interop/test_history.py -m interop --rounds 1000 --seed 7
"""

from __future__ import annotations

import asyncio
import random
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
            f"{seen['recoveries']:,} recoveries, {seen['fenced']:,} writers fenced, "
            f"{seen['reads']:,} readings of a whole ledger, {seen['kills']} bookies killed and started again, "
            f"{seen['swaps']} killed and started as the other kind"
        )

    def tell(self, line: str) -> None:
        self.story.append(f"{len(self.story)}: {line}")

    async def run(self, rounds: int) -> None:
        steps = (
            (self.create, 4),
            (self.append, 12),
            (self.close, 2),
            (self.recover, 3),
            (self.read, 6),
            (self.peek, 4),
            (self.delete, 1),
            (self.kill, 1),
            (self.start, 2),
            (self.change_kind, 1),
        )
        weighted = [step for step, weight in steps for _ in range(weight)]
        for _ in range(rounds):
            await self.dice.choice(weighted)()
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

    async def create(self) -> None:
        client, digest = self.some_client(), self.dice.choice(DIGESTS)
        shape = self.dice.choice([each for each in SHAPES if self.down is None or each[0] < 4])
        e, qw, qa = shape
        writer = await client.create(e=e, qw=qw, qa=qa, digest=digest, password="h")
        self.ledgers.append(Ledger(writer.ledger, digest, shape, writer))
        self.tally["ledgers"] += 1
        self.tell(f"{client.name} creates {writer.ledger} {shape} {digest}")

    async def append(self) -> None:
        ledger = self.some_ledger(open_for_writing=True)
        if ledger is None:
            return
        assert ledger.writer is not None
        count, size = self.dice.choice((1, 5, 50, 300)), self.dice.choice((0, 1, 100, 2000))
        self.tell(f"{count} entries of {size} to {ledger.id}")
        ledger.sizes.extend([size] * count)
        try:
            last = await ledger.writer.fill(count, size)
        except Refused as error:
            assert ledger.end is not None or self.down is not None, self.report(error)  # noqa: PT017
            assert ledger.end is not None, self.report(error)  # noqa: PT017 - a lost bookie must not fail appends
            self.tell(f"refused: {error}")
            self.tally["fenced"] += 1
            ledger.writer = None
        else:
            assert ledger.end is None, self.report(f"ledger {ledger.id} took an append after its end")
            ledger.acked = last + 1
            self.tally["entries"] += count
            assert ledger.acked == len(ledger.sizes)

    async def close(self) -> None:
        ledger = self.some_ledger(open_for_writing=True)
        if ledger is None or ledger.end is not None:
            return
        assert ledger.writer is not None
        self.tell(f"close {ledger.id}")
        ledger.end = await ledger.writer.close() + 1
        ledger.writer = None
        assert ledger.end == ledger.acked, self.report(f"ledger {ledger.id} ends at {ledger.end}, not {ledger.acked}")

    async def recover(self) -> None:
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is None:
            return
        self.tell(f"{client.name} opens {ledger.id} with recovery")
        await self.verify(client, ledger)

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

    async def read(self) -> None:
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is not None and ledger.end is not None:
            self.tell(f"{client.name} reads {ledger.id}")
            await self.verify(client, ledger)

    async def peek(self) -> None:
        """Read an open ledger without recovery, up to its LAC."""
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is None or ledger.end is not None:
            return
        self.tell(f"{client.name} peeks into {ledger.id}")
        reader = await client.open(ledger.id, password="h", digest=ledger.digest, recovery=False)
        lac = await reader.lac()
        assert lac < ledger.acked, self.report(f"LAC {lac} of {ledger.id}")
        if lac >= 0:
            assert await reader.read(0, lac) == expected(ledger.sizes[: lac + 1]), self.report(f"peek {ledger.id}")

    async def delete(self) -> None:
        ledger, client = self.some_ledger(), self.some_client()
        if ledger is None or ledger.end is None:
            return
        self.tell(f"{client.name} deletes {ledger.id}")
        await client.delete(ledger.id)
        self.ledgers.remove(ledger)
        with pytest.raises(Refused, match=r"^-25:"):
            await self.some_client().open(ledger.id, password="h", digest=ledger.digest)

    # --- faults: one bookie at a time ---

    async def kill(self) -> None:
        if self.down is None:
            self.down = self.dice.choice(self.cluster.bookies)
            self.tell(f"{self.down.id} ({self.down.kind}) is killed")
            await asyncio.to_thread(self.down.kill)
            self.tally["kills"] += 1

    async def start(self) -> None:
        if self.down is not None:
            self.tell(f"{self.down.id} starts")
            await asyncio.to_thread(self.down.start)
            self.down = None

    async def change_kind(self) -> None:
        """Killed as one kind, started as the other."""
        if self.down is None:
            bookie = self.dice.choice(self.cluster.bookies)
            self.tell(f"{bookie.id} ({bookie.kind}) changes its kind")
            await asyncio.to_thread(bookie.stop, KILL)
            bookie.expire()
            await asyncio.to_thread(bookie.start, OTHER[bookie.kind])
            self.tally["swaps"] += 1

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
    rounds = pytestconfig.getoption("--rounds")
    cluster = new_cluster("java", "ours", "java", "ours", "ours")
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    clients = [await connect(cluster, name) for name in NAMES]
    history = History(history_seed, cluster, clients)
    try:
        async with asyncio.timeout(120 + SECONDS_PER_ROUND * rounds):
            await history.run(rounds)
    except Exception as error:
        raise AssertionError(history.report(f"seed {history_seed}: {error!r}")) from error
    report.tell(AREA, f"seed {history_seed}", history.summary(rounds))
