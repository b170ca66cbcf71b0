"""What an add costs a bookie on its event loop, from the socket's bytes to the acknowledgement's bytes.

    python bench/bookie_add.py [--size 100] [--batch 1000] [--ledgers 1]

Frames go straight into a connection's `data_received`, `--batch` adds at a time, and answers into a transport that
counts them. Printed are microseconds of the loop's thread per add, the best of five runs:

- null: storage and journal that do nothing; the acknowledgements are given at once
- real: DbLedgerStorage and journal in a temporary directory, without their threads' work (CPU of the loop's thread
  only), and the whole process, threads, fsync and index included
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.ground import Ground
from bookkeeper.bookie.journal.journals import Journals
from bookkeeper.bookie.journal.room import Room
from bookkeeper.bookie.ledgers import LedgerTable
from bookkeeper.bookie.requests.adds import AddPath
from bookkeeper.bookie.requests.connection import BookieConnection
from bookkeeper.config import ServerConfiguration
from bookkeeper.metadata import open_driver
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for, master_key
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import DigestType

KEY = master_key(b"")
DIGEST = digest_for(DigestType.CRC32C, b"")
ROUNDS = 5
URI = "memory://bench"


class CountingTransport(asyncio.Transport):
    """Takes everything and remembers how much it was."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def write(self, data: Any) -> None:
        self.bytes += len(data)

    def writelines(self, pieces: Any) -> None:
        self.bytes += sum(map(len, pieces))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class NullJournal:
    """Acknowledges at once."""

    journals_explicit_lac = True
    room = Room(0, 1 << 62)

    def append(self, pieces: Any, size: int, count: int, done: Callable[[], None], *, ack_before_sync: bool) -> None:
        done()


class NullStorage:
    """Has room for everything and keeps nothing."""

    def ledger_exists(self, ledger_id: int) -> bool:
        return True

    def master_key(self, ledger_id: int) -> bytes:
        return KEY

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        pass

    def is_fenced(self, ledger_id: int) -> bool:
        return False

    def has_room(self, ledger_id: int, size: int, count: int) -> bool:
        return True

    def has_room_everywhere(self, size: int, count: int) -> bool:
        return True

    def add_runs(self, runs: Any) -> None:
        pass

    def add_mixed(self, ledger_ids: Any, entry_ids: Any, entries: Any) -> None:
        pass


def _failed(error: BaseException) -> None:
    raise error


def frames(encode: Callable[[int, int], bytes], batch: int, batches: int, ledgers: int) -> list[bytes]:
    """What the socket brings: `batches` chunks of `batch` adds, the ledgers in turn."""
    chunks = []
    for start in range(0, batch * batches, batch):
        adds = [encode(i % ledgers, i // ledgers) for i in range(start, start + batch)]
        chunks.append(b"".join(adds))
    return chunks


async def start_bookie(runtime: RealRuntime, directory: Path) -> Bookie:
    driver = open_driver(URI, runtime)
    await driver.open(create=True)
    await driver.admin.init_new_cluster()
    await driver.close()
    config = ServerConfiguration.from_mapping(
        {
            "metadataServiceUri": URI,
            "bookieId": "bench",
            "bookiePort": 0,
            "allowEphemeralPorts": True,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": True,
            "journalDirectories": [str(directory / "journal")],
            "ledgerDirectories": [str(directory / "ledgers")],
            "diskUsageThreshold": 0.999,
            "diskUsageWarnThreshold": 0.998,
        }
    )
    bookie = Bookie(runtime, config)
    await bookie.start()
    return bookie


def connect(bookie: Bookie) -> tuple[BookieConnection, CountingTransport]:
    assert bookie.service is not None
    connection = BookieConnection(bookie.service)
    transport = CountingTransport()
    connection.connection_made(transport)
    return connection, transport


async def run(connection: BookieConnection, transport: CountingTransport, chunks: list[bytes], answer: int) -> None:
    """Feed all chunks, one in a turn of the loop; a pause when many answers are outstanding, as with a window."""
    expected = transport.bytes
    for chunk in chunks:
        connection.data_received(chunk)
        expected += answer
        await asyncio.sleep(0)  # a socket is read once in a turn of the loop
        while connection.paused or expected - transport.bytes > 20 * answer:  # noqa: ASYNC110
            await asyncio.sleep(0)
    while transport.bytes < expected:  # noqa: ASYNC110
        await asyncio.sleep(0.0002)


async def measure(bookie: Bookie, encode: Callable[[int, int], bytes], ack: Any, options: Any) -> None:
    chunks = frames(encode, options.batch, options.batches, options.ledgers)
    answer = options.batch * ack
    adds = options.batch * options.batches
    for name in ("null", "real"):
        best_loop = best_process = float("inf")
        for _ in range(ROUNDS):
            connection, transport = connect(bookie)
            if name == "null":
                service = bookie.service
                storage: Any = NullStorage()
                journals = Journals([NullJournal()])  # type: ignore[list-item]
                ledgers = LedgerTable(RealRuntime(), storage, 1000)
                real = service.adds
                state, stats = service.state, service.stats
                service.adds = AddPath(
                    Ground(RealRuntime(), service.config, storage, journals, ledgers, state, stats, _failed)
                )
            gc.collect()
            loop_started, process_started = time.thread_time(), time.process_time()
            await run(connection, transport, chunks, answer)
            best_loop = min(best_loop, (time.thread_time() - loop_started) / adds * 1e6)
            best_process = min(best_process, (time.process_time() - process_started) / adds * 1e6)
            if name == "null":
                service.adds = real
            connection.connection_lost(None)
        whole = "" if name == "null" else f"   whole process {best_process:5.2f}"
        print(f"{options.protocol} {name}: {best_loop:5.2f} us an add on the loop{whole}", flush=True)


async def main(options: argparse.Namespace) -> None:
    payload = b"x" * options.size
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        bookie = await start_bookie(RealRuntime(), Path(directory))

        def entry(ledger_id: int, entry_id: int) -> bytes:
            return DIGEST.package(ledger_id, entry_id, entry_id - 1, entry_id, payload)

        options.protocol = "v2"
        await measure(bookie, lambda lid, eid: v2.encode_add_request(KEY, entry(lid, eid)), 28, options)
        options.protocol = "v3"
        txn = 1 << 20
        sample = v3.encode_add_response(txn, 0, 1 << 20)

        def encode_v3(ledger_id: int, entry_id: int) -> bytes:
            entry_id += 1 << 20
            request = m.AddRequest(ledger_id, entry_id, entry(ledger_id, entry_id), KEY, txn_id=txn + entry_id % 1000)
            return v3.encode_request(request)

        await measure(bookie, encode_v3, len(sample), options)
        await bookie.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100, help="payload bytes")
    parser.add_argument("--batch", type=int, default=1000, help="adds per socket read")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--ledgers", type=int, default=1)
    parser.add_argument("--dir", default=None, help="where the real journal and storage go")
    asyncio.run(main(parser.parse_args()))
