"""The data source `bookkeeper`: `spark.read.format("bookkeeper")`.

PySpark finds it without a call, because the package `pyspark_bookkeeper` has a `DefaultSource`. Every method here runs
in a Python worker of Spark: the constructor, `schema`, `pushFilters` and `partitions` on the driver's machine, `read`
on the executors. What a task needs travels in its partition and in the pickled reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from ..types import MAX_LEDGER_ID
from .errors import told_plainly
from .options import ReadOptions
from .planning import ALL, Bounds, EntryRange, plan_read
from .reading import RangeReader, Tally
from .rows import BatchMaker, adopt_schema, spark_schema
from .session import Session, session


class ReadRange(InputPartition):
    """One task's work: ranges of entries, in order."""

    def __init__(self, ranges: tuple[EntryRange, ...]) -> None:
        super().__init__(None)
        self.ranges = tuple(tuple(piece) for piece in ranges)


class BatchReader(DataSourceReader):
    """Reads ledgers in parallel."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._ledgers: Bounds = ALL
        self._entries: Bounds = ALL

    def partitions(self) -> list[InputPartition]:
        """Plans the read: one partition a task."""
        options = self._options
        with told_plainly(), _session(options) as connected:
            plan = connected.run(plan_read(connected.client, options, self._ledgers, self._entries))
        return [ReadRange(ranges) for ranges in plan.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        if not isinstance(partition, ReadRange):
            return  # Spark's way to say that there are none
        options = self._options
        ranges = [EntryRange(*piece) for piece in partition.ranges]
        tally = Tally()
        with told_plainly(), _session(options) as connected:
            reader = RangeReader(connected.client, ranges, options, tally)
            yield from BatchMaker(options).batches(connected.stream(reader.pieces()))
            tally.report()


class PushdownBatchReader(BatchReader):
    """The same, with filters on ledger_id and entry_id applied before anything is read.

    A class of its own, because Spark refuses one that can take filters while `spark.sql.python.filterPushdown.enabled`
    is off, as it is by default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes what it can honour exactly, and gives back the rest."""
        for one in filters:
            if not self._push(one):
                yield one

    def _push(self, one: Filter) -> bool:
        attribute = getattr(one, "attribute", None)
        if attribute == ("ledger_id",):
            narrowed = _narrow(self._ledgers, one)
            self._ledgers = narrowed or self._ledgers
        elif attribute == ("entry_id",):
            narrowed = _narrow(self._entries, one)
            self._entries = narrowed or self._entries
        else:
            return False
        return narrowed is not None


def _narrow(bounds: Bounds, one: Filter) -> Bounds | None:
    """The bounds with a filter applied; None if it is none that can be."""
    if isinstance(one, IsNotNull):
        return bounds  # ids never are null
    if isinstance(one, In):
        return bounds.one_of(number for number in one.value if number is not None)
    value: Any = getattr(one, "value", None)
    if not isinstance(value, int):
        return None
    if isinstance(one, EqualTo):
        return bounds.within(value, value)
    if isinstance(one, GreaterThan):
        return bounds.within(value + 1, MAX_LEDGER_ID)
    if isinstance(one, GreaterThanOrEqual):
        return bounds.within(value, MAX_LEDGER_ID)
    if isinstance(one, LessThan):
        return bounds.within(0, value - 1)
    if isinstance(one, LessThanOrEqual):
        return bounds.within(0, value)
    return None


def _session(options: ReadOptions) -> AbstractContextManager[Session]:
    return session(options.uri, options.configuration(), options.metadata_timeout)


class BookKeeperDataSource(DataSource):
    """Ledgers as rows, an entry each. Options: see `options`, and docs/spark.md."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with told_plainly():
            self._read = ReadOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """What to say to `spark.read.format`."""
        return "bookkeeper"

    def schema(self) -> StructType:
        """The columns asked for."""
        return spark_schema(self._read.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch read."""
        with told_plainly():
            return self._reader(adopt_schema(self._read, schema))

    def _reader(self, options: ReadOptions) -> BatchReader:
        return BatchReader(options)


class PushdownDataSource(BookKeeperDataSource):
    """What `bookkeeper.spark.enable` registers in place of the one found by itself."""

    def _reader(self, options: ReadOptions) -> BatchReader:
        return PushdownBatchReader(options)
