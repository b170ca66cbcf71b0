"""Appends to a stream (spec streams §8, §15.6).

Theory of operation

A writer first ends what former writers left (`recovery`), then begins a segment with its first append. Appends go
through one lane, so their order is the order of positions; they leave it before they are acknowledged. After an append
the segment may be due to be rolled: the next one is begun, then the old one is finished and completed, while the lane
is held, so records of the new one never overtake those of the old one.

`append_nowait` only notes a record (`pending`): who holds the lane next takes it over, first of all. A task does it if
nobody else comes.

What fails ends the writer: it is not known how much of the stream it still owns. The next writer recovers.
Until the caller opened it, nobody else must write: that is the lock's business. If somebody does all the same, the
store refuses the next change (`NotOwnerError`), and ledgers are fenced by whoever recovers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Self

from ..client.arguments import check_payloads, payload_bytes
from ..errors import BookKeeperError, IncorrectParameterError, StreamError
from ..runtime.api import Runtime
from ..runtime.tasks import TaskScope
from .dlsn import DLSN
from .errors import EndOfStreamError, RecordTooLargeError, StreamClosedError, TxidOrderError
from .formats.records import END_TXID, LARGEST_PAYLOAD
from .packing import Run, check_size
from .pending import Pending, Piece, pieces
from .policy import Visibility, WritePolicy
from .recovery import recover_stream
from .segment_writer import SegmentWriter
from .segments import SegmentStore, check_first_txid, next_number, start_sequence_id


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the records of an append are, in order. Made when asked for: a million positions cost a second."""

    runs: Sequence[Run]

    def __len__(self) -> int:
        return sum(run.records for run in self.runs)

    def __iter__(self) -> Iterator[DLSN]:
        for (segment, entry, slot), count in self.runs:
            for n in range(count):
                yield DLSN(segment, entry, slot + n)

    @property
    def first(self) -> DLSN:
        return self.runs[0].first

    @property
    def last(self) -> DLSN:
        first, count = self.runs[-1]
        return first._replace(slot=first.slot + count - 1)


