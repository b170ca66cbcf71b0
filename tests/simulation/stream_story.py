"""A stream that is published to, written, truncated and read at once, while machines die (spec streams §15.7, §10).

Two publishers with a sink each publish epoch after epoch: who dies is followed by another one, which does not know
whether the last epoch was published, and does it again. Two writers append whenever one of them gets the stream, one
record after the other or many without waiting. A reader follows from the first record to the last; what it has read is
truncated and deleted behind it. Transactions are small, so some publishes are intents.

In a *hard* story sessions end besides, requests to the store and its answers get lost, machines are cut off from the
store for seconds, and bookies die and come back.

At the end the reader must have seen each record that was acknowledged or published once, in the order of who made it,
without a gap in sequence ids; what is left of the stream must be the end of what it has seen; and no ledger may be left
that is no segment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from bookkeeper.client.client import BookKeeper
from bookkeeper.client.writer import LedgerAdvWriter, LedgerWriter
from bookkeeper.errors import BookKeeperError, StreamStateError
from bookkeeper.metadata.tree import TransactionLimits
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import EndOfStreamError, TruncatedError
from bookkeeper.streams.ledgers import Replication, StreamLedgers
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.publishing.marker import PublishKey
from bookkeeper.streams.reading.reader import EARLIEST, Record
from bookkeeper.streams.writer import StreamWriter
from tests.simulation.scenario import Died, Scenario, play
from tests.support.dying_tree import DyingTree, Life

PATH = "/namespace"
DEATHS = 6
"""Of each, at most."""
SECONDS = 3600.0

POLICY = WritePolicy(buffer_bytes=200, roll_records=15)
EPOCHS = 6
BATCHES = 30
SMALL = TransactionLimits(operations=8)
"""What one segment needs; a publish of three is an intent."""


class MortalLedgers(StreamLedgers):
    """Their writers may die with the machine, and nobody closes them then."""

    def __init__(self, scenario: Scenario, client: BookKeeper) -> None:
        super().__init__(client, Replication())
        self._scenario = scenario

    async def create(self) -> LedgerWriter:
        writer = await super().create()
        self._scenario.keep(writer)
        return writer

    async def create_as(self, ledger_id: int) -> LedgerAdvWriter:
        writer = await super().create_as(ledger_id)
        self._scenario._writers.append(writer)  # type: ignore[arg-type]
        return writer


class SuddenDeath(Life):
    """A machine may go down just before or after a change of the metadata: in between is where mistakes hide."""

    def __init__(self, story: Story, machine: str) -> None:
        super().__init__(0, applied=True)
        self._story = story
        self._machine = machine

    async def change(self, work: Callable[[], Awaitable[object]]) -> object:
        drawn = self._story.chance.random()
        if drawn < 0.01:
            await self._die()
        result = await work()
        if drawn > (0.9 if self._machine.startswith("p") else 0.97):  # publishers make the fewest changes
            await self._die()
        return result

    async def _die(self) -> None:
        self._story.s.cluster.machine(self._machine).power_off()
        await asyncio.sleep(SECONDS)  # nothing runs there any more


class Story:
    """What is known of the stream by those who use it."""

    def __init__(self, s: Scenario, *, calm: bool, hard: bool = False) -> None:
        self.s = s
        self.calm = calm
        self.hard = hard
        self.batches = 0
        self.limits = SMALL
        self.loss = 0.01
        """Of requests to the store, and of its answers."""
        self.machines: list[str] = []
        self.mortal: set[str] = set()
        self.chance = s.world.stream("story")
        self.acknowledged: list[bytes] = []
        """What the writer was told to be part of the stream."""
        self.published: list[bytes] = []
        self.tried: set[bytes] = set()
        """What may be part of it."""
        self.seen: list[Record] = []
        """By the reader."""
        self.cut = EARLIEST
        """Where the stream was truncated last."""

    async def namespace(self, machine: str, *, mortal: bool = False) -> Namespace:
        client = await self._connect(machine)
        self.machines.append(machine)
        tree = client.context.driver.tree
        tree.limits = self.limits
        if mortal:
            tree = DyingTree(tree, SuddenDeath(self, machine))
            self.mortal.add(machine)
        namespace = Namespace(client, tree, PATH, None, machine, AsyncExitStack())
        namespace._ledgers = MortalLedgers(self.s, client)
        return namespace

    async def _connect(self, machine: str) -> BookKeeper:
        """A program that cannot reach the store ends with an error, and is started again."""
        while True:
            try:
                return await self.s.connect(machine)
            except BookKeeperError:
                assert not self.calm, "nothing failed, but a client cannot connect"
                await asyncio.sleep(0.1)

    async def lives(self, name: str, work: Callable[[Namespace], Awaitable[None]]) -> None:
        """Do something on one machine after the other, until one lives long enough."""
        life = 0
        while True:
            machine = f"{name}.{life}"
            mortal = not self.calm and life < DEATHS
            namespace = await self.namespace(machine, mortal=mortal)
            task = self.s.begin(machine, work(namespace))
            if mortal:
                delay = self.chance.uniform(0.02, 2.0)
                self.s.world.loop.call_later(delay, self.s.cluster.machine(machine).power_off)
            try:
                return await self.s.wait(task)
            except Died:
                life += 1

    # --- who takes part ---

    async def publish(self, sink: str, namespace: Namespace) -> None:
        """From the epoch on that was not heard to be published."""
        while (epoch := sum(1 for each in self.published if each.startswith(f"{sink} ".encode())) // 4) < EPOCHS:
            records = [f"{sink} {epoch} {n}".encode() for n in range(4)]
            self.tried.update(records)
            try:
                staging = await namespace.stage(sink, epoch)
                drafts = []
                for payloads in [records[:1], records[1:3], records[3:]] if epoch % 2 else [records]:
                    async with await staging.open_segment("a", POLICY) as segment:
                        await segment.append_batch(payloads)
                        drafts.append(await segment.finish())
                key = PublishKey(sink, epoch, f"print {epoch}")
                await namespace.publish_segments({"a": drafts}, key, staging=staging, lock_timeout=None)
            except BookKeeperError:
                assert not self.calm, "nothing failed, but a publisher does"
                await asyncio.sleep(0.1)
                continue
            self.published += records

    async def write(self, namespace: Namespace) -> None:
        while len(self.acknowledged) < BATCHES * 3:
            try:
                async with namespace.open_writer("a", policy=POLICY, lock_timeout=None) as writer:
                    for _ in range(3):
                        self.batches += 1
                        records = [f"writer {self.batches} {i}".encode() for i in range(3)]
                        self.tried.update(records)
                        if self.chance.random() < 0.5:
                            await writer.append_batch(records)
                            self.acknowledged += records
                        else:
                            await self.pipeline(writer, records)
                        if namespace._client_id in self.mortal and self.chance.random() < 0.05:
                            self.s.cluster.machine(namespace._client_id).power_off()  # it has just been told
                        await asyncio.sleep(self.chance.uniform(0.0, 0.05))
            except BookKeeperError:
                assert not self.calm, "nothing failed, but the writer does"
            await asyncio.sleep(self.chance.uniform(0.0, 0.1))

    async def pipeline(self, writer: StreamWriter, records: list[bytes]) -> None:
        futures = [writer.append_nowait(record) for record in records]
        for record, future in zip(records, futures, strict=True):
            await future
            self.acknowledged.append(record)

    async def follow(self, namespace: Namespace) -> None:
        start: DLSN = EARLIEST
        while True:
            try:
                async with namespace.open_reader("a", start) as reader:
                    async for record in reader:
                        self.seen.append(record)
                        start = record.position.next()
            except EndOfStreamError:
                return
            except (TruncatedError, StreamStateError):
                raise
            except BookKeeperError:
                assert self.hard, "nothing failed, but the reader does"
                await asyncio.sleep(0.1)

    async def truncate(self, namespace: Namespace) -> None:
        """What was read, again and again, until cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.05, 0.3))
            if not self.seen:
                continue
            self.cut = self.seen[max(len(self.seen) - 20, 0)].position
            try:
                await namespace.truncate("a", self.cut, delete=self.chance.random() < 0.5)
            except BookKeeperError:
                assert self.hard, "nothing failed, but truncating does"

    async def trouble(self) -> None:
        """Until cancelled. One bookie is down at a time: three are needed for a segment."""
        cluster = self.s.cluster
        cluster.faults.lost_answer_chance = cluster.faults.lost_request_chance = self.loss
        while True:
            await asyncio.sleep(self.chance.uniform(0.2, 1.0))
            drawn = self.chance.random()
            if drawn < 0.4:
                cluster.store.expire(self.chance.randrange(1, cluster.store._last_session + 1))
            elif drawn < 0.7:
                machine = self.chance.choice(self.machines)
                self.s.cut(machine, "store")
                await asyncio.sleep(self.chance.uniform(0.1, 4.0))
                self.s.cut(machine, "store", False)
            else:
                bookie = self.chance.choice(cluster.names)
                cluster.machine(bookie).power_off()
                await asyncio.sleep(self.chance.uniform(0.1, 2.0))
                while not await cluster.start_bookie(bookie):  # requests are lost: one may not get to register in time
                    assert self.hard, f"{bookie} does not start"

    # --- all together ---

    async def play(self) -> None:
        s = self.s
        main = await self.namespace("m")
        await s.on("m", main._tree.make(PATH))
        await s.on("m", main.create("a"))
        reading = s.begin("r", self.follow(await self.namespace("r")))
        cutting = s.begin("t", self.truncate(await self.namespace("t")))
        trouble = asyncio.ensure_future(self.trouble()) if self.hard else None
        work = [
            self.lives("p1", lambda namespace: self.publish("p1", namespace)),
            self.lives("p2", lambda namespace: self.publish("p2", namespace)),
            self.lives("w1", self.write),
            self.lives("w2", self.write),
        ]
        await asyncio.gather(*map(asyncio.ensure_future, work))
        if trouble is not None:
            await self.peace(trouble)
        await s.on("m", main.collect_staged(lost_after=-1, lock_timeout=None))
        cutting.cancel()
        await s.on("m", main.truncate("a", EARLIEST, delete=True))  # finishes what was interrupted
        await s.on("m", main.seal("a", lock_timeout=None))
        await s.wait(reading)
        await s.on("m", self.check(main))

    async def peace(self, trouble: asyncio.Task[None]) -> None:
        """Nothing fails any more, and whoever was cut off is back."""
        trouble.cancel()
        await asyncio.wait([trouble])
        if not trouble.cancelled():
            trouble.result()
        cluster = self.s.cluster
        cluster.faults.lost_answer_chance = cluster.faults.lost_request_chance = 0.0
        for machine in self.machines:
            self.s.cut(machine, "store", False)
        for bookie in cluster.names:
            if not cluster.is_up(bookie):
                await self.s.start(bookie)
        await asyncio.sleep(30.0)  # all sessions that were lost are noticed, and begun anew

    async def check(self, namespace: Namespace) -> None:
        payloads = [record.payload for record in self.seen]
        assert [record.sequence_id for record in self.seen] == list(range(len(self.seen))), "a gap"
        positions = [record.position for record in self.seen]
        assert positions == sorted(set(positions)), "out of order"
        txids = [record.txid for record in self.seen]
        assert txids == sorted(txids), "transaction ids fall"
        counts = Counter(payloads)
        assert not [payload for payload in payloads if counts[payload] > 1], "a record is there twice"
        assert {*self.acknowledged, *self.published} <= set(payloads) <= self.tried
        for sink in ("p1", "p2"):
            own = [payload for payload in payloads if payload.startswith(f"{sink} ".encode())]
            assert own == [f"{sink} {epoch} {n}".encode() for epoch in range(EPOCHS) for n in range(4)]
        left: list[bytes] = []
        try:
            async with namespace.open_reader("a", tail=False) as reader:
                async for batch in reader.batches():
                    left += batch.payloads()
        except EndOfStreamError:
            pass
        assert left
        assert left == payloads[-len(left) :], "what is left is not the end of what was read"
        kept = [record.payload for record in self.seen if record.position >= self.cut]
        assert left[-len(kept) :] == kept, "more is gone than was truncated"
        segments = (await namespace.info("a")).segments
        for segment in segments:
            ledger = await namespace._client.get_ledger_metadata(segment.ledger_id)
            assert ledger.closed
            assert segment.last_entry <= ledger.last_entry_id, "a segment ends behind its ledger"
        numbers = [segment.number for segment in segments]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def tell(seed: int, *, calm: bool = False, hard: bool = False) -> None:
    """Play the story; raises what goes wrong."""

    async def story(s: Scenario) -> None:
        await Story(s, calm=calm, hard=hard).play()

    play(story, bookies=4, seed=seed)
