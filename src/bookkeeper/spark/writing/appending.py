"""What a task of a write does that must be quick: it appends to the streams themselves, at least once (spec streams
§17.6).

Theory of operation

A task becomes the writer of each stream that its rows go to, as any client would, and gives the streams back when it is
done. Readers see a row as soon as it is stored, and not when all tasks of the batch are done; the driver has nothing to
do. A task that fails or dies is repeated from its first row: what it had appended stays, so those rows are there twice.
None is lost, for a task is done only when all its rows are acknowledged.

A stream has one writer at a time: tasks with rows for the same one wait for each other. So that no two wait for each
other for ever, who has to wait gives back first what it has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...errors import BookKeeperError, NotOwnerError, StreamConflictError
from ...streams.errors import RecordTooLargeError
from ...streams.formats.codec import Compression
from ...streams.formats.keyed import Codec
from ...streams.namespace import Namespace
from ...streams.policy import WritePolicy
from ...streams.writer import StreamWriter
from .framing import Framing, make_keyed
from .tasks import Batch, Rows, Written, check_txids, refuse_missing, too_large

log = logging.getLogger(__name__)


class TaskAppender:
    """Appends the rows of one task; used as `TaskWriter` is."""

    skips = False

    def __init__(
        self,
        namespace: Namespace,
        batch: Batch,
        *,
        compression: Compression = Compression.NONE,
        create_streams: bool = True,
        most_streams: int = 64,
        timeout: float = 600.0,
    ) -> None:
        """`most_streams`: that the task has at the same time. `timeout`: seconds to wait for a stream that is written
        by somebody else."""
        self._namespace = namespace
        self._batch = batch
        self._policy = WritePolicy(compression=compression)
        self._create = create_streams
        self._most = most_streams
        self._timeout = timeout
        self._framing = Framing(namespace)
        self._open: dict[str, StreamWriter] = {}
        self._rows = 0

    async def begin(self) -> None:
        """To be called first; `finish` or `abort` must follow."""

    async def add(self, rows: Rows) -> None:
        """Append some rows, and wait until they are acknowledged.

        Raises `RecordTooLargeError`, `TxidOrderError`, `OptionError`, `StreamNotFoundError`, `NotOwnerError` (a stream
        is written by somebody else all the time), and what writers of streams raise. Then `abort`.
        """
        for stream, records in rows:
            payloads, txids = await self._framing.records(stream, records)
            if payloads:
                await self._append(stream, payloads, txids)

    async def finish(self, partition: int) -> Written:
        """Give the streams back; what the driver is to be told. Raises as `add`."""
        await self._give_back()
        return Written(self._batch, partition, rows=self._rows)

    async def abort(self) -> None:
        """Let go of the streams: what was appended stays."""
        while self._open:
            stream, writer = self._open.popitem()
            try:
                await writer.abort()
            except BookKeeperError as error:  # the others are to be given back all the same
                log.warning("stream %s is given back when the session ends: %s", stream, error)

    async def _append(self, stream: str, payloads: Sequence[bytes], txids: Sequence[int] | None) -> None:
        writer = self._open.get(stream)
        if writer is None:
            writer = self._open[stream] = await self._begin(stream)
        if txids is not None:
            check_txids(stream, txids, writer.last_txid, self._rows)
        try:
            await writer.append_batch(payloads, txids=txids)
        except RecordTooLargeError as error:
            raise too_large(stream, payloads, self._rows, error) from None
        self._rows += len(payloads)

    async def _begin(self, stream: str) -> StreamWriter:
        await refuse_missing(self._namespace, stream, create=self._create)
        if self._create:
            await self._namespace.create(stream, exist_ok=True)
        if stream in self._framing.made:
            await self._make_keyed(stream)
        if len(self._open) >= self._most:
            await self._give_back()
        try:
            return await self._namespace.open_writer(
                stream, policy=self._policy, lock_timeout=0 if self._open else self._timeout
            )
        except NotOwnerError:
            if not self._open:
                raise
        await self._give_back()
        return await self._namespace.open_writer(stream, policy=self._policy, lock_timeout=self._timeout)

    async def _make_keyed(self, stream: str) -> None:
        """Another task may do the same."""
        try:
            await make_keyed(self._namespace, stream)
        except StreamConflictError:
            if await self._namespace.codec(stream) is not Codec.KV1:
                raise

    async def _give_back(self) -> None:
        while self._open:
            _, writer = self._open.popitem()
            await writer.close()
