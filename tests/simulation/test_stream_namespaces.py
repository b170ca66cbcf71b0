"""Streams by name whose writers and bookies die and whose sessions end, in virtual time (spec safety H10)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import pytest

from bookkeeper.client.client import BookKeeper
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.errors import BookKeeperError
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.ledgers import Replication, StreamLedgers
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.policy import WritePolicy
from tests.simulation.scenario import Died, Scenario, play

PATH = "/namespace"
POLICY = WritePolicy(buffer_bytes=200, roll_records=40)


class MortalLedgers(StreamLedgers):
    """Their writers may die with the machine, and nobody closes them then."""

    def __init__(self, scenario: Scenario, client: BookKeeper) -> None:
        super().__init__(client, Replication())
        self._scenario = scenario

    async def create(self) -> LedgerWriter:
        writer = await super().create()
        self._scenario.keep(writer)
        return writer


async def namespace_of(s: Scenario, name: str) -> Namespace:
    client = await s.connect(name)
    namespace = Namespace(client, client.context.driver.tree, PATH, None, name, AsyncExitStack())
    namespace._ledgers = MortalLedgers(s, client)
    return namespace


async def append(namespace: Namespace, name: str, acknowledged: dict[DLSN, bytes]) -> None:
    """Batches, until the machine dies; as often as the stream is lost, it is taken back."""
    numbers = count()
    while True:
        try:
            async with namespace.open_writer("a", policy=POLICY, lock_timeout=None) as writer:
                while True:
                    n = next(numbers)
                    payloads = [b"%s %d %d" % (name.encode(), n, i) for i in range(5)]
                    positions = await writer.append_batch(payloads, as_sets=n % 3 == 0)
                    acknowledged.update(zip(positions, payloads, strict=True))
        except BookKeeperError:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(8))
def test_what_was_acknowledged_is_read_in_order_whoever_died(seed: int) -> None:
    async def story(s: Scenario) -> None:
        acknowledged = dict[DLSN, bytes]()
        chance = s.world.stream("story")
        first = await namespace_of(s, "r")
        await s.on("r", first._tree.make(PATH))
        await s.on("r", first.create("a"))
        for owner in range(3):
            name = f"w{owner}"
            work = s.begin(name, append(await namespace_of(s, name), name, acknowledged))
            before = len(acknowledged)
            while len(acknowledged) < before + 50:
                await asyncio.sleep(0.05)
            for session in range(1, s.cluster.store._last_session + 1) if owner == 0 else ():
                s.cluster.store.expire(session)
            await asyncio.sleep(chance.random())
            if owner == 1:
                s.cluster.machine("b2").power_off()
            s.cluster.machine(name).power_off()
            with pytest.raises(Died):
                await s.wait(work)

        async def last() -> list[tuple[DLSN, bytes]]:
            async with first.open_writer("a", policy=POLICY, lock_timeout=None) as writer:
                await writer.append(b"last")
            async with first.open_reader("a", tail=False) as reader:
                return [(record.position, record.payload) async for record in reader]

        found = await s.on("r", last())
        assert [position for position, _ in found] == sorted({position for position, _ in found})
        assert acknowledged.items() <= dict(found).items()
        by_owner = [(payload.split()[0], *map(int, payload.split()[1:])) for _, payload in found[:-1]]
        assert by_owner == sorted(by_owner)
        assert found[-1][1] == b"last"

    play(story, bookies=4, seed=seed)


def test_a_store_that_is_gone_for_a_minute_costs_the_writer_and_no_record() -> None:
    """What fits into the open segment is still appended; what needs a new one fails, and the next writer goes on."""

    async def story(s: Scenario) -> None:
        reader, owner = await namespace_of(s, "r"), await namespace_of(s, "w")
        await s.on("r", reader._tree.make(PATH))
        await s.on("r", reader.create("a"))
        acknowledged: list[bytes] = []
        policy = WritePolicy(buffer_bytes=0, roll_records=10)
        found: list[bytes] = []

        async def follow() -> None:
            async with reader.open_reader("a") as records:
                async for record in records:
                    found.append(record.payload)
                    if record.payload == b"last":
                        return

        async def write(first: int, count: int) -> None:
            async with owner.open_writer("a", policy=policy, lock_timeout=None) as writer:
                for n in range(first, first + count):
                    await writer.append(b"%d" % n)
                    acknowledged.append(b"%d" % n)
                    if n == 2:
                        for machine in ("w", "r"):
                            s.cut(machine, "store")

        following = s.begin("r", follow())
        writing = s.begin("w", write(0, 100))
        with pytest.raises(BookKeeperError):
            await s.wait(writing)
        assert len(acknowledged) >= 9  # the segment had room for so many
        await asyncio.sleep(60)
        for machine in ("w", "r"):
            s.cut(machine, "store", False)
        await s.on("w", write(1000, 25))
        acknowledged.append(b"last")

        async def end() -> None:
            async with owner.open_writer("a", policy=policy, lock_timeout=None) as writer:
                await writer.append(b"last")

        await s.on("w", end())
        await s.wait(following)
        assert [payload for payload in found if payload in set(acknowledged)] == acknowledged
        assert len(set(found)) == len(found) <= len(acknowledged) + 1  # one append failed, and may be there

    play(story, bookies=4, seed=1)
