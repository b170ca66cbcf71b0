"""What Spark calls to read streams, once or on and on (spec streams §17.3, §17.4).

Of a query the reader lives in one process of the driver's machine; what a task needs travels in its partition. Nothing
that Spark asks for depends on what the process remembers: it may be another one the next time.

Spark starts processes that only make a reader, to send it elsewhere. The client is imported where it is used, so that
those do not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...errors import BookKeeperError
from ..errors import plain_errors
from ..rows import BatchMaker, adopt_schema
from .offsets import LEDGERS, STREAMS, Offset
from .records import RecordBatches, adopt_record_schema
from .stream_options import StreamOptions

if TYPE_CHECKING:
    from ...client.client import BookKeeper
    from ...streams.namespace import Namespace
    from ..session import Connected
    from .following import Follower, Work

T = TypeVar("T")


class ReadWork(InputPartition):
    """One task's work."""

    def __init__(self, cluster: str, work: Work) -> None:
        super().__init__(None)
        self.cluster = cluster
        """Address of the cluster that has the ledgers."""
        self.ranges = tuple(tuple(piece) for piece in work.ranges)
        self.facts = dict(work.facts)
        self.archived = work.archived


def read_work(options: StreamOptions, work: ReadWork) -> Iterator[pa.RecordBatch]:
    """A task's rows."""
    compared = options.where.columns
    if not compared:
        return _rows(options, work)
    wide = options.with_columns(tuple(dict.fromkeys((*options.columns, *compared))))
    return options.where.filtered(_rows(wide, work), list(options.columns))


def _rows(options: StreamOptions, work: ReadWork) -> Iterator[pa.RecordBatch]:
    """All of it."""
    from ..planning import EntryRange
    from ..reading import RangeReader, Tally
    from ..session import session
    from .archived_rows import ArchiveReader

    reads = options.reads
    tally = Tally()
    if work.archived:
        with plain_errors():
            yield from ArchiveReader(options).batches(work.archived)
        return
    with plain_errors(), session(work.cluster, reads.configuration(), reads.metadata_timeout) as connected:
        reader = RangeReader(connected.client, [EntryRange(*piece) for piece in work.ranges], reads, tally)
        pieces = connected.stream(reader.pieces())
        maker = RecordBatches(options, work.facts) if options.kind == STREAMS else BatchMaker(reads)
        yield from maker.batches(pieces)
        tally.report()


class _Driver:
    """A follower, and the loop it runs on. It is made anew in each process."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._follower: Follower | None = None
        self._follows: Namespace | BookKeeper | None = None
        self.cluster = ""

    def run(self, work: Callable[[Follower], Coroutine[Any, Any, T]]) -> T:
        """What it gives."""
        from ...runtime.real import RealRuntime
        from ...streams.namespace import Namespace
        from .following import Follower

        with plain_errors(), _connected(self._options) as connected:
            client = connected.client
            if self._follower is None or self._follows is not client:  # a connection that was idle is closed
                target = self._follower.target if self._follower is not None else None
                bk, namespace = (client.client, client) if isinstance(client, Namespace) else (client, None)
                self._follower = Follower(bk, namespace, self._options, RealRuntime())
                self._follower.target = target
                self._follows, self.cluster = client, bk.service_uri
            return connected.run(work(self._follower))


def _connected(options: StreamOptions) -> AbstractContextManager[Connected[Any]]:
    from ..session import namespace_session, session

    reads = options.reads
    if options.kind == LEDGERS:
        return session(reads.uri, reads.configuration(), reads.metadata_timeout)
    return namespace_session(reads.uri, reads.configuration(), reads.metadata_timeout)


class RecordReader(DataSourceReader):
    """Reads streams once, from one place to another."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plans the read: what is read is fixed here."""
        options = self._options

        async def plan(follower: Follower) -> list[Work]:
            starts = await follower.places(options.starting)
            return await follower.work_between(starts, await follower.places(options.ending))

        driver = _Driver(options)
        works = driver.run(plan)
        return [ReadWork(driver.cluster, work) for work in works]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        if isinstance(partition, ReadWork):  # another one is Spark's way to say that there are none
            yield from read_work(self._options, partition)


class QueryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams or ledgers on and on."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._driver = _Driver(options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts."""
        start = self._driver.run(lambda follower: follower.begin())
        return start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits, so that Spark knows that there is any: which ones there are is known here."""
        limits = self._options.limits
        if limits.none:
            least = self._options.patience.entries
            return ReadMinRows(least) if least else ReadAllAvailable()
        rows = limits.entries or limits.records
        return ReadMaxRows(rows) if rows is not None else ReadMaxBytes(limits.bytes or 1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on there is nothing new."""
        self._driver.run(lambda follower: follower.fix_target())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` if there is nothing to read."""
        limited = not isinstance(limit, ReadAllAvailable)
        with plain_errors():
            begin = Offset.from_json(start)
        end = self._driver.run(lambda follower: follower.advance(begin, limited=limited))
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the logs as they were seen last: for `sources[].latestOffset` of the query's progress."""
        tails = self._driver.run(lambda follower: follower.tails())
        return tails.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch; the same for the same offsets."""
        with plain_errors():
            begin, stop = Offset.from_json(start), Offset.from_json(end)
        works = self._driver.run(lambda follower: follower.work(begin, stop))
        self._driver.run(lambda follower: follower.remember(begin.start_for(stop)))
        return [ReadWork(self._driver.cluster, work) for work in works]

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done. Spark says so late, and not of the last one: nothing but `sourceId` depends on it."""
        if self._options.source_id is None:
            return
        with plain_errors():
            reached = Offset.from_json(end)
        self._driver.run(lambda follower: follower.remember(reached))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        if isinstance(partition, ReadWork):
            yield from read_work(self._options, partition)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; what follows the logs stays."""
        return {"_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"])  # type: ignore[misc]


class RefusedQuery(DataSourceStreamReader):
    """Says what is wrong with the options, at the first call that Spark reports as it is."""

    def __init__(self, error: BookKeeperError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raises the error."""
        with plain_errors():
            raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        """Raises the error."""
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        """Raises the error."""
        self.initialOffset()
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Nothing."""
        return iter(())


def adopt_query_schema(options: StreamOptions, schema: StructType) -> StreamOptions:
    """The options for a schema that the user gave. Raises `OptionError`."""
    if options.kind == STREAMS:
        return adopt_record_schema(options, schema)
    reads = adopt_schema(options.reads, schema)
    return replace(options, reads=reads, columns=reads.columns)
