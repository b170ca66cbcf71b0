"""What users of the cluster do: write, recover, follow, browse, delete. They write down what they see.

Writers make three kinds of ledgers:

    plain     appends in bursts; sometimes waits for each
    advanced  chooses the ids itself, sends each burst shuffled
    deferred  DEFERRED_SYNC; forces now and then
"""

from __future__ import annotations

import asyncio
import functools
import random

from ...client.client import BookKeeper
from ...client.reader import LedgerReader
from ...client.writer import LedgerAdvWriter, LedgerWriter
from ...errors import BKError, NoSuchEntryError, NoSuchLedgerError
from ...types import WriteFlag
from ..cluster import SimulatedCluster
from ..history import History, LedgerHistory, Viewer, Violation, payload
from ..swarm import Shape

PASSWORD = b"simulated"
OPERATION_SECONDS = 60.0
"""No operation may take longer, whatever happens (LV-2)."""


def check_writer(writer: LedgerWriter | LedgerAdvWriter) -> None:
    """The relations of a writer's window and ensemble hold."""
    try:
        writer._keeper.check()
    except AssertionError as error:
        raise Violation(f"ledger {writer.id}: {error}") from error


class Hangs(Violation):
    """An operation did not end."""


def unexpected(what: str, error: BaseException | None) -> Violation:
    """Something failed in a calm run."""
    return Violation(f"{what}: {error!r}, and nothing had broken")


class limit:  # noqa: N801 - used like a function
    """Ends what takes longer than `OPERATION_SECONDS`, which is a violation."""

    def __init__(self, what: str, operations: int = 1) -> None:
        """`operations`: how many it is, one after the other."""
        self._what = what
        self._seconds = operations * OPERATION_SECONDS
        self._timeout = asyncio.timeout(self._seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)  # type: ignore[arg-type]
        except TimeoutError:
            raise Hangs(f"{self._what} takes more than {self._seconds:.0f} seconds") from error


