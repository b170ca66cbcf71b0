"""What reading costs, beside the least that a client in Python could do for it.

    python -m bench.least_reads [--seconds 5] [--size 100] [--rounds 3]

The least: a client that does what it must and no more. It encodes requests, a whole run of entries at once, sends them,
cuts answers into frames, takes them apart, checks digests and ids, and makes the entries, all by columns. It knows of
one ledger, one order of entries and three bookies, has no time-outs, looks for no second replica, and does not mind
what a bookie says beside what it was asked for. *In order* it has no event loop either, and nobody waits for an entry;
*scattered*, each entry is awaited by one of 200 tasks, as a program that jumps does; *in batches*, a thousand entries
are asked for in three parts, side by side, and awaited before the next ones are. Ours: `read`, 20 ranges of 100
under way, each entry with a request of its own (`batchReadEnabled=false`); one entry at a time in 200 tasks; and
`batch_read` of a thousand. Both read from the same three bookies, in turn, in one thread, from memory.
"""

from __future__ import annotations

import argparse
import asyncio
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.client.entry import LedgerEntry, ledger_entries
from bookkeeper.config import ClientConfiguration
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.frames import FrameSplitter
from bookkeeper.protocol.messages import BatchReadRequest, BatchReadResponse
from bookkeeper.protocol.protobuf import varints
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run
from bookkeeper.types import DigestType

BOOKIES = 3
ENTRIES = 60_000
RUN = 64
"""Entries in a row that are asked of the same bookie."""
UNDER_WAY = 2_000
"""Entries in order."""
TASKS = 200
"""That each wait for an entry."""
STEP = 7_919
"""From one scattered entry to the next."""
BATCH = 1_000
"""Entries."""
BATCH_BYTES = 5 << 20
RECEIVED_BYTES = 256 << 10
"""By one call at most."""


class Least:
    """One connection of the least client: bytes to send for entries, and entries from bytes that came."""

    def __init__(self, version: int, ledger_id: int) -> None:
        self._version = version
        self._ledger_id = ledger_id
        self._digest = digest_for(DigestType.CRC32C, b"")
        self._splitter = FrameSplitter()
        self._answers = v3.ReadAnswers()
        self._txn_id = 1 << 21  # from here on all take as many bytes
        self._asked: dict[bytes, int] = {}

    def requests(self, entry_ids: Sequence[int]) -> bytes:
        if self._version == 2:
            return v2.encode_read_requests(self._ledger_id, entry_ids)
        tokens = varints(range(self._txn_id, self._txn_id + len(entry_ids)))
        self._txn_id += len(entry_ids)
        self._asked.update(zip(tokens, entry_ids, strict=True))
        return v3.encode_read_requests(self._ledger_id, varints(entry_ids), tokens)

    def entries(self, data: bytes) -> list[LedgerEntry]:
        """Those that `data` completes. Raises AssertionError for one that is not good."""
        found: list[LedgerEntry] = []
        bodies = self._splitter.feed(data)
        for at in range(0, len(bodies), 256):
            entry_ids, packed = self._taken_apart(bodies[at : at + 256])
            checked = self._digest.verify_row(self._ledger_id, entry_ids, packed)
            assert checked is not None
            lengths, payloads = checked
            found += ledger_entries(self._ledger_id, entry_ids, payloads, lengths)
        return found

    def _taken_apart(self, bodies: list[bytes]) -> tuple[tuple[int, ...], list[bytes]]:
        if self._version == 2:
            _, codes, _, entry_ids = zip(*map(v2.unpack_response_head, bodies), strict=True)
            assert not any(codes)
            return entry_ids, [body[v2.RESPONSE_HEAD_SIZE :] for body in bodies]
        row = self._answers.decode_row(bodies)
        if row is None:  # they have not all the same size
            singly = [self._answers.decode(body) for body in bodies]
            tokens = [answer[0] for answer in singly if answer is not None]
            packed = [answer[2] for answer in singly if answer is not None]
            assert len(packed) == len(bodies)
        else:
            tokens, packed = list(row[0]), row[2]
        return tuple([self._asked.pop(token) for token in tokens]), packed


class Rate(NamedTuple):
    """What was read in one thread."""

    entries: float
    """A second."""
    microseconds: float
    """Of processor time, of the client for each."""


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.thread_time()

    def runs(self, seconds: float) -> bool:
        return time.perf_counter() < self._began[0] + seconds

    def rate(self, entries: int) -> Rate:
        wall, busy = time.perf_counter() - self._began[0], time.thread_time() - self._began[1]
        return Rate(entries / wall, busy / entries * 1e6)


def connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def least_in_order(addresses: Sequence[tuple[str, int]], version: int, ledger_id: int, seconds: float) -> Rate:
    sockets = [connect(address) for address in addresses]
    poller = select.epoll()
    by_number = {its.fileno(): (its, place, Least(version, ledger_id)) for place, its in enumerate(sockets)}
    for number in by_number:
        poller.register(number, select.EPOLLIN)
    share = UNDER_WAY // BOOKIES
    behind = dict.fromkeys(by_number, 0)  # entries to come
    runs = [range(at, min(at + RUN, ENTRIES)) for at in range(0, ENTRIES, RUN)]
    next_run = [runs[place::BOOKIES] for place in range(BOOKIES)]
    turn = dict.fromkeys(by_number, 0)
    count = 0
    clock = Clock()
    ready: Sequence[int] = list(by_number)
    while clock.runs(seconds):
        for number in ready:
            connection, place, least = by_number[number]
            asked = bytearray()
            while behind[number] < share:
                entry_ids = next_run[place][turn[number] % len(next_run[place])]
                turn[number] += 1
                behind[number] += len(entry_ids)
                asked += least.requests(entry_ids)
            if asked:
                connection.sendall(asked)
        ready = [number for number, _ in poller.poll()]
        for number in ready:
            connection, _, least = by_number[number]
            got = len(least.entries(connection.recv(RECEIVED_BYTES)))
            behind[number] -= got
            count += got
    for connection in sockets:
        connection.close()
    return clock.rate(count)


