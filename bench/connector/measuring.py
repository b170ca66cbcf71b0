"""One row of figures: all rows written in one go, or all rows read by a streaming query, whose sink counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from .. import processor_time
from .data import Input, Totals, added, totals
from .systems import System

SETTLED_WITHIN = 30.0
"""Seconds after which is measured what comes next, even if they still work."""
IDLE = 0.15
"""Of a second's processor time, for all processes that were started here."""

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


def settle() -> None:
    """Wait until what was written is on disk, and nobody works on it any more: bookies and brokers flush later."""
    os.sync()
    deadline = time.perf_counter() + SETTLED_WITHIN
    used = processor_time.of_descendants(os.getpid())
    while time.perf_counter() < deadline:
        time.sleep(1)  # it is the second that is measured
        before, used = used, processor_time.of_descendants(os.getpid())
        if used - before < IDLE:
            return


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
        settle()
        took = read(spark, system, rows, name, directory / "checkpoints" / name)
        if number:
            yield "sink", rows.size, rows.count / wrote
            yield "source", rows.size, rows.count / took
