"""How long the driver takes to plan a read of very many segments or ledgers, and in how much memory: metadata only.

    python -m bench.connector.planning [--segments 100000] [--ledgers 1000000]

Records of closed ledgers are made up in an SQLite store, of 10 MB each; those of segments in one stream. A process of
its own plans the read as Spark's driver has it done: it lists, looks up, cuts, and pickles the tasks as they are sent.
The second figure of a stream is of a batch that follows, when nothing is new: what a query does again and again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.serializers import CPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bookkeeper import open_namespace
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.formats.ledger import serialize
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.metadata.records.ledgers import Ledgers, ledger_key
from bookkeeper.metadata.records.store import Topic, Transaction
from bookkeeper.metadata.tree import Create
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.spark.options import ReadOptions
from bookkeeper.spark.source import BatchReader
from bookkeeper.spark.streaming.queries import QueryReader
from bookkeeper.spark.streaming.stream_options import StreamOptions
from bookkeeper.streams.formats.segment import SegmentMetadata, encode_segment
from bookkeeper.streams.names.paths import LogPaths, completed_name, encode_number
from bookkeeper.types import BookieId, DigestType

BOOKIES = [BookieId(f"10.0.0.{host}:3181") for host in range(1, 6)]
ENTRIES, BYTES, RECORDS = 100, 10_000_000, 10_000
AT_ONCE = 500
STREAM = "many"


def ledger(number: int) -> LedgerMetadata:
    """A closed one, as the sink leaves it."""
    members = tuple(BOOKIES[(number + place) % len(BOOKIES)] for place in range(3))
    metadata = LedgerMetadata(number, 3, 3, 2, {0: members}, digest_type=DigestType.CRC32C, password=b"")
    return metadata.close(ENTRIES - 1, BYTES)


def segment(number: int) -> SegmentMetadata:
    """Of the ledger of the same number."""
    return SegmentMetadata(
        ledger_id=number,
        first_txid=number,
        number=number,
        completed=True,
        records=RECORDS,
        last_txid=number,
        completed_ms=number,
        last_entry=ENTRIES - 1,
        last_slot=RECORDS // ENTRIES - 1,
        start_sequence_id=(number - 1) * RECORDS,
    )


async def fill(uri: str, ledgers: int, segments: int) -> None:
    """Make all of it. Ledgers count from 1, and the first ones are those of the stream."""
    driver = open_driver(uri, RealRuntime())
    await driver.open(create=True)
    await driver.admin.init_new_cluster()
    assert isinstance(driver.ledgers, Ledgers)
    for first in range(1, max(ledgers, segments) + 1, AT_ONCE):
        last = min(first + AT_ONCE, max(ledgers, segments) + 1)
        await driver.ledgers._link.change("fill", partial(_put, range(first, last)))  # a transaction for many
    if segments:
        async with open_namespace(f"distributedlog-{uri}?namespace=/ns", create=True) as namespace:
            await namespace.create(STREAM)
        paths = LogPaths("/ns", STREAM)
        for first in range(1, segments + 1, AT_ONCE):
            some = [segment(number) for number in range(first, min(first + AT_ONCE, segments + 1))]
            creations = [Create(paths.segment(completed_name(each.number)), encode_segment(each)) for each in some]
            await driver.tree.commit(creations)
        await driver.tree.write(paths.segments, encode_number(segments))
        await driver.tree.write(paths.max_txid, encode_number(segments))
    await driver.close()


def _put(numbers: range, tx: Transaction) -> None:
    for number in numbers:
        tx.put(Topic.LEDGERS, ledger_key(number), serialize(ledger(number)))


def plan_stream(uri: str) -> dict[str, Any]:
    """The first batch of a query, and the one after it."""
    options = {"uri": f"distributedlog-{uri}?namespace=/ns", "stream": STREAM, "startingOffsets": "earliest"}
    reader = QueryReader(StreamOptions.parse({**options, "minPollInterval": "1ms"}, streaming=True))
    everything = ReadAllAvailable()

    def batch(start: dict[str, Any]) -> tuple[dict[str, Any], int, int]:
        end = reader.latestOffset(start, everything)
        return end, *pickled(reader.partitions(start, end))

    start = reader.initialOffset()
    (end, tasks, size), seconds = timed(lambda: batch(start))
    _, again = timed(lambda: batch(end))
    return {"seconds": seconds, "again": again, "tasks": tasks, "pickled": size}


def plan_ledgers(uri: str) -> dict[str, Any]:
    """A batch read of all ledgers."""
    reader = BatchReader(ReadOptions.parse({"uri": uri, "ledgers": "all"}))
    (tasks, size), seconds = timed(lambda: pickled(reader.partitions()))
    return {"seconds": seconds, "tasks": tasks, "pickled": size}


def pickled(tasks: list[Any]) -> tuple[int, int]:
    """How many they are, and bytes as they go to the JVM."""
    dumps: Callable[[Any], bytes] = CPickleSerializer().dumps
    return len(tasks), sum(len(dumps(task)) for task in tasks)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and seconds."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


PLANS = {"stream": plan_stream, "ledgers": plan_ledgers}


def measured(what: str, uri: str) -> dict[str, Any]:
    """A plan that another process makes, and how large that became in MB."""
    command = [sys.executable, "-m", "bench.connector.planning", "--plan", what, uri]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=100_000, help="of one stream (100000)")
    parser.add_argument("--ledgers", type=int, default=1_000_000, help="of the cluster, those of segments among them")
    parser.add_argument("--plan", nargs=2, metavar=("WHAT", "URI"), help="only plan, and print JSON")
    arguments = parser.parse_args()
    if arguments.plan:
        what, uri = arguments.plan
        found = PLANS[what](uri)
        print(json.dumps({**found, "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}))
        return
    with tempfile.TemporaryDirectory(prefix="bench-planning-") as directory:
        uri = f"sqlite://{directory}/metadata.db"
        _, seconds = timed(lambda: asyncio.run(fill(uri, arguments.ledgers, arguments.segments)))
        print(f"made up in {seconds:.0f} s", file=sys.stderr)
        for what, count in (("stream", arguments.segments), ("ledgers", arguments.ledgers)):
            if count:
                found = measured(what, uri)
                again = f", a batch without news {found['again']:.2f} s" if "again" in found else ""
                print(
                    f"{what}: {count:,} planned in {found['seconds']:.1f} s and {found['memory_mb']:.0f} MB,"
                    f" {found['tasks']:,} tasks of {found['pickled'] / 1e6:.0f} MB together{again}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
