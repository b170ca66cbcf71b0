"""Gigabytes in and out through a stream: all rows, their sums and their order must be equal.

    python -m bench.connector.volume --gb 10 [--size 1000] [--minutes 12]

Rows are made by Spark from their numbers, and written by the sink, a gigabyte at a time: each an epoch, once. A query
reads them with `readStream`, adds up rows, bytes and checksums, and looks whether the number in each row is its number
in the stream: then the order is that in which they were written. If time runs out, it reads what was written until
then.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bookkeeper.spark.launch import spark_session

from .systems import OURS, TASKS, System, started

BATCH_BYTES = 1_000_000_000
READ_BYTES = 500_000_000
"""Of a batch that is read."""


def made(spark: SparkSession, first: int, last: int, size: int) -> DataFrame:
    """Rows `first` up to `last`, without the latter: a number of 20 digits, and what fills the row up."""
    return spark.range(first, last, 1, TASKS).selectExpr(
        f"rpad(lpad(cast(id as string), 20, '0'), {size}, 'the quick brown fox ') as value"
    )


@dataclass
class Seen:
    """What was read so far."""

    rows: int = 0
    bytes: int = 0
    checksum: int = 0
    misplaced: int = 0
    """Rows whose number is not their place in the stream."""
    batches: list[int] = field(default_factory=list)

    def take(self, batch: DataFrame, _number: int) -> None:
        """Look at a batch."""
        row: Any = batch.selectExpr(
            "count(*) as rows",
            "coalesce(sum(length(value)), 0) as bytes",
            "coalesce(sum(crc32(value)), 0) as checksum",
            "count_if(cast(cast(substring(value, 1, 20) as string) as bigint) != offset) as misplaced",
        ).first()
        self.rows += row.rows
        self.bytes += row.bytes
        self.checksum += row.checksum
        self.misplaced += row.misplaced
        self.batches.append(row.rows)
        _say(f"read {self.bytes / 1e9:.1f} GB")


def write(spark: SparkSession, system: System, size: int, gigabytes: float, seconds: float) -> tuple[int, float]:
    """How many rows were written, and how long it took; each batch is an epoch of one sink."""
    began = time.perf_counter()
    wanted, step, first, epoch = int(gigabytes * 1e9 / size), BATCH_BYTES // size, 0, 0
    options = {**system.written("volume")}
    while first < wanted and time.perf_counter() - began < seconds:
        last = min(first + step, wanted)
        writer = made(spark, first, last, size).write.format(system.format)
        writer.options(**{**options, "epoch": str(epoch)}).mode("append").save()
        first, epoch = last, epoch + 1
        _say(f"wrote {first * size / 1e9:.1f} GB")
    return first, time.perf_counter() - began


def read(spark: SparkSession, system: System, checkpoint: Path) -> tuple[Seen, float]:
    """All of it, by a query in batches."""
    began, seen = time.perf_counter(), Seen()
    frame = (
        spark.readStream.format(system.format)
        .options(**system.followed("volume"), maxBytesPerTrigger=str(READ_BYTES), columns="value,offset")
        .load()
    )
    query = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return seen, time.perf_counter() - began


def checksum(spark: SparkSession, rows: int, size: int) -> int:
    """Of what was written, made once more."""
    row = made(spark, 0, rows, size).selectExpr("sum(crc32(cast(value as binary)))").first()
    return int(row[0]) if row is not None and row[0] is not None else 0


def _say(text: str) -> None:
    print(f"\r{text} ", end="", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=10.0, help="gigabytes of payload at most (10)")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a row, 20 at least (1000)")
    parser.add_argument("--minutes", type=float, default=12.0, help="write for a third of so many minutes at most (12)")
    parser.add_argument("--directory", type=Path, help="where three times the payload goes; else a temporary folder")
    arguments = parser.parse_args()
    if arguments.size < 20 or arguments.gb <= 0:
        parser.error("a row has 20 bytes at least, and there must be some")
    with (
        tempfile.TemporaryDirectory(prefix="bench-volume-", dir=arguments.directory) as name,
        spark_session("volume", f"local[{TASKS}]", {"spark.driver.memory": "2g"}) as spark,
        started(OURS, Path(name, "cluster")) as system,
    ):
        rows, wrote = write(spark, system, arguments.size, arguments.gb, arguments.minutes * 60 / 3)
        seen, took = read(spark, system, Path(name, "checkpoint"))
        wanted = Seen(rows, rows * arguments.size, checksum(spark, rows, arguments.size))
    equal = (seen.rows, seen.bytes, seen.checksum, seen.misplaced) == (wanted.rows, wanted.bytes, wanted.checksum, 0)
    found = {
        "gigabytes": seen.bytes / 1e9,
        "rows": seen.rows,
        "batches": len(seen.batches),
        "write_mb_per_second": wanted.bytes / wrote / 1e6,
        "read_mb_per_second": seen.bytes / took / 1e6,
        "misplaced": seen.misplaced,
        "equal": equal,
    }
    print("\n" + json.dumps(found))
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
