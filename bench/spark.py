"""How fast Spark reads ledgers, next to JSON lines and Parquet files with the same data, and to the client alone.

    python -m bench.spark [--small]

Starts three bookies and Spark on two threads of this machine. Each figure is of one pass over all rows in which the
payloads come to the JVM and are added up there; rows and checksums are compared with what was written. The client alone
is `bookkeeper bench read`, which takes one core for itself beside the bookies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bookkeeper.spark import read_ledgers
from bookkeeper.spark.launch import spark_session
from tests.spark.support import LiveCluster

CORES = 2
RUNS = 3
CHECKSUM = "sum(cast(crc32(payload) as decimal(38, 0)) * (entry_id + 1))"
"""Depends on every payload and on its place."""


def payloads(count: int, size: int) -> Iterator[bytes]:
    """Different ones, text, so that JSON can hold them as they are."""
    filler = b"the quick brown fox jumps over the lazy dog; " * (size // 45 + 1)
    for number in range(count):
        yield (b"%010d " % number + filler)[:size]


def expected(count: int, size: int) -> tuple[int, int, int]:
    total = sum(zlib.crc32(payload) * (number + 1) for number, payload in enumerate(payloads(count, size)))
    return count, count * size, total


def timed(query: Callable[[], Any]) -> tuple[float, Any]:
    """Best of some runs, and the result, which must be the same each time."""
    results = []
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        results.append(query())
        seconds.append(time.perf_counter() - started)
    assert all(result == results[0] for result in results)
    return min(seconds), results[0]


def measure(spark: SparkSession, cluster: LiveCluster, directory: Path, count: int, size: int) -> list[dict[str, Any]]:
    """One row for each way to read the same data."""
    ledger_id = cluster.write(payloads(count, size), password=b"bench")
    lines, parquet = directory / f"{size}.jsonl", directory / f"{size}.parquet"
    write_files(count, size, lines, parquet)
    wanted = expected(count, size)
    options = {"password": "bench", "columns": "entry_id,payload", "targetPartitionBytes": "64m"}
    ways: dict[str, Callable[[], DataFrame]] = {
        "ledger": lambda: read_ledgers(spark, cluster.uri, ledger_id, **options),
        "JSON lines": lambda: spark.read.schema("entry_id bigint, payload string").json(str(lines)),
        "Parquet": lambda: spark.read.parquet(str(parquet)),
    }
    rows = []
    for name, frame in ways.items():
        check = frame().selectExpr("count(*)", "sum(length(payload))", CHECKSUM).collect()[0]
        assert tuple(map(int, check)) == wanted, f"{name}: {check} and not {wanted}"
        seconds, got = timed(
            lambda frame=frame: tuple(frame().selectExpr("count(*)", "sum(length(payload))").collect()[0])
        )
        assert got == wanted[:2]
        rows.append(row(f"Spark, {name}", size, count, seconds, CORES))
    command = ["bench", "read", str(ledger_id), "--uri", cluster.uri, "--json", "--seconds", "5"]
    done = subprocess.run(
        [sys.executable, "-m", "bookkeeper", *command],
        stdout=subprocess.PIPE,
        check=True,
    )
    alone = json.loads(done.stdout)
    rows.append(row("bookkeeper bench read", size, alone["entries"], alone["seconds"], 1))
    return rows


def totals(frame: Callable[[], DataFrame]) -> tuple[int, int]:
    rows, size = frame().selectExpr("count(*)", "sum(length(payload))").collect()[0]
    return rows, size


def row(what: str, size: int, count: int, seconds: float, cores: int) -> dict[str, Any]:
    rate = count / seconds
    return {"what": what, "size": size, "rows_per_second": round(rate), "mb_per_second": round(rate * size / 1e6, 1),
            "per_core": round(rate / cores)}  # fmt: skip


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
            with spark_session("bench", f"local[{CORES}]", {"spark.driver.memory": "2g"}) as spark:
                rows = measure(spark, cluster, Path(name), 5_000_000 // part, 100)
                rows += measure(spark, cluster, Path(name), 1_000_000 // part, 1000)
        finally:
            cluster.close()
    for each in rows:
        print(
            f"{each['what']:<24} {each['size']:>5} B {each['rows_per_second']:>10,} rows/s"
            f" {each['mb_per_second']:>8,} MB/s {each['per_core']:>10,} rows/s and core"
        )


if __name__ == "__main__":
    main()
