"""How soon a cluster is whole again after it lost a bookie, Java's autorecovery and ours: `make bench-heal`.

Five bookies of each kind in turn, with a replication worker in each, hold the same closed ledgers, with three copies.
A writer appends all the time to ledgers of its own, a record every few milliseconds. One bookie is killed; the time is
taken from when ZooKeeper has lost it until no ledger names it and nothing is marked any more, or `--at-most` so long.
Nothing is throttled; with `--rate` both are alike (`replicationRateByBytes`, of each worker), and `--default-pace`
leaves ours at its default (`replicationTimeShare`).

    python -m bench.heal                         10,000 ledgers, 4 GB (about ten minutes)
    python -m bench.heal --quick                 1,000 ledgers, 400 MB
    python -m bench.heal --pairs 3 --rate 5000000 --json heal.json
    python -m bench.heal --quick --only ours --set rwLedgersAtOnce=1

A ratio above 1 is in our favour. "Writer before" is the same writer in the seconds before the bookie was killed, when
the bookies have flushed what was written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import bookkeeper
from bookkeeper.autorecovery.manual import ledgers_of
from bookkeeper.cli.latency import Histogram
from bookkeeper.client.client import BookKeeper
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.zookeeper.local_server import LocalZooKeeper
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.interop.support import peer
from tests.interop.support.cluster import JAVA, OURS, Cluster

BOOKIES = 5
ENTRY_BYTES = 4096
WRITER_BYTES = 1024
WRITER_PAUSE = 0.005
"""Seconds between two appends of the writer."""
SETTLE_SECONDS = 15.0
"""How long the writer writes before it counts: more than the bookies' `flushInterval`, for they have much to flush."""
BEFORE_SECONDS = 40.0
"""How long it writes then, until the bookie is killed."""
LOOK_SECONDS = 0.2
MARKS = "underreplication/ledgers/0000/0000/0000"
MOST_LEDGERS = 0xF000
"""Their ids have 16 bits: so all marks are in that directory."""
LEDGERS_AT_ONCE = 20
APPENDS_AT_ONCE = 100

BOOKIE_JVM = "-Xmx1g -XX:MaxDirectMemorySize=1g"

SETTINGS: dict[str, object] = {
    "autoRecoveryDaemonEnabled": "true",
    "lostBookieRecoveryDelay": 0,
    "zkTimeout": 10_000,
    "dbStorage_writeCacheMaxSizeMb": 128,
    "dbStorage_readAheadCacheMaxSizeMb": 64,
    "dbStorage_rocksDB_blockCacheSize": 32 << 20,
    "journalMaxSizeMB": 512,
    "journalMaxBackups": 1,
    "flushInterval": 10_000,
    "maxPendingAddRequestsPerThread": 100_000,
}


@dataclass
class Outcome:
    """Of one system, once."""

    system: str
    ledgers: int
    """That had lost a copy, and are whole."""
    left: int
    """That still lack one: only if the time was up."""
    megabytes: float
    """That were copied."""
    seconds: float
    """Until nothing was missing any more."""
    before_p50: float
    before_p99: float
    during_p50: float
    during_p99: float
    """Of the writer's appends, in milliseconds."""

    @property
    def rate(self) -> float:
        """Megabytes copied a second."""
        return self.megabytes / self.seconds


