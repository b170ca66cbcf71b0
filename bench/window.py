"""What one append costs the client, in microseconds of processor time, without network and bookies.

    python bench/window.py [entries]

(a) the pending window alone: push, the acks of the write set, confirm; (b) a whole writer over channels that
acknowledge everything when the loop turns, in batches: digest, frame, window, futures. Best of several runs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from bookkeeper.client.context import AddSink, ChannelOwner, ClientContext
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.config import ClientConfiguration
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.metadata.memory import MemoryDriver, MemoryStore
from bookkeeper.protocol.digest import digest_for, master_key
from bookkeeper.protocol.entry import entry_id_of
from bookkeeper.protocol.frames import FrameSplitter
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.runtime.tasks import TaskScope
from bookkeeper.types import BookieId, DigestType, WriteFlag

BATCH = 200
"""Appends between two turns of the loop, and acks in a batch."""

RUNS = 5
PAYLOAD = b"x" * 100
V2_ENTRY_AT = 28
QUORUMS = ((3, 3, 2), (3, 2, 2), (5, 3, 2), (1, 1, 1))


def best(run: Callable[[], float]) -> float:
    return min(run() for _ in range(RUNS))


def window_alone(count: int, quorum: tuple[int, int, int]) -> float:
    schedule = Distribution(*quorum)
    window = PendingWindow(schedule)
    frame = bytes(164)
    batches = [
        [
            [e for e in range(start, start + BATCH) if schedule.has_entry(e, index)]
            for index in range(schedule.ensemble_size)
        ]
        for start in range(0, count, BATCH)
    ]
    started = time.process_time()
    for batch in batches:
        for _ in range(BATCH):
            window.push(window.lap + 1, 100, frame)
        for index, ids in enumerate(batch):
            window.ack(index, ids)
            window.confirm()
    elapsed = time.process_time() - started
    assert window.lac == count - 1
    assert not window.open
    return elapsed / count * 1e6


class InstantChannel:
    """Acknowledges what it was given when the loop turns. The ids are taken out by a slice, as from a real batch."""

    writable = True

    def __init__(self, bookie: BookieId, sink: AddSink) -> None:
        self.bookie = bookie
        self._sink = sink
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self.cost = 0.0

    def use(self) -> InstantChannel:
        return self

    def count(self, frames: int, answered: int = 0) -> None:
        pass

    def send(self, frames: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._answer)
        self._out.append(frames)

    def _answer(self) -> None:
        out, self._out = self._out, []
        started = time.process_time()
        ids = [
            entry_id_of(body[V2_ENTRY_AT - 4 : V2_ENTRY_AT + 12])
            for frames in out
            for body in FrameSplitter().feed(frames)
        ]
        self.cost += time.process_time() - started
        self._sink.on_add_responses(self.bookie, ids, [])

    def close(self) -> None:
        pass


class InstantBookies:
    """As much of a `BookieClient` as a writer without failures needs."""

    def __init__(self) -> None:
        self.channels: list[InstantChannel] = []

    def open_add_channel(
        self, bookie: BookieId, ledger_id: int, sink: AddSink, *, version: int, owner: ChannelOwner
    ) -> InstantChannel:
        self.channels.append(InstantChannel(bookie, sink))
        return self.channels[-1]

    def add_version(self, write_flags: WriteFlag) -> int:
        return 2


async def writer_seconds(count: int, digest: DigestType, mode: str) -> float:
    runtime = RealRuntime()
    driver = MemoryDriver(MemoryStore(runtime), runtime)
    await driver.open()
    tasks = TaskScope(runtime, "bench")
    bookies = InstantBookies()
    context = ClientContext(
        runtime=runtime,
        config=ClientConfiguration(),
        driver=driver,
        bookies=bookies,  # type: ignore[arg-type]
        placement=None,  # type: ignore[arg-type]
        tasks=tasks,
    )
    ensemble = tuple(BookieId(f"b{i}:3181") for i in range(3))
    metadata = await driver.ledgers.create(0, LedgerMetadata(0, 3, 3, 2, {0: ensemble}))
    writer = LedgerWriter(context, metadata, digest_for(digest, b""), master_key(b""))
    started = time.process_time()
    if mode == "append_nowait":
        for _ in range(count // BATCH):
            futures = [writer.append_nowait(PAYLOAD) for _ in range(BATCH)]
            await futures[-1]
    elif mode == "append_many":
        await writer.append_many(PAYLOAD for _ in range(count))
    else:
        for _ in range(count // BATCH):
            await asyncio.gather(*(writer.append(PAYLOAD) for _ in range(BATCH)))
    elapsed = time.process_time() - started - sum(channel.cost for channel in bookies.channels)
    assert writer.last_add_confirmed == count - 1
    await writer.close()
    await tasks.close()
    await driver.close()
    return elapsed / count * 1e6


def on_uvloop(work: Coroutine[Any, Any, float]) -> float:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    count -= count % BATCH
    for quorum in QUORUMS:
        print(f"window {quorum}: {best(lambda q=quorum: window_alone(count, q)):.2f} us an entry")  # type: ignore[misc]
    for digest in (DigestType.CRC32C, DigestType.DUMMY, DigestType.MAC):
        cost = best(lambda d=digest: on_uvloop(writer_seconds(count, d, "append_nowait")))  # type: ignore[misc]
        print(f"writer, append_nowait, {digest.value}: {cost:.2f} us an entry")
    for mode in ("append_many", "append (a task each)"):
        cost = best(lambda m=mode: on_uvloop(writer_seconds(count, DigestType.CRC32C, m)))  # type: ignore[misc]
        print(f"writer, {mode}: {cost:.2f} us an entry")


if __name__ == "__main__":
    main()
