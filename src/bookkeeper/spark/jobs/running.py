"""How jobs over ledgers run on Spark: a task for each unit of work, progress at the driver, plain errors.

A job plans in the driver, gives every unit to one task, and gets rows back as a DataFrame. Tasks count what they did in
accumulators, which the driver looks at while it waits. All of a job's errors come out as errors of this package.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import RDD, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..errors import JobError, from_spark, plain_errors
from ..options import ReadOptions
from ..session import Session, session, session_once

T = TypeVar("T")

POLL_SECONDS = 0.25


@dataclass(frozen=True)
class JobProgress:
    """How far a job is."""

    rows: int
    total_rows: int
    bytes: int
    total_bytes: int
    seconds: float

    @property
    def eta(self) -> float | None:
        """Seconds that are left at the rate so far; None before anything was done."""
        done, total = (self.bytes, self.total_bytes) if self.total_bytes else (self.rows, self.total_rows)
        if not done:
            return None
        return max(0.0, self.seconds * (total - done) / done)


OnProgress = Callable[[JobProgress], None]
"""Called with a job's progress a few times a second, on a thread of its own."""


class Counter:
    """Counts a job's rows and bytes across all its tasks."""

    def __init__(self, spark: SparkSession) -> None:
        try:
            context = spark.sparkContext
        except PySparkException as error:
            raise JobError("jobs need a classic Spark session; a Spark Connect session can only read") from error
        self._rows = context.accumulator(0)
        self._bytes = context.accumulator(0)

    def add(self, rows: int, size: int) -> None:
        """In a task."""
        self._rows.add(rows)
        self._bytes.add(size)

    @property
    def rows(self) -> int:
        """At the driver."""
        return int(self._rows.value)

    @property
    def bytes(self) -> int:
        """At the driver."""
        return int(self._bytes.value)


def connected(options: ReadOptions) -> AbstractContextManager[Session]:
    """A client at the driver."""
    return session_once(options.uri, options.configuration(), options.metadata_timeout)


def on_units(
    spark: SparkSession,
    units: Sequence[T],
    work: Callable[[Session, T], Iterator[tuple[Any, ...]]],
    options: ReadOptions,
    schema: StructType,
) -> DataFrame:
    """The rows that `work(session, unit)` gives for each unit, a task each. Nothing runs before they are asked for."""
    if not units:
        return spark.createDataFrame([], schema)

    def run(here: Session, mine: Iterable[T]) -> Iterator[tuple[Any, ...]]:
        for unit in mine:
            yield from work(here, unit)

    return on_parts(spark, spark.sparkContext.parallelize(list(units), len(units)), run, options, schema)


def on_parts(
    spark: SparkSession,
    parts: RDD[T],
    work: Callable[[Session, Iterable[T]], Iterator[tuple[Any, ...]]],
    options: ReadOptions,
    schema: StructType,
) -> DataFrame:
    """The rows that `work(session, elements)` gives for each partition, a task each. Runs when they are asked for."""

    def run(mine: Iterable[T]) -> Iterator[tuple[Any, ...]]:
        with plain_errors(), session(options.uri, options.configuration(), options.metadata_timeout) as here:
            yield from work(here, mine)

    return spark.createDataFrame(parts.mapPartitions(run), schema, verifySchema=False)


def materialize(frame: DataFrame) -> DataFrame:
    """Run the job now, and keep its rows."""
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    kept.count()
    return kept


@contextmanager
def watched(counter: Counter, total_rows: int, total_bytes: int, on_progress: OnProgress | None) -> Iterator[None]:
    """While the body runs a Spark job: report its progress; turn what Spark raises into this package's errors."""
    done = threading.Event()
    started = time.monotonic()

    def report() -> None:
        assert on_progress is not None
        rows, size = counter.rows, counter.bytes
        on_progress(JobProgress(rows, total_rows, size, total_bytes, time.monotonic() - started))

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            report()
        report()

    watcher = threading.Thread(target=watch, name="bookkeeper-progress", daemon=True) if on_progress else None
    if watcher is not None:
        watcher.start()
    try:
        with spark_errors():
            yield
    finally:
        done.set()
        if watcher is not None:
            watcher.join()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turns what Spark raises at the driver into errors of this package: only its message is of use."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise from_spark(error) from error
