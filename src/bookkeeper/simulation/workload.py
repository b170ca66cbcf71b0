"""Programs that use the simulated cluster: writers, readers, followers, deleters. They write down what they see.

Each runs on a client machine of its own and starts anew whenever its machine has been killed. Errors are normal, a
broken promise is not: `History` raises at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..client.client import BookKeeper
from ..client.reader import LedgerReader
from ..client.writer import LedgerWriter
from ..errors import BKError, BookKeeperError
from ..types import DigestType
from .cluster import SimulatedCluster
from .disk import MachineCrashed
from .history import History, LedgerHistory, Violation, payload
from .world import SimulatedRuntime

PASSWORD = b"simulated"
OPERATION_SECONDS = 60.0
"""No operation may take longer, whatever happens (LV-2)."""


@dataclass(frozen=True)
class Shape:
    """What ledgers of a run look like."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest: DigestType
    entries: int
    """About how many entries a ledger gets."""
    pause: float
    """Average seconds between bursts of appends."""


class Workload:
    """All programs of one run."""

    def __init__(
        self, cluster: SimulatedCluster, history: History, shape: Shape, report: Callable[[BaseException], None]
    ) -> None:
        self.cluster = cluster
        self.history = history
        self.shape = shape
        self._report = report
        self.stopped = False

    def start(self, writers: int, readers: int, followers: int, deleters: int) -> list[str]:
        """Start programs on machines `w1`, `r1`, ...; returns the machines' names."""
        kinds: list[tuple[str, int, Callable[[BookKeeper, random.Random], Coroutine[Any, Any, None]]]] = [
            ("w", writers, self._write),
            ("r", readers, self._read),
            ("f", followers, self._follow),
            ("d", deleters, self._delete),
        ]
        names = []
        for prefix, count, program in kinds:
            for number in range(1, count + 1):
                names.append(f"{prefix}{number}")
                self.launch(names[-1], program)
        return names

    def launch(self, name: str, program: Callable[[BookKeeper, random.Random], Coroutine[Any, Any, None]]) -> None:
        """Run a program on a machine until the workload is stopped; after the machine was killed, again."""
        runtime = self.cluster.client_runtime(name)
        dice = runtime.random("workload")
        self.cluster.world.spawn_on(runtime.incarnation, self._loop(runtime, program, dice), "program")
        self.cluster.machine(name).death().add_done_callback(lambda _: self._relaunch(name, program))

    def _relaunch(self, name: str, program: Callable[[BookKeeper, random.Random], Coroutine[Any, Any, None]]) -> None:
        if not self.stopped:
            self.cluster.world.loop.call_later(1.0, self._launch_again, name, program)

    def _launch_again(
        self, name: str, program: Callable[[BookKeeper, random.Random], Coroutine[Any, Any, None]]
    ) -> None:
        if not self.stopped:
            self.launch(name, program)

    async def _loop(
        self,
        runtime: SimulatedRuntime,
        program: Callable[[BookKeeper, random.Random], Coroutine[Any, Any, None]],
        dice: random.Random,
    ) -> None:
        while not self.stopped:
            try:
                async with self.cluster.client(runtime, **self._client_settings(dice)) as bk:
                    for _ in range(dice.randint(1, 4)):
                        if not self.stopped:
                            await program(bk, dice)
            except BookKeeperError as error:
                self.cluster.world.sometimes(f"{runtime.hostname()[0]}: {type(error).__name__}")
            except BaseException as error:
                if not isinstance(error, asyncio.CancelledError | GeneratorExit | MachineCrashed):
                    self._report(error)
                raise
            await asyncio.sleep(dice.random())

    def _client_settings(self, dice: random.Random) -> dict[str, Any]:
        """Knobs that must not change what is promised."""
        return {
            "protocol": dice.choice(("auto", "v2", "v3")),
            "addEntryTimeoutSec": dice.choice((1, 2, 5)),
            "readEntryTimeoutSec": dice.choice((1, 2, 5)),
            "clientConnectTimeoutMillis": dice.choice((500, 3000)),
            "delayEnsembleChange": dice.random() < 0.2,
            "recoveryReadBatchSize": dice.choice((1, 3, 16)),
            "speculativeReadTimeout": dice.choice((50, 500, 2000)),
            "explicitLacInterval": dice.choice((0, 0, 100)),
        }

    # --- writers ---

    async def _write(self, bk: BookKeeper, dice: random.Random) -> None:
        shape = self.shape
        writer = await bk.create_ledger(
            ensemble_size=shape.ensemble_size,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
            password=PASSWORD,
            digest=shape.digest,
        )
        ledger = self.history.created(writer.id, shape.write_quorum, shape.ack_quorum, PASSWORD)
        count = dice.randint(0, 2 * shape.entries)
        try:
            while ledger.sent < count and not self.stopped:
                await self._burst(writer, ledger, min(count - ledger.sent, dice.randint(1, 20)))
                await asyncio.sleep(dice.expovariate(1 / shape.pause))
        finally:
            await self._finish(writer, ledger, dice)

    async def _burst(self, writer: LedgerWriter, ledger: LedgerHistory, count: int) -> None:
        futures = []
        for _ in range(count):
            data = payload(ledger.ledger_id, ledger.sent)
            ledger.sent += 1  # whatever becomes of it: from here on it may exist
            futures.append(await writer.append_soon(data))
        async with asyncio.timeout(OPERATION_SECONDS):
            for future in futures:
                self.history.acknowledged(ledger.ledger_id, await future)

    async def _finish(self, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        async with asyncio.timeout(OPERATION_SECONDS):
            try:
                await writer.close(drain=dice.random() < 0.5)
            except BKError as error:
                self.cluster.world.sometimes(f"close: {type(error).__name__}")
                return
        record = writer.metadata
        self.history.saw_closed(ledger.ledger_id, record.last_entry_id, record.length)

    # --- readers ---

    def _some_ledger(self, dice: random.Random) -> LedgerHistory | None:
        """A ledger that exists, recent ones more often."""
        candidates = [ledger for ledger in self.history.ledgers.values() if not ledger.delete_started]
        if not candidates:
            return None
        return dice.choice(candidates[-3:] if dice.random() < 0.7 else candidates)

    async def _read(self, bk: BookKeeper, dice: random.Random) -> None:
        """Open with recovery, which ends the ledger's writer, and read."""
        await asyncio.sleep(dice.random() * 3)
        ledger = self._some_ledger(dice)
        if ledger is None:
            return
        await read_whole(bk, self.history, ledger)

    async def _follow(self, bk: BookKeeper, dice: random.Random) -> None:
        """Open without recovery and follow for a while."""
        await asyncio.sleep(dice.random() * 2)
        ledger = self._some_ledger(dice)
        if ledger is None:
            return
        async with asyncio.timeout(OPERATION_SECONDS):
            reader = await bk.open_ledger(ledger.ledger_id, password=PASSWORD, recovery=False)
        try:
            async with asyncio.timeout(1 + dice.random() * 8):
                async for entry in reader.tail(0):
                    lac = reader.last_add_confirmed
                    self.history.lac_seen(ledger.ledger_id, lac)
                    self.history.delivered(ledger.ledger_id, entry.entry_id, entry.data, lac)
        except TimeoutError:
            self.cluster.world.sometimes("follower: stopped following")
        finally:
            await reader.close()

    async def _delete(self, bk: BookKeeper, dice: random.Random) -> None:
        await asyncio.sleep(2 + dice.random() * 5)
        ledger = self._some_ledger(dice)
        if ledger is None:
            return
        ledger.delete_started = True
        async with asyncio.timeout(OPERATION_SECONDS):
            await bk.delete_ledger(ledger.ledger_id)
        ledger.deleted = True


async def read_whole(bk: BookKeeper, history: History, ledger: LedgerHistory) -> LedgerReader:
    """Open with recovery and read every entry, checking all that is promised."""
    acked_before = ledger.acked
    async with asyncio.timeout(OPERATION_SECONDS):
        reader = await bk.open_ledger(ledger.ledger_id, password=PASSWORD)
    async with reader:
        last = reader.last_add_confirmed
        if not ledger.delete_started:
            history.opened(ledger.ledger_id, acked_before, last, reader.metadata.length)
        expected = 0
        async with asyncio.timeout(OPERATION_SECONDS):
            async for entry in reader.entries():
                if entry.entry_id != expected:
                    raise Violation(f"ledger {ledger.ledger_id}: entry {entry.entry_id} follows {expected - 1}")
                history.delivered(ledger.ledger_id, entry.entry_id, entry.data, last)
                expected += 1
        if expected != last + 1:
            raise Violation(f"ledger {ledger.ledger_id}: {expected} entries read, the last one is {last}")
    return reader
