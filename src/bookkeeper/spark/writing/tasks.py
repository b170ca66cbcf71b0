"""What a task of a write does: ledgers of its own, which are nobody's yet (spec streams §17.6).

Theory of operation

All tasks of a batch, and all attempts of each, share a *run* (`streams.publishing.staging`). A task writes a draft for
each stream that its rows go to, and tells the driver of them in a message. Nobody reads a draft. What no message tells
of that the driver has got, as that of an attempt that was repeated, is deleted with the run.

A run of which nothing is heard for long counts as dead. So each task says now and then that it is alive, also while it
waits for rows, and before it has written any: for a batch may take days, in tasks of minutes, or in one that gets its
first row when the others have long been done.

A batch may be repeated because the driver died after it had published it. Then the marker of the sink says so, and the
task drains its rows without writing them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BookKeeperError, StreamNotFoundError
from ...runtime.tasks import TaskScope
from ...streams.errors import RecordTooLargeError, StagingLostError, TxidOrderError
from ...streams.formats.codec import Compression
from ...streams.formats.records import END_TXID
from ...streams.namespace import Namespace
from ...streams.policy import WritePolicy
from ...streams.publishing.marker import Marker, State
from ...streams.publishing.staged import StagedSegment, Staging
from ...streams.publishing.staging import run_path, sink_path
from ..errors import OptionError
from .bodies import are_worth_it, bodies
from .framing import Framing, Given
from .shapes import Column

log = logging.getLogger(__name__)

ENTRY_BYTES = 480 << 10
"""Of an entry of a draft: large ones, for nobody waits for a record; two of them are what a task of a read asks for
at a time."""

BEAT_SECONDS = 600.0
"""How often a run is heard of, at least."""

Rows = Sequence[tuple[str, Given]]
"""With the stream that they go to."""

UNCOUNTED = "spark-batch"
"""The sink of batch writes that are not counted: their runs are below it, and it has no marker."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What the tasks of one batch have in common."""

    sink: str
    epoch: int
    run: str
    """Its name."""
    query: str | None
    counted: bool
    """Whether the epoch counts: it is published once."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a task tells the driver."""

    batch: Batch
    partition: int
    run: str | None = None
    """The path of the run, if anything was written."""
    drafts: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """By stream; `SegmentDraft.to_json`."""
    rows: int = 0
    keyed: Sequence[str] = ()
    """New streams, whose codec is to be kv1."""
    skipped: bool = False
    """Nothing was written, because the epoch is published."""


def is_published(marker: Marker | None, batch: Batch) -> bool:
    """Whether an epoch, or a later one, is published: the driver will say what that means."""
    if marker is None or not batch.counted or marker.state is not State.DONE:
        return False
    same = marker.query == batch.query or marker.query is None or batch.query is None
    return same and marker.epoch >= batch.epoch


async def refuse_missing(namespace: Namespace, stream: str, *, create: bool) -> None:
    """Raises `StreamNotFoundError` if a stream is not there, and shall not be made."""
    if not create and not await namespace.exists(stream):
        raise StreamNotFoundError(f"there is no stream {stream}, and createStreams is false")


def too_large(stream: str, payloads: Sequence[bytes], before: int, error: RecordTooLargeError) -> RecordTooLargeError:
    """Which row of a task it is; `before`: rows before the payloads."""
    largest = max(range(len(payloads)), key=lambda number: len(payloads[number]))
    return RecordTooLargeError(
        f"stream {stream}, row {before + largest + 1} of the task: {len(payloads[largest])} bytes are too many: {error}"
    )


def check_txids(stream: str, txids: Sequence[int | None], last: int, before: int) -> None:
    """Raises `TxidOrderError` that names the row if a transaction id is missing, none, or lower than one before it.

    - `last`: the highest one in the stream before these. `before`: rows of the task before these.
    """
    for row, txid in enumerate(txids, before + 1):
        if txid is None or not 0 <= txid < END_TXID:
            raise TxidOrderError(f"stream {stream}, row {row} of the task: {txid} is no transaction id")
        if txid < last:
            raise TxidOrderError(
                f"stream {stream}, row {row} of the task: transaction id {txid} comes after {last}: in a stream they "
                "never fall, so sort the rows by txid"
            )
        last = txid