def least_in_batches(addresses: Sequence[tuple[str, int]], ledger_id: int, seconds: float) -> Rate:
    sockets = [connect(address) for address in addresses]
    digest = digest_for(DigestType.CRC32C, b"")
    part = -(-BATCH // BOOKIES)
    count = 0
    clock = Clock()
    while clock.runs(seconds):
        first = count % ENTRIES
        parts = [range(at, min(at + part, first + BATCH)) for at in range(first, first + BATCH, part)]
        for connection, span in zip(sockets, parts, strict=True):
            request = BatchReadRequest(ledger_id, span.start, span.start, len(span), BATCH_BYTES // BOOKIES)
            connection.sendall(v2.encode_request(request))
        entries: list[LedgerEntry] = []
        for connection, span in zip(sockets, parts, strict=True):
            answer = v2.decode_response(_frame_from(connection))
            assert isinstance(answer, BatchReadResponse)
            checked = digest.verify_even_run(ledger_id, span.start, answer.body)
            assert checked is not None
            lengths, payloads = checked
            entries += ledger_entries(ledger_id, span, payloads, lengths)
        assert len(entries) == BATCH
        count += BATCH
    for connection in sockets:
        connection.close()
    return clock.rate(count)


def _frame_from(connection: socket.socket) -> bytearray:
    """One frame, without its size: read into place, so that nothing is copied once more."""
    size = bytearray(4)
    assert connection.recv_into(size) == len(size)
    body = bytearray(int.from_bytes(size, "big"))
    rest = memoryview(body)
    while rest:
        rest = rest[connection.recv_into(rest) :]
    return body


def scattered() -> Iterator[int]:
    place = 0
    while True:
        yield place * STEP % ENTRIES
        place += 1


class LeastProtocol(asyncio.Protocol):
    """One connection of the least client that tasks wait for."""

    def __init__(self, least: Least) -> None:
        self._least = least
        self._leaving: list[int] = []
        self._waiting: dict[int, asyncio.Future[LedgerEntry]] = {}
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, entry_id: int) -> asyncio.Future[LedgerEntry]:
        if not self._leaving:
            self._loop.call_soon(self._leave)
        self._leaving.append(entry_id)
        found = self._waiting[entry_id] = self._loop.create_future()
        return found

    def _leave(self) -> None:
        self._transport.write(self._least.requests(self._leaving))
        self._leaving.clear()

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting
        for entry in self._least.entries(data):
            waiting.pop(entry[1]).set_result(entry)


async def least_scattered(addresses: Sequence[tuple[str, int]], version: int, ledger_id: int, seconds: float) -> Rate:
    loop = asyncio.get_running_loop()
    bookies: list[LeastProtocol] = []
    for address in addresses:
        _, bookie = await loop.create_connection(lambda: LeastProtocol(Least(version, ledger_id)), *address)
        bookies.append(bookie)
    entry_ids = scattered()
    counts = [0] * TASKS
    clock = Clock()

    async def worker(number: int) -> None:
        count = 0
        while clock.runs(seconds):
            entry_id = next(entry_ids)
            await bookies[entry_id // RUN % BOOKIES].ask(entry_id)
            count += 1
        counts[number] = count

    await asyncio.gather(*map(worker, range(TASKS)))
    for bookie in bookies:
        bookie._transport.close()
    return clock.rate(sum(counts))


async def ours(uri: str, version: int, ledger_id: int, seconds: float, step: int) -> Rate:
    spans = (range(at, at + step) for at in scattered()) if step == 1 else _in_order(step)
    config = ClientConfiguration.from_mapping({"protocol": f"v{version}", "batchReadEnabled": False})
    async with bookkeeper.connect(uri, config=config) as bk:
        reader = await bk.open_ledger(ledger_id)
        counts: list[int] = []
        clock = Clock()

        async def worker() -> None:
            count = 0
            while clock.runs(seconds):
                span = next(spans)
                count += len(await reader.read(span[0], span[-1]))
            counts.append(count)

        await asyncio.gather(*[worker() for _ in range(TASKS if step == 1 else UNDER_WAY // step)])
        return clock.rate(sum(counts))


async def ours_in_batches(uri: str, ledger_id: int, seconds: float) -> Rate:
    async with bookkeeper.connect(uri) as bk:
        reader = await bk.open_ledger(ledger_id)
        count = 0
        clock = Clock()
        while clock.runs(seconds):
            count += len(await reader.batch_read(count % ENTRIES, max_count=BATCH))
        return clock.rate(count)


def _in_order(step: int) -> Iterator[range]:
    while True:
        yield from (range(at, at + step) for at in range(0, ENTRIES, step))


async def main(runtime: Runtime, arguments: argparse.Namespace) -> None:
    seconds = arguments.seconds
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bookkeeper-reads-") as name:
        async with LocalCluster(runtime, Path(name), BOOKIES) as cluster:
            ledger_id = await _written(cluster.uri, arguments.size)
            async with bookkeeper.connect(cluster.uri) as bk:
                addresses = await _addresses(bk, ledger_id)
            for _ in range(arguments.rounds):
                for version in (2, 3):
                    to = (addresses, version, ledger_id, seconds)
                    for step in (100, 1):  # into the caches
                        await ours(cluster.uri, *to[1:], step)
                    rates = {
                        "in order": (
                            await asyncio.to_thread(least_in_order, *to),
                            await ours(cluster.uri, *to[1:], 100),
                        ),
                        "scattered": (await least_scattered(*to), await ours(cluster.uri, *to[1:], 1)),
                    }
                    if version == 2:
                        await ours_in_batches(cluster.uri, ledger_id, seconds)  # into the caches
                        rates["in batches"] = (
                            await asyncio.to_thread(least_in_batches, addresses, ledger_id, seconds),
                            await ours_in_batches(cluster.uri, ledger_id, seconds),
                        )
                    for how, (least, mine) in rates.items():
                        ratios.setdefault(f"v{version}, {how}", []).append(mine.entries / least.entries)
                        print(
                            f"v{version}, {how:10}   "
                            f"least {least.entries:7,.0f}/s, {least.microseconds:4.1f} us of its processor   "
                            f"ours {mine.entries:7,.0f}/s, {mine.microseconds:4.1f} us",
                            flush=True,
                        )
    for what, found in ratios.items():
        print(f"{what}: ours reads {statistics.median(found):.2f} of what the least client does")


async def _written(uri: str, size: int) -> int:
    async with (
        bookkeeper.connect(uri) as bk,
        bk.create_ledger(ensemble_size=BOOKIES, write_quorum=BOOKIES, ack_quorum=2) as ledger,
    ):
        payload = bytes(size)
        for _ in range(ENTRIES // 1000):
            await ledger.append_many([payload] * 1000)
        return ledger.id


async def _addresses(bk: bookkeeper.BookKeeper, ledger_id: int) -> list[tuple[str, int]]:
    """Of the ledger's bookies, in their order."""
    reader = await bk.open_ledger(ledger_id)
    hosts = [str(bookie).rsplit(":", 1) for bookie in reader.metadata.ensemble_at(0)]
    return [(host, int(port)) for host, port in hosts]


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--size", type=int, default=100, help="bytes of an entry (100)")
    parser.add_argument("--rounds", type=int, default=3, help="how often both in turn (3)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    given = arguments_of(sys.argv[1:])
    run(lambda runtime: main(runtime, given))
