"""The data source `bookkeeper`: `spark.read.format("bookkeeper")`.

PySpark finds it without a call, because the package `pyspark_bookkeeper` has a `DefaultSource`. Every method here runs
in a Python worker of Spark: the constructor, `schema` and `partitions` on the driver's machine, `read`
on the executors. What a task needs travels in its partition and in the pickled reader.

Of one query Spark starts several such processes, one after the other, of which most ask for a schema or make a reader:
the client, and all that it needs, is imported where it is used.

The reader takes no filters from Spark (`pushFilters`): Spark keeps one plan for each `load()`, and the filters of one
query would decide what another query on the same DataFrame reads. `where` does the same where it is safe, at load time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ..errors import BookKeeperError
from .errors import plain_errors
from .options import ReadOptions
from .rows import BatchMaker, adopt_schema, spark_schema
from .streaming.queries import QueryReader, RecordReader, RefusedQuery, adopt_query_schema
from .streaming.records import adopt_record_schema, record_schema
from .streaming.stream_options import StreamOptions, columns_of, is_of_queries, is_of_streams
from .tables.schemas import TableOptions, is_of_tables
from .writing.sink_options import SinkOptions

if TYPE_CHECKING:
    from .planning import EntryRange
    from .session import Session


class ReadRange(InputPartition):
    """One task's work: ranges of entries, in order."""

    def __init__(self, ranges: tuple[EntryRange, ...]) -> None:
        super().__init__(None)
        self.ranges = tuple(tuple(piece) for piece in ranges)


class BatchReader(DataSourceReader):
    """Reads ledgers in parallel."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plans the read: one partition a task."""
        from .planning import plan_read

        options = self._options
        with plain_errors(), _session(options) as connected:
            plan = connected.run(plan_read(connected.client, options, keep_snapshots=False))
        return [ReadRange(ranges) for ranges in plan.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        if not isinstance(partition, ReadRange):
            return  # Spark's way to say that there are none
        from .planning import EntryRange
        from .reading import RangeReader, Tally

        options = self._options
        ranges = [EntryRange(*piece) for piece in partition.ranges]
        tally = Tally()
        with plain_errors(), _session(options) as connected:
            reader = RangeReader(connected.client, ranges, options, tally)
            yield from BatchMaker(options).batches(connected.stream(reader.pieces()))
            tally.report()


def _session(options: ReadOptions) -> AbstractContextManager[Session]:
    from .session import session

    return session(options.uri, options.configuration(), options.metadata_timeout)


class BookKeeperDataSource(DataSource):
    """Ledgers as rows, an entry each, and streams, a record each. Options: see `options`, and docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """What to say to `spark.read.format`."""
        return "bookkeeper"

    def schema(self) -> StructType:
        """The columns asked for."""
        with plain_errors():
            if is_of_tables(self.options):
                return TableOptions.parse(self.options).spark_schema
            if is_of_streams(self.options):
                # Spark does not say yet whether it reads once or on and on: what goes with only one comes out later.
                return record_schema(columns_of(self.options))
            options = {key: value for key, value in self.options.items() if not is_of_queries([key])}
            return spark_schema(ReadOptions.parse(options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch read."""
        with plain_errors():
            if is_of_tables(self.options):
                from .tables.scanning import TableReader

                return TableReader(TableOptions.parse(self.options).adopt(schema))
            if is_of_streams(self.options):
                return RecordReader(adopt_record_schema(StreamOptions.parse(self.options, streaming=False), schema))
            return BatchReader(adopt_schema(ReadOptions.parse(self.options), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `readStream`. What is wrong the reader tells: of an error that is raised here Spark tells another."""
        try:
            options = StreamOptions.parse(self.options, streaming=True)
            return QueryReader(adopt_query_schema(options, schema))
        except BookKeeperError as error:
            return RefusedQuery(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from .writing.writers import RecordWriter, plan

        with plain_errors():
            options = SinkOptions.parse(self.options, streaming=False)
            return RecordWriter(options, plan(options, schema, overwrite), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `writeStream`."""
        from .writing.writers import QueryWriter, plan

        with plain_errors():
            options = SinkOptions.parse(self.options, streaming=True)
            return QueryWriter(options, plan(options, schema, overwrite), overwrite)