class Programs:
    """The programs of one run, which share the ledgers."""

    def __init__(self, cluster: SimulatedCluster, history: History, shape: Shape, *, calm: bool = False) -> None:
        """`calm`: nothing may fail."""
        self.calm = calm
        self.cluster = cluster
        self.history = history
        self.shape = shape
        self.stopped = False
        self._sent = 0
        self._begun = cluster.world.loop.time()

    def sometimes(self, what: str) -> None:
        self.cluster.world.sometimes(what)

    # --- writers ---

    def _may_send(self) -> bool:
        """Whether there is work for writers now: it is spread evenly over the run."""
        elapsed = self.cluster.world.loop.time() - self._begun
        return self._sent <= self.shape.total * elapsed / self.shape.seconds

    async def write(self, bk: BookKeeper, dice: random.Random) -> None:
        """Make a ledger, fill it, close it or not."""
        shape = self.shape
        if not self._may_send():
            await asyncio.sleep(0.2)
            return
        flavour = dice.choice(shape.flavours)
        if flavour == "deferred" and bk.context.bookies.v2_only:
            flavour = "plain"
        deferred = flavour == "deferred"
        create = bk.create_ledger_adv if flavour == "advanced" else bk.create_ledger
        async with limit("creating a ledger"):
            writer: LedgerWriter | LedgerAdvWriter = await create(
                ensemble_size=shape.ensemble_size,
                write_quorum=shape.write_quorum,
                ack_quorum=shape.ack_quorum,
                password=PASSWORD,
                digest=shape.digest,
                write_flags=WriteFlag.DEFERRED_SYNC if deferred else WriteFlag.NONE,
            )
        ledger = self.history.created(
            writer.id,
            shape.write_quorum,
            shape.ack_quorum,
            PASSWORD,
            deferred=deferred,
            advanced=flavour == "advanced",
        )
        self.cluster.world.note(f"ledger {writer.id}", f"created, {flavour}, on {writer.metadata.last_ensemble[1]}")
        count = dice.randint(0, 2 * shape.entries)
        futures: dict[int, asyncio.Future[int]] = {}
        try:
            while ledger.sent < count and not self.stopped and not writer.closed:
                if self._may_send():
                    burst = dice.randint(1, 200 if self.calm else 20)  # more than a narrow link takes in a time-out
                    await self._send(writer, ledger, futures, min(count - ledger.sent, burst), dice)
                if dice.random() < 0.2:
                    await self._wait(futures)
                if deferred and dice.random() < 0.3:
                    await self._force(writer, ledger)
                await asyncio.sleep(dice.expovariate(1 / shape.pause))
        finally:
            await self._finish(writer, ledger, dice)
            await self._wait(futures)

    async def _send(
        self,
        writer: LedgerWriter | LedgerAdvWriter,
        ledger: LedgerHistory,
        futures: dict[int, asyncio.Future[int]],
        count: int,
        dice: random.Random,
    ) -> None:
        """Send some entries, without waiting for them. They are acknowledged one after the other, in this order."""
        first = ledger.sent
        ids = list(range(first, first + count))
        if isinstance(writer, LedgerAdvWriter):
            dice.shuffle(ids)
        for entry_id in ids:
            data = payload(ledger.ledger_id, entry_id)
            # Whatever becomes of it: from here on it may exist.
            ledger.sent = max(ledger.sent, entry_id + 1)
            self._sent += 1
            async with limit("sending an entry"):
                future: asyncio.Future[int]
                if isinstance(writer, LedgerAdvWriter) and self.calm:
                    # All at once: what fills a gap must get through, however many others wait.
                    future = asyncio.ensure_future(writer.write(entry_id, data))
                elif isinstance(writer, LedgerAdvWriter):
                    # Not to be held back at the gate with a gap open, which no other task would fill.
                    future = writer.write_nowait(entry_id, data)
                else:
                    future = await writer.append_soon(data)
            futures[entry_id] = future
            future.add_done_callback(functools.partial(self._answered, ledger, entry_id))
        check_writer(writer)

    def _answered(self, ledger: LedgerHistory, entry_id: int, future: asyncio.Future[int]) -> None:
        """An append has ended. A violation raised here reaches the run through the loop."""
        if not future.cancelled() and future.exception() is None:
            if future.result() != entry_id:
                raise Violation(f"ledger {ledger.ledger_id}: entry {entry_id} got the id {future.result()}")
            self.history.acknowledged(ledger.ledger_id, entry_id)
        elif self.calm:
            raise unexpected(f"ledger {ledger.ledger_id}: append of entry {entry_id}", future.exception())

    async def _wait(self, futures: dict[int, asyncio.Future[int]]) -> None:
        """Until everything sent has been answered, this way or that."""
        if futures:
            async with limit("an append"):
                await asyncio.wait(futures.values())
            futures.clear()

    async def _force(self, writer: LedgerWriter | LedgerAdvWriter, ledger: LedgerHistory) -> None:
        acked = ledger.acked
        async with limit("a force"):
            await writer.force()
        self.history.was_forced(ledger.ledger_id, acked)

    async def _finish(self, writer: LedgerWriter | LedgerAdvWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        async with limit("closing a ledger"):
            try:
                await writer.close(drain=dice.random() < 0.5 or self.calm)
            except BKError as error:
                if self.calm:
                    raise unexpected(f"ledger {ledger.ledger_id}: close", error) from error
                self.sometimes(f"close: {type(error).__name__}")
                return
        check_writer(writer)
        record = writer.metadata
        self.history.saw_closed(ledger.ledger_id, record.last_entry_id, record.length)

    # --- readers ---

    def _some_ledger(self, dice: random.Random) -> LedgerHistory | None:
        """A ledger that exists; mostly a recent one, rather an open one."""
        candidates = [ledger for ledger in self.history.ledgers.values() if not ledger.delete_started]
        if dice.random() < 0.6:
            candidates = [ledger for ledger in candidates if ledger.closed is None] or candidates
        if not candidates:
            return None
        return dice.choice(candidates[-3:] if dice.random() < 0.7 else candidates)

    async def recover_and_read(self, bk: BookKeeper, dice: random.Random) -> None:
        """Open with recovery, which ends the ledger's writer, and read."""
        await asyncio.sleep(dice.random() * min(2.0, 20 * self.shape.pause))
        ledger = self._some_ledger(dice)
        if ledger is not None:
            await read_whole(bk, self.history, ledger)

    async def _open_some(
        self, bk: BookKeeper, dice: random.Random
    ) -> tuple[LedgerReader, LedgerHistory, Viewer] | None:
        """Some ledger, opened without recovery after a while; None if there is none."""
        await asyncio.sleep(dice.random() * 2)
        ledger = self._some_ledger(dice)
        if ledger is None:
            return None
        async with limit("opening without recovery"):
            reader = await peek(bk, ledger.ledger_id)
        return reader, ledger, Viewer(self.history, ledger)

    async def follow(self, bk: BookKeeper, dice: random.Random) -> None:
        """Open without recovery and follow for a while."""
        opened = await self._open_some(bk, dice)
        if opened is None:
            return
        reader, _, viewer = opened
        viewer.start_sequence(0)
        try:
            async with asyncio.timeout(1 + dice.random() * 6):
                async for entry in reader.tail(0, parallel=dice.random() < 0.3):
                    viewer.delivered(entry.entry_id, entry.data, reader.last_add_confirmed)
            self.sometimes("follower: came to the end of a closed ledger")
        except TimeoutError:
            self.sometimes("follower: stopped following")
        finally:
            await reader.close()

    async def browse(self, bk: BookKeeper, dice: random.Random) -> None:
        """Open without recovery; ask for LACs and entries here and there."""
        opened = await self._open_some(bk, dice)
        if opened is None:
            return
        reader, ledger, viewer = opened
        async with reader:
            for _ in range(dice.randint(1, 10)):
                async with limit("browsing"):
                    try:
                        await self._look(reader, ledger, viewer, dice)
                    except NoSuchLedgerError:
                        if not self.calm or ledger.acked >= 0:
                            raise
                await asyncio.sleep(dice.random() * 0.5)

    async def _look(self, reader: LedgerReader, ledger: LedgerHistory, viewer: Viewer, dice: random.Random) -> None:
        match dice.randrange(6):
            case 0:
                viewer.lac(await reader.read_last_add_confirmed())
            case 1:
                viewer.lac(await reader.try_read_last_add_confirmed())
            case 2:
                viewer.lac(await reader.read_explicit_last_add_confirmed())
            case 3:
                found = await reader.read_last_add_confirmed_and_entry(reader.last_add_confirmed + 1, poll_timeout=1.0)
                viewer.lac(found.last_add_confirmed)
                if found.entry is not None:
                    viewer.start_sequence(found.entry.entry_id)
                    viewer.delivered(found.entry.entry_id, found.entry.data, reader.last_add_confirmed)
            case 4:
                first = dice.randint(0, max(0, ledger.sent))
                try:
                    found_beyond = await reader.read_unconfirmed(first, first + 3)
                except (NoSuchEntryError, NoSuchLedgerError):  # of a bookie that has none of its entries yet
                    if not self.calm:
                        raise
                    found_beyond = []  # nothing is promised there
                for entry in found_beyond:
                    self.history.content(ledger.ledger_id, entry.entry_id, entry.data)
            case _:
                lac = reader.last_add_confirmed
                if lac >= 0:
                    first = dice.randint(0, lac)
                    viewer.start_sequence(first)
                    for entry in await reader.batch_read(first, max_count=dice.randint(1, 30)):
                        viewer.delivered(entry.entry_id, entry.data, reader.last_add_confirmed)

    async def delete(self, bk: BookKeeper, dice: random.Random) -> None:
        """Delete a ledger, whatever state it is in."""
        await asyncio.sleep(1 + dice.random() * 4)
        ledger = self._some_ledger(dice)
        if ledger is None:
            return
        ledger.delete_started = True
        self.cluster.world.note(f"ledger {ledger.ledger_id}", "is being deleted")
        async with limit("deleting a ledger"):
            await bk.delete_ledger(ledger.ledger_id)
        ledger.deleted = True


async def peek(bk: BookKeeper, ledger_id: int) -> LedgerReader:
    """Open without recovery."""
    return await bk.open_ledger(ledger_id, password=PASSWORD)


async def recover(bk: BookKeeper, ledger_id: int) -> LedgerReader:
    """Open with recovery."""
    return await bk.recover_ledger(ledger_id, password=PASSWORD)


async def read_whole(bk: BookKeeper, history: History, ledger: LedgerHistory) -> None:
    """Open with recovery and read every entry, checking all that is promised."""
    safe_before = ledger.safe
    async with limit("opening with recovery"):
        reader = await recover(bk, ledger.ledger_id)
    viewer = Viewer(history, ledger)
    async with reader:
        last = reader.last_add_confirmed
        if not ledger.delete_started:
            history.opened(ledger.ledger_id, safe_before, last, reader.metadata.length)
        viewer.start_sequence(0)
        count = 0
        async with limit("reading a ledger"):
            async for entry in reader.entries():
                viewer.delivered(entry.entry_id, entry.data, last)
                count += 1
        if count != last + 1:
            history.broken(f"ledger {ledger.ledger_id}: {count} entries read, the last one is {last}")