class StreamWriter:
    """The one writer of a stream; `open_writer` makes one.

    An async context manager: leaving it closes the writer, or aborts it when cancelled.
    """

    def __init__(self, runtime: Runtime, store: SegmentStore, policy: WritePolicy, last_txid: int) -> None:
        self._runtime = runtime
        self._store = store
        self._policy = policy
        self._last_txid = last_txid
        self._tasks = TaskScope(runtime, "stream writer")
        self._lane = asyncio.Lock()
        self._segment: SegmentWriter | None = None
        self._error: StreamError | None = None
        self._pending = Pending(policy.pending_bytes)
        self._taking: asyncio.Task[None] | None = None

    @property
    def last_txid(self) -> int:
        """The highest transaction id in the stream; -999 if there is none."""
        return self._last_txid

    async def append(self, payload: bytes, *, txid: int | None = None) -> DLSN:
        """Append a record and wait until it is acknowledged; where it is.

        - `txid`: its transaction id, not lower than that of the record before. None: the time in milliseconds.

        Raises `TxidOrderError`, `RecordTooLargeError`: nothing was appended. `NotOwnerError` (another client has taken
        over), `TransmitError`: the record may be part of the stream; the writer is of no use any more.
        `EndOfStreamError`, `StreamClosedError`.
        """
        return (await self.append_batch((payload,), txid=txid)).last

    async def append_batch(
        self,
        payloads: Sequence[bytes],
        *,
        txid: int | None = None,
        txids: Sequence[int] | None = None,
        as_sets: bool = False,
    ) -> Positions:
        """Append records in as few entries as they fit, and wait until all are acknowledged; where they are.

        - `txid`: of all of them, or `txids`: of each, in order.
        - `as_sets`: in record sets, which cost 4 bytes a record in place of 20. They need one `txid`.

        Not atomic: after an error some of the first records may be part of the stream. Raises as `append`.
        """
        if not payloads:
            return Positions(())
        if as_sets and txids is not None:
            raise IncorrectParameterError("a record set has one transaction id: give txid in place of txids")
        async with self._turn():
            ids = self._txids(len(payloads), txid, txids)
            segment, runs = await self._place(payloads, ids, as_sets=as_sets)
        await self._stored(segment, runs)
        return Positions(runs)

    def append_nowait(self, payload: bytes, *, txid: int | None = None) -> asyncio.Future[DLSN]:
        """Append a record without waiting; its future gives what `append` gives, or raises. They end in order.

        A future need not be waited for: `flush` and `close` wait for all, and raise what ended the writer. Cancelling
        it takes the record back only if it has not left yet.

        Raises `BackpressureError` if the policy's `pending_bytes` are not acknowledged yet: wait for an earlier one.
        `TxidOrderError`, `RecordTooLargeError`, and what ended the writer; nothing was appended.
        """
        if self._error is not None:
            raise self._error
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        if len(payload) > LARGEST_PAYLOAD:
            check_size((payload,), LARGEST_PAYLOAD)
        last = self._pending.last_txid
        if last is None:
            last = self._last_txid
        given = max(last, self._runtime.wall_ms()) if txid is None else txid
        if not max(last, 0) <= given < END_TXID:
            _check_order(given, given, last)
        future = self._pending.post(payload, given)
        if self._taking is None:
            self._taking = self._tasks.spawn(self._take(), name="pending appends")
        return future

    async def append_many(self, payloads: Iterable[bytes] | AsyncIterable[bytes]) -> int:
        """Append all that an iterable gives, and wait until it is acknowledged; how many records that were.

        - `payloads`: what comes from an asynchronous one leaves as it comes; others are taken in batches. May be
          without an end: no more than the policy's `pending_bytes` are under way.

        Raises as `append_nowait`, and what the iterable raises; what it gave before may be part of the stream then.
        """
        check_payloads(payloads)
        if isinstance(payloads, AsyncIterable):
            return await self._append_as_they_come(payloads)
        count = 0
        placed: tuple[SegmentWriter, list[Run]] | None = None
        for piece in pieces(payloads):
            async with self._turn():
                placed = await self._place(piece, self._txids(len(piece), None, None), as_sets=False)
            count += len(piece)
        if placed is not None:
            await self._stored(*placed)
        return count

    async def _append_as_they_come(self, payloads: AsyncIterable[bytes]) -> int:
        newest: asyncio.Future[DLSN] | None = None
        count = 0
        async for payload in payloads:
            await self._pending.room(len(payload))
            newest = self.append_nowait(payload)
            count += 1
        if newest is not None:
            await newest
        return count

    async def flush(self) -> int:
        """Wait until all that was appended is acknowledged, and readers can see it; the last transaction id."""
        async with self._turn():
            if self._segment is not None:
                await self._segment.flush()
            await self._pending.settled()
            return self._last_txid

    async def roll(self) -> None:
        """Go on in a new segment, unless the open one has no records."""
        async with self._turn():
            if self._segment is not None and self._segment.packer.last is not None:
                await self._roll(self._segment)

    async def mark_end(self) -> None:
        """Seal the stream for ever, and close the writer."""
        async with self._turn():
            await self._pending.settled()
            segment = await self._open_segment(END_TXID if self._segment is None else self._last_txid)
            await segment.end_stream()
            self._last_txid = END_TXID
        await self.close()

    async def close(self) -> None:
        """Finish and complete the open segment. Idempotent. Raises what stood in the way, once; the next owner of the
        stream recovers it then."""
        async with self._lane:
            if self._error is not None:
                await self._end(self._error)
                return
            try:
                with self._fatal():
                    await self._take_over(self._pending.posted)
                if self._segment is not None:
                    await self._segment.flush()
                    await self._pending.settled()
                    await self._finish(self._segment)
            finally:
                await self._end(StreamClosedError("the writer is closed"))

    async def abort(self) -> None:
        """Let go at once: what was not acknowledged may be lost; the next owner recovers the segment. Idempotent."""
        await self._end(StreamClosedError("the writer was aborted"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self.abort()
        else:
            await self.close()

    # --- the lane ---

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None, None]:
        """Alone in the lane, behind all that was given before. What fails in here ends the writer."""
        before = self._pending.posted
        async with self._lane:
            self._check()
            with self._fatal():
                await self._take_over(before)
                yield

    async def _place(
        self, payloads: Sequence[bytes], ids: Sequence[int], *, as_sets: bool
    ) -> tuple[SegmentWriter, list[Run]]:
        """Send records, in the lane; where they are."""
        segment = await self._open_segment(ids[0])
        runs = await segment.append(payloads, ids, as_sets=as_sets)
        self._last_txid = ids[-1]
        if self._is_roll_due(segment):
            await self._roll(segment)
        return segment, runs

    async def _stored(self, segment: SegmentWriter, runs: Sequence[Run]) -> None:
        """Wait until they are acknowledged."""
        with self._fatal():
            await segment.acknowledged(runs[-1].first.entry)
            if self._policy.visibility is Visibility.ACK and segment is self._segment:
                await segment.flush()

    async def _take(self) -> None:
        """Take over what was given, if nobody else does."""
        try:
            while self._pending:
                async with self._turn():
                    pass
        except StreamError as error:
            self._pending.fail(error)
        finally:
            self._taking = None

    async def _take_over(self, before: int) -> None:
        """Place what was given up to a moment, as `Pending.posted` was then."""
        while (taken := self._pending.take(before)) is not None:
            try:
                placed = await self._place(taken.payloads, taken.txids, as_sets=False)
            except BaseException as error:
                self._pending.refuse(taken, error)
                raise
            self._tasks.spawn(self._settle(taken, *placed), name="appended")

    async def _settle(self, taken: Piece, segment: SegmentWriter, runs: Sequence[Run]) -> None:
        try:
            await self._stored(segment, runs)
        except BookKeeperError as error:
            self._pending.refuse(taken, error)
        except asyncio.CancelledError:
            self._pending.refuse(taken, self._error or StreamClosedError("the writer was closed"))
            raise
        else:
            self._pending.settle(taken, Positions(runs))

    # --- segments ---

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _end(self, error: StreamError) -> None:
        """Whatever fails on the way, the stream is given back."""
        self._fail(error)
        try:
            await self._tasks.close()
            if self._segment is not None:
                await self._segment.release()
        finally:
            await self._store.release()

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        """What fails in here ends the writer, but for a record that was refused."""
        try:
            yield
        except (RecordTooLargeError, TxidOrderError, IncorrectParameterError):
            raise
        except BookKeeperError as error:
            self._fail(
                error if isinstance(error, StreamError) else StreamClosedError(f"the writer has failed: {error}")
            )
            raise

    def _fail(self, error: StreamError) -> None:
        if self._error is None:
            self._error = error
        if self._segment is not None:
            self._segment.stop(self._error)
        self._pending.fail(self._error)

    async def _open_segment(self, first_txid: int) -> SegmentWriter:
        self._check()
        if self._segment is None:
            self._segment = await self._start(first_txid)
        return self._segment

    async def _start(self, first_txid: int) -> SegmentWriter:
        state = await self._store.load()
        check_first_txid(state, first_txid)
        metadata, ledger = await self._store.start(next_number(state), first_txid)
        return SegmentWriter(metadata, ledger, self._policy, self._tasks, self._runtime.now())

    def _is_roll_due(self, segment: SegmentWriter) -> bool:
        return self._policy.is_roll_due(
            size=segment.size,
            records=segment.packer.records,
            age=self._runtime.now() - segment.started,
        )

    async def _roll(self, segment: SegmentWriter) -> None:
        """Begin the next segment first: readers of the old one then find where to go on."""
        self._segment = await self._start(self._last_txid)
        await self._finish(segment)

    async def _finish(self, segment: SegmentWriter) -> None:
        """One without records, begun by a roll just before the end, is taken back: its number is used again."""
        await segment.close()
        if segment.packer.last is None:
            await self._store.remove(segment.metadata)
            return
        segments = (await self._store.load()).segments
        await self._store.complete(
            segment.metadata.complete(
                last_txid=segment.packer.last_txid,
                records=segment.packer.sealed_records,
                last=segment.packer.last,
                completed_ms=self._runtime.wall_ms(),
                start_sequence_id=start_sequence_id(segments, segment.metadata.number),
            )
        )

    def _txids(self, count: int, txid: int | None, txids: Sequence[int] | None) -> Sequence[int]:
        """One for each record, not below the last one that was placed. Raises `TxidOrderError`."""
        last = self._last_txid
        if txids is None:
            given = max(last, self._runtime.wall_ms()) if txid is None else txid
            txids = [given] * count
        elif len(txids) != count:
            raise IncorrectParameterError(f"{len(txids)} transaction ids for {count} records")
        elif any(after < before for before, after in pairwise(txids)):
            raise TxidOrderError("the transaction ids of a batch must not fall")
        _check_order(txids[0], txids[-1], last)
        return txids


def _check_order(first: int, newest: int, last: int) -> None:
    """Transaction ids of records behind one with `last`. Raises `TxidOrderError`, `EndOfStreamError`."""
    if last == END_TXID:
        raise EndOfStreamError("the stream was sealed")
    if first < max(last, 0) or newest >= END_TXID:
        raise TxidOrderError(f"transaction ids {first} to {newest} after {last}")


async def open_writer(runtime: Runtime, store: SegmentStore, policy: WritePolicy | None = None) -> StreamWriter:
    """A writer of the stream, after what former writers left is recovered. The store is the stream's owner, and is
    released when the writer ends, or cannot be opened."""
    try:
        segments = await recover_stream(store, runtime.wall_ms())
    except BaseException:
        await store.release()
        raise
    last_txid = max((segment.last_txid for segment in segments), default=-999)
    return StreamWriter(runtime, store, policy or WritePolicy(), last_txid)
