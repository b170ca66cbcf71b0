"""Reads metadata tables: the driver lists what there is, tasks read the records (spec streams §17.2).

The driver holds eight bytes for each ledger and the names of streams, and nothing of their records. A task gets some
thousand ledgers, or some streams, and gives its rows in batches. What is deleted after it was listed is left out.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...client.client import BookKeeper
from ...errors import NoSuchLedgerOnMetadataError, StreamNotFoundError
from ...streams.namespace import Namespace
from ..errors import plain_errors
from ..planning import AT_ONCE, fits, gather_bounded, selected_ids
from ..session import Connected, namespace_session, session
from .rows import Row, fragment_rows, ledger_row, segment_row, sink_row, stream_row
from .schemas import OF_NAMESPACES, TableOptions

LEDGERS_PER_TASK = 10_000
STREAMS_PER_TASK = 100
ROWS_PER_BATCH = 4096
"""And ledgers whose records a task holds at a time."""


class ReadRecords(InputPartition):
    """One task's work: ids of ledgers as 64-bit numbers, or names of streams; neither for tables of one task."""

    def __init__(self, ledgers: bytes = b"", streams: Sequence[str] = ()) -> None:
        super().__init__(None)
        self.ledgers = ledgers
        self.streams = tuple(streams)


class TableReader(DataSourceReader):
    """Reads one metadata table."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Lists what there is."""
        with plain_errors(), _connected(self._options) as connected:
            return list(connected.run(plan_table(connected.client, self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        if not isinstance(partition, ReadRecords):
            return  # Spark's way to say that there are none
        options = self._options
        schema = options.arrow_schema
        with plain_errors(), _connected(options) as connected:
            for rows in connected.stream(table_rows(connected.client, options, partition)):
                yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _connected(options: TableOptions) -> AbstractContextManager[Connected[Any]]:
    reads = options.reads
    opened = namespace_session if options.table in OF_NAMESPACES else session
    return opened(reads.uri, reads.configuration(), reads.metadata_timeout)


async def plan_table(client: BookKeeper | Namespace, options: TableOptions) -> list[ReadRecords]:
    """The tasks that read a table. `client`: a namespace for its tables."""
    if isinstance(client, BookKeeper):
        if options.table == "bookies":
            return [ReadRecords()]
        ids = array("q")
        async for ledger_id in selected_ids(client, options.reads.selection):
            ids.append(ledger_id)
        starts = range(0, len(ids), LEDGERS_PER_TASK)
        return [ReadRecords(ids[start : start + LEDGERS_PER_TASK].tobytes()) for start in starts]
    if options.table == "sinks":
        return [ReadRecords()]
    names = [name async for name in client.list(recursive=True)]
    starts = range(0, len(names), STREAMS_PER_TASK)
    return [ReadRecords(streams=names[start : start + STREAMS_PER_TASK]) for start in starts]


async def table_rows(
    client: BookKeeper | Namespace, options: TableOptions, work: ReadRecords
) -> AsyncGenerator[list[Row], None]:
    """The rows of one task, some at a time."""
    waiting: list[Row] = []
    async for some in _rows(client, options, work):
        waiting += some
        while len(waiting) >= ROWS_PER_BATCH:
            yield waiting[:ROWS_PER_BATCH]
            del waiting[:ROWS_PER_BATCH]
    if waiting:
        yield waiting


async def _rows(
    client: BookKeeper | Namespace, options: TableOptions, work: ReadRecords
) -> AsyncIterator[Sequence[Row]]:
    if isinstance(client, BookKeeper):
        rows = _bookie_rows(client) if options.table == "bookies" else _ledger_rows(client, options, work)
    elif options.table == "sinks":
        rows = _sink_rows(client)
    else:
        rows = _stream_rows(client, options.table, work.streams)
    async for some in rows:
        yield some


async def _ledger_rows(bk: BookKeeper, options: TableOptions, work: ReadRecords) -> AsyncIterator[Sequence[Row]]:
    async def look_up(ledger_id: int) -> list[Row]:
        try:
            metadata = await bk.get_ledger_metadata(ledger_id)
        except NoSuchLedgerOnMetadataError:
            return []  # deleted after it was listed, or a gap in a range
        if not fits(metadata, options.reads.selection):
            return []
        return [ledger_row(metadata)] if options.table == "ledgers" else list(fragment_rows(metadata))

    ids = array("q", work.ledgers)
    for start in range(0, len(ids), ROWS_PER_BATCH):
        for rows in await gather_bounded(look_up, ids[start : start + ROWS_PER_BATCH], AT_ONCE):
            yield rows


async def _bookie_rows(bk: BookKeeper) -> AsyncIterator[Sequence[Row]]:
    writable, readonly = await bk.writable_bookies(), await bk.readonly_bookies()
    disks = await bk.bookie_info()
    for bookie in sorted(await bk.all_bookies() | writable | readonly):
        state = "writable" if bookie in writable else "read-only" if bookie in readonly else "not running"
        disk = disks.get(bookie)
        total, free = (disk.total, disk.free) if disk is not None else (None, None)
        yield [{"bookie": str(bookie), "state": state, "disk_total": total, "disk_free": free}]


async def _stream_rows(namespace: Namespace, table: str, names: Sequence[str]) -> AsyncIterator[Sequence[Row]]:
    for name in names:
        try:
            info = await namespace.info(name)
        except StreamNotFoundError:
            continue  # deleted after it was listed
        if table == "streams":
            yield [stream_row(info)]
        else:
            for start in range(0, len(info.segments), ROWS_PER_BATCH):
                yield [segment_row(name, each) for each in info.segments[start : start + ROWS_PER_BATCH]]


async def _sink_rows(namespace: Namespace) -> AsyncIterator[Sequence[Row]]:
    async for sink in namespace.sinks():
        marker = await namespace.last_published(sink)
        if marker is not None:
            yield [sink_row(sink, marker)]
