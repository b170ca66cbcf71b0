"""How fast Spark reads ledgers, next to JSON lines and Parquet files with the same data, and to the client alone.

    python -m bench.spark [--small]

Starts three bookies, and Spark with one task at a time and then with two. Each figure is of one pass over all rows in
which the payloads come to the JVM and are added up there; rows and checksums are compared with what was written. The
client alone is `bookkeeper bench read`: one reader beside the bookies, as Spark with one task is. Two tasks on two
cores share them with the bookies. So what a core gives a reader is told by the processor time it used: the client's, or
the JVM's and its Python workers'; not the bookies', who serve both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bookkeeper.cli.local.spark_demo import CHECKSUM
from bookkeeper.spark import read_ledgers
from bookkeeper.spark.launch import spark_session
from tests.spark.support import LiveCluster

from . import processor_time

CORES = (1, 2)
"""How many tasks Spark runs at a time."""
RUNS = 3


def payloads(count: int, size: int) -> Iterator[bytes]:
    """Different ones, text, so that JSON can hold them as they are."""
    filler = b"the quick brown fox jumps over the lazy dog; " * (size // 45 + 1)
    for number in range(count):
        yield (b"%010d " % number + filler)[:size]


@dataclass(frozen=True)
class Took:
    """Seconds by the clock, and of processor time of the readers."""

    seconds: float
    processor: float


def timed(query: Callable[[], Any], bookies: Container[int]) -> tuple[Took, Any]:
    """Best of some runs, and the result, which must be the same each time."""
    results = []
    took = []
    for _ in range(RUNS):
        started, used = time.perf_counter(), processor_time.of_descendants(os.getpid(), bookies)
        results.append(query())
        seconds = time.perf_counter() - started
        took.append(Took(seconds, processor_time.of_descendants(os.getpid(), bookies) - used))
    assert all(result == results[0] for result in results)
    return min(took, key=attrgetter("seconds")), results[0]


@dataclass(frozen=True)
class Data:
    """The same entries as a ledger and as files."""

    count: int
    size: int
    checksum: int
    ledger_id: int
    lines: Path
    parquet: Path

    @classmethod
    def write(cls, cluster: LiveCluster, directory: Path, count: int, size: int) -> Data:
        ledger_id = cluster.write(payloads(count, size), password=b"bench")
        checksum = sum(zlib.crc32(payload) * (number + 1) for number, payload in enumerate(payloads(count, size)))
        data = cls(count, size, checksum, ledger_id, directory / f"{size}.jsonl", directory / f"{size}.parquet")
        write_files(count, size, data.lines, data.parquet)
        return data

    def ways(self, spark: SparkSession, uri: str) -> dict[str, Callable[[], DataFrame]]:
        options = {"password": "bench", "columns": "entry_id,payload", "targetPartitionBytes": "64m"}
        return {
            "ledger": lambda: read_ledgers(spark, uri, self.ledger_id, **options),
            "JSON lines": lambda: spark.read.schema("entry_id bigint, payload string").json(str(self.lines)),
            "Parquet": lambda: spark.read.parquet(str(self.parquet)),
        }


def measure(spark: SparkSession, cluster: LiveCluster, data: Data, cores: int) -> Iterator[dict[str, Any]]:
    """One row for each way to read the same data with Spark."""
    wanted = (data.count, data.count * data.size, data.checksum)
    bookies = {bookie.process.pid for bookie in cluster.bookies if bookie.process is not None}
    for name, frame in data.ways(spark, cluster.uri).items():
        check = frame().selectExpr("count(*)", "sum(length(payload))", CHECKSUM).collect()[0]
        assert tuple(map(int, check)) == wanted, f"{name}: {check} and not {wanted}"
        took, got = timed(lambda frame=frame: totals(frame), bookies)
        assert got == wanted[:2]
        yield row(f"Spark, {name}", data.size, data.count, took, cores)


def measure_alone(uri: str, data: Data) -> dict[str, Any]:
    """The client without Spark."""
    command = ["bench", "read", str(data.ledger_id), "--uri", uri, "--json", "--seconds", "5"]
    before = processor_time.of_ended_children()
    done = subprocess.run([sys.executable, "-m", "bookkeeper", *command], stdout=subprocess.PIPE, check=True)
    took = processor_time.of_ended_children() - before
    alone = json.loads(done.stdout)
    return row("bookkeeper bench read", data.size, alone["entries"], Took(alone["seconds"], took), 1)


def totals(frame: Callable[[], DataFrame]) -> tuple[int, int]:
    rows, size = frame().selectExpr("count(*)", "sum(length(payload))").collect()[0]
    return rows, size


def row(what: str, size: int, count: int, took: Took, cores: int) -> dict[str, Any]:
    rate = count / took.seconds
    return {
        "what": what,
        "size": size,
        "cores": cores,
        "rows_per_second": round(rate),
        "mb_per_second": round(rate * size / 1e6, 1),
        "rows_per_processor_second": round(count / took.processor),
    }


def write_files(count: int, size: int, lines: Path, parquet: Path) -> None:
    with lines.open("wb") as out:
        for number, payload in enumerate(payloads(count, size)):
            out.write(b'{"entry_id":%d,"payload":"%s"}\n' % (number, payload))
    schema = pa.schema([("entry_id", pa.int64()), ("payload", pa.binary())])
    with pq.ParquetWriter(parquet, schema) as writer:
        step = 100_000_000 // size
        every = payloads(count, size)
        for start in range(0, count, step):
            ids = range(start, min(start + step, count))
            writer.write_table(pa.table([list(ids), [next(every) for _ in ids]], schema=schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of the data")
    arguments = parser.parse_args()
    part = 10 if arguments.small else 1
    with tempfile.TemporaryDirectory(prefix="bookkeeper-bench-") as name:
        cluster = LiveCluster(Path(name, "cluster"), 3)
        try:
            sizes = ((5_000_000 // part, 100), (1_000_000 // part, 1000))
            everything = [Data.write(cluster, Path(name), count, size) for count, size in sizes]
            rows = [measure_alone(cluster.uri, data) for data in everything]
            for cores in CORES:
                with spark_session("bench", f"local[{cores}]", {"spark.driver.memory": "2g"}) as spark:
                    for data in everything:
                        rows += measure(spark, cluster, data, cores)
        finally:
            cluster.close()
    for each in sorted(rows, key=lambda row: (row["size"], row["cores"])):
        print(
            f"{each['what']:<24} {each['size']:>5} B, cores: {each['cores']} {each['rows_per_second']:>10,} rows/s"
            f" {each['mb_per_second']:>8,} MB/s {each['rows_per_processor_second']:>10,} rows per second of a core"
        )


if __name__ == "__main__":
    main()
