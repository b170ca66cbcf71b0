"""Rows that are written and read, and what they add up to."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

FILLER = b"the quick brown fox jumps over the lazy dog; "
STEP = 50_000
"""Rows that are made at a time."""

TOTALS = ("count(*)", "sum(length(value))", "sum(crc32(cast(value as binary)))")
"""What a counting sink computes: it has to look at every byte."""

Totals = tuple[int, int, int]


def values(first: int, last: int, size: int) -> list[bytes]:
    """Rows `first` up to `last`, without the latter: all different, and text, so that JSON can hold them."""
    filler = FILLER * (size // len(FILLER) + 1)
    return [(b"%010d " % number + filler)[:size] for number in range(first, last)]


def totals(frame: DataFrame) -> Totals:
    """What some rows add up to; one pass over all of them."""
    count, size, checksum = frame.selectExpr(*TOTALS).first() or (0, 0, 0)
    return count, size or 0, checksum or 0


def added(one: Totals, other: Totals) -> Totals:
    """The totals of both."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@dataclass(frozen=True)
class Input:
    """Rows of one size, in Parquet files: one for each task that will write them."""

    path: Path
    size: int
    totals: Totals

    @property
    def count(self) -> int:
        return self.totals[0]

    @classmethod
    def make(cls, path: Path, count: int, size: int, files: int) -> Input:
        """Write the files."""
        path.mkdir(parents=True)
        checksum = 0
        schema = pa.schema([pa.field("value", pa.binary())])
        for number in range(files):
            first, last = count * number // files, count * (number + 1) // files
            with pq.ParquetWriter(path / f"{number:03}.parquet", schema, compression="lz4") as out:
                for start in range(first, last, STEP):
                    rows = values(start, min(start + STEP, last), size)
                    checksum += sum(map(zlib.crc32, rows))
                    out.write_table(pa.table([rows], schema=schema))
        return cls(path, size, (count, count * size, checksum))

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows, a partition for each file."""
        return spark.read.parquet(str(self.path))