class TaskWriter:
    """Writes the rows of one task: `begin`, `add` again and again, then `finish`, or `abort` after an error."""

    def __init__(
        self,
        namespace: Namespace,
        batch: Batch,
        *,
        compression: Compression = Compression.NONE,
        create_streams: bool = True,
        max_ledgers: int = 64,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self._namespace = namespace
        self._batch = batch
        self._policy = WritePolicy(buffer_bytes=ENTRY_BYTES, compression=compression)
        self._create = create_streams
        self._max_ledgers = max_ledgers
        self._beat_seconds = beat_seconds
        self._tasks = TaskScope(namespace.client.context.runtime, "task of a write")
        self._staging: Staging | None = None
        self._lost: StagingLostError | None = None
        self._framing = Framing(namespace)
        self._open: dict[str, StagedSegment] = {}
        self._rows = 0
        self.skips = False
        """Whether the batch is published already: its rows are not written then."""

    async def begin(self) -> None:
        """To be called first; `finish` or `abort` must follow."""
        self.skips = is_published(await self._namespace.last_published(self._batch.sink), self._batch)
        if not self.skips:
            self._tasks.spawn(self._keep_alive(), name="heartbeat")

    async def add(self, rows: Rows) -> None:
        """Write some rows.

        Raises `RecordTooLargeError`, `TxidOrderError`, `OptionError` (too many streams), `StreamNotFoundError`,
        `StagingLostError` (the batch is over), and what the client raises. Then `abort` what was written.
        """
        if self.skips:
            return
        if self._lost is not None:
            raise self._lost
        for stream, records in rows:
            payloads, txids = await self._framing.records(stream, records)
            if payloads:
                await self._append(stream, payloads, txids)

    async def finish(self, partition: int) -> Written:
        """Store all; what the driver is to be told. Raises as `add`."""
        drafts = [(name, (await segment.finish()).to_json()) for name, segment in self._open.items()]
        await self._tasks.close()
        path = self._staging.path if self._staging is not None else None
        keyed = sorted(self._framing.made)
        return Written(self._batch, partition, path, drafts, self._rows, keyed, self.skips)

    async def abort(self) -> None:
        """Delete what is not finished; the rest goes with the run."""
        await self._tasks.close()
        for segment in self._open.values():
            await segment.abort()

    async def _append(self, stream: str, payloads: Sequence[bytes], txids: Sequence[int] | None) -> None:
        segment = self._open.get(stream)
        if txids is not None:
            last = segment.last_txid if segment is not None else await self._last_txid(stream)
            check_txids(stream, txids, last, self._rows)
        if segment is None:
            segment = self._open[stream] = await self._begin(stream)
        if txids is None and isinstance(payloads, Column) and are_worth_it(payloads.array):
            await segment.append_bodies(bodies(payloads.array, segment.records + 1, ENTRY_BYTES))
            self._rows += len(payloads)
            return
        try:
            await segment.append_batch(payloads, txids=txids)
        except RecordTooLargeError as error:
            raise too_large(stream, payloads, self._rows, error) from None
        self._rows += len(payloads)

    async def _last_txid(self, stream: str) -> int:
        """The highest transaction id that is in the stream already."""
        if not await self._namespace.exists(stream):
            return 0
        info = await self._namespace.info(stream)
        return 0 if info.sealed else info.last_txid  # that it is sealed says who publishes

    async def _begin(self, stream: str) -> StagedSegment:
        if len(self._open) >= self._max_ledgers:
            raise OptionError(
                f"a task has rows for more than {self._max_ledgers} streams, and each takes a ledger: raise "
                "maxLedgersPerTask, or let the rows of a stream go to few tasks, as with repartition('stream')"
            )
        await refuse_missing(self._namespace, stream, create=self._create)
        if self._staging is None:
            batch = self._batch
            self._staging = await self._namespace.stage(batch.sink, batch.epoch, query=batch.query, run=batch.run)
        return await self._staging.open_segment(stream, self._policy)

    async def _keep_alive(self) -> None:
        """Until the task is over, or its run. As long as it has written nothing, there may be no run yet."""
        path = run_path(sink_path(self._namespace.path, self._batch.sink), self._batch.epoch, self._batch.run)
        while True:
            joined = self._staging
            try:
                await (joined or await self._namespace.join_staging(path)).beat(after=self._beat_seconds)
            except StagingLostError as error:
                if joined is not None:
                    self._lost = error
                    return
            except BookKeeperError as error:
                log.warning("run %s could not be told to be alive: %s", path, error)
            await asyncio.sleep(self._beat_seconds / 2)