class Writer:
    """Appends to a ledger of its own until it is stopped."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        self.latency = Histogram()

    async def run(self) -> None:
        body = bytes(WRITER_BYTES)
        async with self._client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
            while True:
                began = time.perf_counter()
                await writer.append(body)
                self.latency.record(time.perf_counter() - began)
                await asyncio.sleep(WRITER_PAUSE)

    def forget(self) -> None:
        """Count from now on."""
        self.latency = Histogram()

    @property
    def percentiles(self) -> tuple[float, float]:
        """p50 and p99, in milliseconds."""
        return self.latency.quantile(0.5) * 1000, self.latency.quantile(0.99) * 1000


async def fill(client: BookKeeper, ledgers: int, entries: int) -> None:
    """Write the ledgers, and close them."""
    body = bytes(range(256)) * (ENTRY_BYTES // 256)
    turns = asyncio.Semaphore(LEDGERS_AT_ONCE)

    async def one() -> None:
        async with turns, client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as writer:
            for start in range(0, entries, APPENDS_AT_ONCE):
                await writer.append_many([body] * min(APPENDS_AT_ONCE, entries - start))

    for start in range(0, ledgers, 1000):
        await asyncio.gather(*(one() for _ in range(min(1000, ledgers - start))))
        print(f"\r{start:,} of {ledgers:,} ledgers written", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr)


async def heal(system: str, cluster: Cluster, ledgers: int, entries: int, at_most: float) -> Outcome:
    """Fill a running cluster, take a bookie from it, and wait until it is whole, or for `at_most` seconds."""
    driver = open_driver(cluster.uri, RealRuntime())
    async with bookkeeper.connect(runtime=RealRuntime(), driver=driver) as client:
        await fill(client, ledgers, entries)
        lost = cluster.bookies[0]
        names = [record async for record in ledgers_of(driver, (BookieId(lost.id),))]
        assert names, "the bookie held nothing"
        writer = Writer(client)
        writing = asyncio.ensure_future(writer.run())
        try:
            await _write_on(writing, SETTLE_SECONDS)
            writer.forget()
            await _write_on(writing, BEFORE_SECONDS)
            before = writer.percentiles
            await asyncio.to_thread(lost.stop, signal.SIGKILL)
            await asyncio.to_thread(_gone, cluster.zk, f"{cluster.root}/available/{lost.id}")
            writer.forget()
            began = time.monotonic()
            left = names
            while left and time.monotonic() < began + at_most:
                await _until_unmarked(cluster, writing, began + at_most)
                seconds, during = time.monotonic() - began, writer.percentiles
                left = [record async for record in ledgers_of(driver, (BookieId(lost.id),))]
        finally:
            writing.cancel()
            await asyncio.wait([writing])
    copied = len(names) - len(left)
    return Outcome(system, copied, len(left), copied * entries * ENTRY_BYTES / 1e6, seconds, *before, *during)


async def _until_unmarked(cluster: Cluster, writing: asyncio.Future[None], end: float) -> None:
    """Wait until ledgers have been marked and none is any more, or the time is up. This must cost next to nothing, for
    the writer is in this process: all marks are in one directory, whose names ZooKeeper counts."""
    marked = False
    while time.monotonic() < end:
        await _write_on(writing, LOOK_SECONDS)
        marks = await asyncio.to_thread(cluster.zk.exists, f"{cluster.root}/{MARKS}")
        if marks is not None and marks.children_count:
            marked = True
        elif marked:
            return


async def _write_on(writing: asyncio.Future[None], seconds: float) -> None:
    """Wait; raises what ended the writer."""
    done, _ = await asyncio.wait([writing], timeout=seconds)
    for each in done:
        each.result()


def _gone(zk: KazooClient, path: str) -> None:
    """Wait until ZooKeeper has ended a registration."""
    while zk.exists(path) is not None:
        time.sleep(0.05)


@contextlib.contextmanager
def running(
    zk: KazooClient, address: str, directory: Path, kind: str, settings: dict[str, object], number: int
) -> Iterator[Cluster]:
    """A new cluster, whose processes end with this."""
    cluster = Cluster(zk, address, f"/{kind}{number}", directory / f"{kind}{number}", settings, BOOKIE_JVM)
    cluster.init_by_us()
    cluster.add(*[kind] * BOOKIES)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop(signal.SIGKILL)
        with contextlib.suppress(NoNodeError):
            zk.delete(cluster.root, recursive=True)


def settings_of(arguments: argparse.Namespace) -> dict[str, object]:
    """What the bookies are told, of both kinds."""
    said: dict[str, object] = dict(each.split("=", 1) for each in arguments.set)
    if not arguments.default_pace:
        said.setdefault("replicationTimeShare", 1)
    return {**SETTINGS, "replicationRateByBytes": arguments.rate, **said}


def measure(arguments: argparse.Namespace, directory: Path, address: str) -> list[tuple[Outcome, Outcome]]:
    """Pairs, Java's first in each second one."""
    entries = max(1, arguments.megabytes * 1_000_000 // (arguments.ledgers * ENTRY_BYTES))
    zk = KazooClient(address, timeout=60)
    zk.start()
    pairs = []
    try:
        for number in range(arguments.pairs):
            found = {}
            kinds = (JAVA, OURS) if number % 2 else (OURS, JAVA)
            for kind in kinds if arguments.only is None else [arguments.only]:
                with (
                    tempfile.TemporaryDirectory(dir=directory) as place,
                    running(zk, address, Path(place), kind, settings_of(arguments), number) as cluster,
                ):
                    found[kind] = asyncio.run(heal(kind, cluster, arguments.ledgers, entries, arguments.at_most))
                    print(json.dumps(asdict(found[kind])), file=sys.stderr)
            if arguments.only is None:
                pairs.append((found[JAVA], found[OURS]))
    finally:
        zk.stop()
        zk.close()
    return pairs


def table(pairs: list[tuple[Outcome, Outcome]]) -> list[str]:
    """The medians, for people."""

    def median(system: int, name: str) -> float:
        return float(statistics.median(getattr(pair[system], name) for pair in pairs))

    rows = [
        ("until whole, s", "seconds", True),
        ("copied, MB/s", "rate", False),
        ("writer before, p99 ms", "before_p99", True),
        ("writer meanwhile, p50 ms", "during_p50", True),
        ("writer meanwhile, p99 ms", "during_p99", True),
    ]
    lines = ["| | Java | ours | ratio |", "|---|---|---|---|"]
    for title, name, lower in rows:
        java, ours = median(0, name), median(1, name)
        lines.append(f"| {title} | {java:.1f} | {ours:.1f} | {java / ours if lower else ours / java:.2f} |")
    for system, name in enumerate((JAVA, OURS)):
        rise = median(system, "during_p99") / median(system, "before_p99")
        lines.append(f"| p99 meanwhile / before, {name} | {rise:.2f} | | |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=4_000, help="in all ledgers together, before replication")
    parser.add_argument("--rate", type=int, default=-1, help="replicationRateByBytes of both; -1: as quick as it goes")
    parser.add_argument("--default-pace", action="store_true", help="ours copies for its default share of the time")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of the bookies"
    )
    parser.add_argument("--only", choices=(JAVA, OURS), help="one of them, its figures alone")
    parser.add_argument("--at-most", type=float, default=1800.0, help="seconds; what is copied then is what counts")
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--directory", type=Path, help="where the clusters' directories are made")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.ledgers, arguments.megabytes = arguments.ledgers // 10, arguments.megabytes // 10
    if not 0 < arguments.ledgers <= MOST_LEDGERS:
        parser.error(f"--ledgers: from 1 to {MOST_LEDGERS:,}")
    if arguments.at_most <= 0:
        parser.error("--at-most: more than 0 seconds")
    peer.set_up()
    with tempfile.TemporaryDirectory(prefix="heal-", dir=arguments.directory) as temporary, asyncio.Runner() as loop:
        server = LocalZooKeeper(Path(temporary) / "zookeeper")
        loop.run(server.start())
        try:
            pairs = measure(arguments, Path(temporary), server.address)
        finally:
            loop.run(server.stop())
    if pairs:
        print("\n".join(table(pairs)))
    if arguments.json is not None:
        report: dict[str, Any] = {**vars(arguments), "pairs": [[asdict(each) for each in pair] for pair in pairs]}
        arguments.json.write_text(json.dumps(report, default=str, indent=1) + "\n")


if __name__ == "__main__":
    main()
