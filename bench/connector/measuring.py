"""One row of figures: all rows written in one go, or all rows read by a streaming query, whose sink counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from .data import Input, Totals, added, totals
from .systems import System

_NAMES = map("t{}".format, count())


def write(spark: SparkSession, system: System, rows: Input, name: str) -> float:
    """Seconds to write them, until all are stored and visible."""
    frame = rows.frame(spark).selectExpr("cast(value as string) as value")
    started = time.perf_counter()
    system.write(frame, name)
    return time.perf_counter() - started


def read(spark: SparkSession, system: System, rows: Input, name: str, checkpoint: Path) -> float:
    """Seconds to read them, from the start of the query to its end. What comes is compared with what was written."""
    started = time.perf_counter()
    found = drained(system.follow(spark, name), checkpoint)
    took = time.perf_counter() - started
    if found != rows.totals:
        raise RuntimeError(f"read {found}, and not {rows.totals}")
    return took


def drained(frame: DataFrame, checkpoint: Path) -> Totals:
    """All that there is, by a query that ends then; its sink adds up."""
    found: list[Totals] = []
    sink: Callable[[DataFrame, int], Any] = lambda batch, _: found.append(totals(batch))  # noqa: E731
    query = (
        frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    )
    query.start().awaitTermination()
    whole = (0, 0, 0)
    for each in found:
        whole = added(whole, each)
    return whole


def round_of(
    spark: SparkSession, system: System, warm: Input, inputs: list[Input], directory: Path, rounds: int
) -> Iterator[tuple[str, int, float]]:
    """What was done (`sink` or `source`), the size of a row, and rows a second; so many times each.

    Everything is done with `warm` before: Java's compiler and Python's workers are warm then.
    """
    for number, rows in enumerate([warm, *inputs * rounds]):
        name = next(_NAMES)
        wrote = write(spark, system, rows, name)
        took = read(spark, system, rows, name, directory / "checkpoints" / name)
        if number:
            yield "sink", rows.size, rows.count / wrote
            yield "source", rows.size, rows.count / took
