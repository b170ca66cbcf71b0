"""What Spark calls to write streams (spec streams §17.6).

For each batch of a query Spark makes a writer and sends copies of it to the tasks; another one, in another process,
commits or aborts. So the name of the run is made with the writer, and comes back in the messages. A batch write uses
copies of one writer for everything.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...errors import BookKeeperError
from ...streams.namespace import Namespace
from ..errors import JobError, OptionError, plain_errors
from ..session import Connected, namespace_session
from .appending import TaskAppender
from .committing import commit, end_runs
from .fingerprint import read_fingerprint
from .shapes import rows_of
from .sink_options import Delivery, Layout, SinkOptions, layout
from .tasks import UNCOUNTED, Batch, TaskWriter, Written

log = logging.getLogger(__name__)


class TaskMessage(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, written: Written) -> None:
        self.written = written


def plan(options: SinkOptions, schema: StructType, overwrite: bool = False) -> Layout:
    """Raises `OptionError` for what cannot be written."""
    if overwrite and options.delivery is Delivery.AT_LEAST_ONCE:
        raise OptionError("delivery=at-least-once appends: it does not go with overwriting, nor outputMode complete")
    return layout([(field.name, field.dataType.simpleString()) for field in schema.fields], options)


def _connected(options: SinkOptions) -> AbstractContextManager[Connected[Namespace]]:
    return namespace_session(options.uri, options.configuration(), options.metadata_timeout)


def _task(namespace: Namespace, options: SinkOptions, batch: Batch) -> TaskWriter | TaskAppender:
    if options.delivery is Delivery.AT_LEAST_ONCE:
        return TaskAppender(
            namespace,
            batch,
            compression=options.compression,
            create_streams=options.create_streams,
            most_streams=options.max_ledgers,
            timeout=options.commit_timeout,
        )
    return TaskWriter(
        namespace,
        batch,
        compression=options.compression,
        create_streams=options.create_streams,
        max_ledgers=options.max_ledgers,
    )


def _write(options: SinkOptions, columns: Layout, batch: Batch, rows: Iterator[pa.RecordBatch]) -> TaskMessage:
    """One task."""
    context = TaskContext.get()
    assert context is not None
    with plain_errors(), _connected(options) as connected:
        writer = _task(connected.client, options, batch)
        connected.run(writer.begin())
        try:
            for some in rows:  # all of them, also if they are not written: else Spark gives the process up
                if not writer.skips:
                    connected.run(writer.add(rows_of(some, columns, options.stream)))
            return TaskMessage(connected.run(writer.finish(context.partitionId())))
        except BaseException:
            try:
                connected.run(writer.abort())
            except BookKeeperError as error:
                log.warning("what a failed task has left is cleaned up later: %s", error)
            raise


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Written | None]:
    return [message.written if isinstance(message, TaskMessage) else None for message in messages]


def _is_done(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Whether there is nothing to commit, because tasks have appended."""
    if options.delivery is Delivery.EXACTLY_ONCE:
        return False
    log.info("tasks appended %d rows", sum(each.rows for each in _told(messages) if each is not None))
    return True


class RecordWriter(DataSourceArrowWriter):
    """A batch write: all of it becomes visible at once."""

    def __init__(self, options: SinkOptions, columns: Layout, overwrite: bool = False) -> None:
        """`overwrite`: the streams that rows go to have nothing else afterwards."""
        self._options = options
        self._columns = columns
        self._overwrite = overwrite
        counted = options.epoch is not None
        self._batch = Batch(options.sink_id or UNCOUNTED, options.epoch or 0, uuid.uuid4().hex, None, counted)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task."""
        return _write(self._options, self._columns, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish."""
        options, told = self._options, _told(messages)
        if _is_done(options, messages):
            return
        with plain_errors(), _connected(options) as connected:
            if self._overwrite and not any(each is None or each.rows or each.skipped for each in told):
                raise JobError("there are no rows to overwrite anything with; Namespace.truncate empties a stream")
            connected.run(
                commit(
                    connected.client,
                    self._batch.epoch,
                    told,
                    reset=options.reset,
                    create_streams=options.create_streams,
                    overwrite=self._overwrite,
                    merge=options.merge,
                    timeout=options.commit_timeout,
                )
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what was written and is not published."""
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return
        with plain_errors(), _connected(self._options) as connected:
            connected.run(end_runs(connected.client, _told(messages), self._batch))


class QueryWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query: each batch is published once."""

    def __init__(self, options: SinkOptions, columns: Layout, overwrite: bool = False) -> None:
        """`overwrite`: each batch is all that the streams have afterwards that its rows go to."""
        self._options = options
        self._columns = columns
        self._overwrite = overwrite
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        epoch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        with plain_errors():
            if query is None or epoch is None:
                raise JobError("Spark does not say which batch of which query this is")
        batch = Batch(self._options.sink_id or query, int(epoch), self._run, query, counted=True)
        return _write(self._options, self._columns, batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish."""
        options = self._options
        if _is_done(options, messages):
            return
        with plain_errors(), _connected(options) as connected:
            connected.run(
                commit(
                    connected.client,
                    batchId,
                    _told(messages),
                    fingerprint=read_fingerprint(options.checkpoint, batchId),
                    reset=options.reset,
                    create_streams=options.create_streams,
                    overwrite=self._overwrite,
                    merge=options.merge,
                    timeout=options.commit_timeout,
                )
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete what was written and is not published; what the messages do not tell of, the next batch deletes."""
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return
        with plain_errors(), _connected(self._options) as connected:
            connected.run(end_runs(connected.client, _told(messages)))
