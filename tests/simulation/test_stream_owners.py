"""Owners of a stream in the simulator: sessions end, answers get lost, machines die; the stream stays in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookkeeper.errors import LockError, MetadataError, NotOwnerError
from bookkeeper.metadata.memory import MemoryDriver
from bookkeeper.metadata.tree import RecordTree
from bookkeeper.runtime import Runtime
from bookkeeper.simulation.cluster import SimulatedCluster
from bookkeeper.simulation.world.world import World
from bookkeeper.streams.names import namespaces
from bookkeeper.streams.names.allocation import LedgerAllocator
from bookkeeper.streams.names.head import LogHead
from bookkeeper.streams.names.lock import LogLock
from bookkeeper.streams.names.logs import Logs
from bookkeeper.streams.names.segments import SegmentCodec, SegmentList

NAMESPACE = "/ns"
STREAM = "a"
SEGMENTS = 12
CLIENTS = ("c1", "c2", "c3")
SECONDS = 3600.0
"""Virtual seconds after which a story hangs."""

Segment = tuple[int, int, str, bool]
"""Number, ledger, owner, completed."""


def decode(data: bytes) -> Segment:
    number, ledger, owner, state = data.decode().split(";")
    return int(number), int(ledger), owner, state == "completed"


CODEC = SegmentCodec(decode, lambda s: s[0], lambda s: (s[0], s[3]))


class Bank:
    """All ledgers of the world: which exist, and which were deleted."""

    def __init__(self) -> None:
        self.last = 0
        self.deleted: set[int] = set()

    async def create(self) -> int:
        await asyncio.sleep(0.01)
        self.last += 1
        return self.last

    def id_of(self, ledger: int) -> int:
        return ledger

    async def close(self, ledger: int) -> None:
        """There are no writers here."""

    async def delete(self, ledger_id: int) -> None:
        await asyncio.sleep(0.01)
        self.deleted.add(ledger_id)


class NoLock(LogLock):
    """Lets everybody in."""

    async def acquire(self, timeout: float | None = 30.0) -> None:
        """Nothing."""

    def check(self) -> None:
        """Nothing."""


async def write_some(runtime: Runtime, tree: RecordTree, bank: Bank, name: str, lock: LogLock) -> None:
    """One term as the owner: finish what the last owner left, then a few segments of its own, until something fails."""
    await lock.acquire(timeout=None)
    try:
        records = await Logs(tree, NAMESPACE).load(STREAM)
        head, allocator = LogHead(tree, records), LedgerAllocator(tree, records, bank)
        segments = await SegmentList(tree, records.paths, CODEC).refresh()
        for number, ledger, owner, completed in segments:
            if not completed:
                await head.complete(number, b"%d;%d;%s;completed" % (number, ledger, owner.encode()), last_txid=number)
        for _ in range(3):
            lock.check()
            if head.max_segment >= SEGMENTS:
                return
            number = head.max_segment + 1
            ledger = await allocator.allocate()
            text = b"%d;%d;%s;" % (number, ledger, name.encode())
            try:
                allocator.taken(await head.start(number, text + b"inprogress", handover=allocator.offer()))
            except BaseException as error:
                allocator.refused(error)
                raise
            await asyncio.sleep(runtime.random("writer").uniform(0.0, 1.0))
            await head.complete(number, text + b"completed", last_txid=number)
    finally:
        await lock.release()


class Stage:
    """Clients on machines of their own, and the store, whose network may fail."""

    def __init__(self, seed: int, kind: type[LogLock]) -> None:
        self.kind = kind
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, 1)
        self.bank = Bank()
        self.terms = 0
        self.deaths = 0

    async def on(self, name: str, work: Callable[[Runtime, MemoryDriver], Awaitable[None]]) -> None:
        """Do something with a driver on a machine; again, if that dies meanwhile."""
        while True:
            runtime = self.cluster.client_runtime(name)
            driver = MemoryDriver(self.cluster.store, runtime, name=name, session_timeout_ms=2000)

            async def do(runtime: Runtime = runtime, driver: MemoryDriver = driver) -> None:
                await driver.open()
                try:
                    await work(runtime, driver)
                finally:
                    await driver.close()

            task = self.world.spawn_on(runtime.incarnation, do(), name)
            death = self.cluster.machine(name).death()
            await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.deaths += 1

    async def prepare(self, runtime: Runtime, driver: MemoryDriver) -> None:
        await driver.admin.init_new_cluster()
        await namespaces.bind(driver.tree, NAMESPACE, b"binding")
        await Logs(driver.tree, NAMESPACE).create(STREAM)

    def owner(self, name: str) -> Callable[[Runtime, MemoryDriver], Awaitable[None]]:
        """Takes its turns until the stream is long enough."""

        async def work(runtime: Runtime, driver: MemoryDriver) -> None:
            while True:
                try:
                    self.terms += 1
                    lock = self.kind(driver.tree, runtime, Logs(driver.tree, NAMESPACE).paths(STREAM).lock, name)
                    await write_some(runtime, driver.tree, self.bank, name, lock)
                    if (await Logs(driver.tree, NAMESPACE).load(STREAM)).max_segment.value >= SEGMENTS:
                        return
                except (NotOwnerError, LockError, MetadataError):
                    await asyncio.sleep(0.1)

        return work

    async def trouble(self) -> None:
        """Sessions end, answers get lost and machines die, until it is cancelled."""
        chance = self.world.stream("trouble")
        self.cluster.faults.lost_answer_chance = self.cluster.faults.lost_request_chance = 0.03
        while True:
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            if chance.random() < 0.2:
                self.cluster.machine(chance.choice(CLIENTS)).kill()
                continue
            session = chance.randrange(1, self.cluster.store._last_session + 1)
            self.cluster.store.expire(session)


@pytest.mark.parametrize("kind", [LogLock, NoLock])
@pytest.mark.parametrize("seed", range(12))
def test_whoever_owns_a_stream_it_stays_in_one_piece(seed: int, kind: type[LogLock]) -> None:
    """The lock is not what keeps it so: without one it takes longer, and that is all."""
    stage = Stage(seed, kind)

    async def story() -> None:
        await stage.on("c0", stage.prepare)
        trouble = asyncio.get_running_loop().create_task(stage.trouble())
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(stage.on(name, stage.owner(name)) for name in CLIENTS))
        trouble.cancel()
        stage.cluster.faults.lost_answer_chance = stage.cluster.faults.lost_request_chance = 0.0
        await stage.on("c0", check)

    async def check(runtime: Runtime, driver: MemoryDriver) -> None:
        records = await Logs(driver.tree, NAMESPACE).load(STREAM)
        segments = await SegmentList(driver.tree, records.paths, CODEC).refresh()
        assert [segment[0] for segment in segments] == list(range(1, SEGMENTS + 1))
        ledgers = [segment[1] for segment in segments]
        assert len(set(ledgers)) == SEGMENTS
        assert not stage.bank.deleted.intersection(ledgers), "a segment's ledger was deleted"
        assert stage.terms > len(CLIENTS)

    with stage.world:
        stage.world.run(story())
