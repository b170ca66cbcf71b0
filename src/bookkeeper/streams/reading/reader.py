"""Reads a stream (spec streams §9, §15.6).

Theory of operation

Segments are read one after the other, each to the end of its ledger: only the ledger knows where it ends, the segment's
record says it for whole records at best. A ledger that is still written is tailed; when it is closed and read, the list
of segments says what follows. Where nothing follows yet, the reader waits for the list to change.

Ledgers are read ahead, within the bounds of the client (`LedgerReader.entries`, `tail`). What is given out is a batch,
the records of one entry: making a generator step for each record would cost more than decoding it.

A position can be stored, and read on from in another process: `position` is where the next record will be.

A reader is used in one way at a time: as an iterator of records, of batches, or by `read`, which takes a few records
and may end its wait without losing any.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from ...client.entry import LedgerEntry
from ...client.reader import LedgerReader
from ...errors import IncorrectParameterError, NoSuchLedgerError, NoSuchLedgerOnMetadataError
from ..dlsn import DLSN
from ..errors import EndOfStreamError, IdleReaderError, TruncatedError
from ..formats.records import END
from ..formats.segment import SegmentMetadata
from ..formats.stored import StoredRecords
from ..segments import SegmentStore
from .cursor import Start, after, find_next, find_start, find_txid, lacks_number, numbered, was_taken_back
from .right import ReadRight
from .search import decode_stored, find_in_ledger
from .waiting import Waiting

T = TypeVar("T")

EARLIEST = DLSN(0, 0, 0)
"""Begin with the first record that is left."""


@dataclass(frozen=True, slots=True)
class TxId:
    """Begin with the first record that has this transaction id or a higher one."""

    txid: int
    """The least that is read."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Begin after the last record that can be read now."""


LATEST = Latest()


class Record(NamedTuple):
    """A record of a stream."""

    payload: bytes
    """What was appended."""
    txid: int
    """Its transaction id: never lower than that of the record before it."""
    sequence_id: int
    """Its number in the stream, from 0; negative where segments have no sequence ids."""
    segment: int
    """The number of the segment that has it."""
    entry: int
    """The id of its entry there."""
    slot: int
    """Which record of the entry it is."""

    @property
    def position(self) -> DLSN:
        """Where it is; reading from `position.next()` gives what comes after it."""
        return DLSN(self.segment, self.entry, self.slot)


class RecordBatch(NamedTuple):
    """The records of one entry, as far as they were asked for; at least one."""

    segment: SegmentMetadata
    entry: int
    stored: StoredRecords

    @property
    def next_position(self) -> DLSN:
        """Reading from here gives what comes after this batch."""
        return DLSN(self.segment.number, self.entry + 1, 0)

    def before(self, position: DLSN) -> RecordBatch | None:
        """What is before this position; None: nothing."""
        if self.next_position <= position:
            return self
        if (self.segment.number, self.entry) != position[:2]:
            return None
        stored = self.stored.where(slot < position.slot for slot in self.stored.slots)
        return self._replace(stored=stored) if stored else None

    def payloads(self) -> list[bytes]:
        return list(self.stored.payloads)

    def records(self) -> Iterator[Record]:
        stored, before = self.stored, self.segment.sequence_id - 1
        return map(
            tuple.__new__,  # much faster than a call of the class
            repeat(Record),
            zip(
                stored.payloads,
                stored.txids,
                map(before.__add__, stored.positions),
                repeat(self.segment.number),
                repeat(self.entry),
                stored.slots,
                strict=False,
            ),
        )


class _TakenBack(Exception):
    """A segment was begun, and is gone without ever having had a record."""


class StreamReader:
    """Reads a stream from a position on. Every iteration begins at `position`, and moves it."""

    def __init__(
        self,
        store: SegmentStore,
        start: DLSN | TxId | Latest = EARLIEST,
        *,
        until: DLSN | None = None,
        tail: bool = True,
        idle_timeout: float | None = None,
        ignore_truncation: bool = False,
        right: ReadRight | None = None,
    ) -> None:
        self._store = store
        self._start: DLSN | TxId | Latest | Record = start
        """A record: behind it."""
        self._until = until
        self._tail = tail
        self._idle_timeout = idle_timeout
        self._ignore_truncation = ignore_truncation
        self._right = right
        self._waiting: Waiting[Record] | None = None
        """What `read` has begun to wait for, or has left."""
        self._lowest = -1
        """Records with lower transaction ids are left out."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of what `read` holds, and of the right to read alone; iterations hold nothing in between. Without such
        a right the reader may be used again."""
        waiting, self._waiting = self._waiting, None
        try:
            if waiting is not None:
                await waiting.close()
        finally:
            if self._right is not None:
                await self._right.release()

    async def ack(self) -> None:
        """Store `position` for the subscriber: all before it has been worked on, its next reader begins there.

        Raises `NotOwnerError` if somebody else reads for it now; `IncorrectParameterError` for a reader without one.
        """
        if self._right is None:
            raise IncorrectParameterError("the reader has no subscriber: give one to open_reader")
        self._right.check()
        await self._right.commit(await self.locate())

    @property
    def position(self) -> DLSN | TxId | Latest:
        """Where the next record will be; before the first was read, where to begin."""
        start = self._start
        return start.position.next() if isinstance(start, Record) else start

    @position.setter
    def position(self, position: DLSN | TxId | Latest) -> None:
        """The next iteration, or `read`, begins here; an iteration that is under way is not changed."""
        self._start = position
        self._lowest = -1
        if self._waiting is not None:
            self._waiting.abandon()
            self._waiting = None

    async def __aiter__(self) -> AsyncGenerator[Record, None]:
        """All records in order. Ends as `batches` does."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for record in batch.records():
                    self._start = record
                    yield record

    async def read(self, most: int = 500, *, timeout: float | None = None) -> list[Record]:
        """The next records, as many as are at hand, in order; waits for the first one.

        - `most`: records that it gives at most.
        - `timeout`: seconds to wait. None: for ever.

        Empty when the time is over, and where nothing more can be read (a reader that does not tail, or `until`).
        Nothing is lost by a wait that ends early, be it by `timeout` or cancelled. Raises as `batches`; the next call
        begins at `position` again.
        """
        if most < 1:
            raise IncorrectParameterError(f"{most} records are to be read: give 1 or more")
        if self._waiting is None:
            self._waiting = Waiting(self._batches_from_here())
        waiting = self._waiting
        try:
            records = await waiting.take(most, timeout)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError) and self._waiting is waiting:
                self._waiting = None
            raise
        if records:
            self._start = records[-1]
        elif waiting.is_over:
            self._waiting = None
        return records

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """All records in order, those of an entry together. Moves `position` before a batch is given out.

        A reader that tails waits for more, and ends only with the stream or at `until`; others end where nothing more
        can be read.

        Raises `EndOfStreamError` for a stream that was sealed, after its last record; `TruncatedError` when records
        that were not read yet are gone; `CorruptEntryError`; `IdleReaderError` when nothing came for `idle_timeout`
        seconds; and what the client's reads raise.
        """
        async with aclosing(self._batches_from_here()) as batches:
            async for batch in batches:
                self._start = batch.next_position
                yield batch

    async def _batches_from_here(self) -> AsyncGenerator[RecordBatch, None]:
        """As `batches`, but `position` moves only from what was asked for to where that is."""
        until = self._until
        start = await self.locate()
        if until is not None and start >= until:
            return
        async with aclosing(self._in_order(start)) as batches:
            while (batch := await self._within_time(batches)) is not None:
                if self._right is not None:
                    self._right.check()
                wanted = batch if until is None else batch.before(until)
                if wanted is not None:
                    yield wanted
                if until is not None and batch.next_position >= until:
                    return

    async def _within_time(self, batches: AsyncGenerator[RecordBatch, None]) -> RecordBatch | None:
        """The next one; None at the end. Raises `IdleReaderError`."""
        if self._idle_timeout is None:
            return await anext(batches, None)
        limit = asyncio.timeout(self._idle_timeout)
        try:
            async with limit:
                return await anext(batches, None)
        except TimeoutError:
            if not limit.expired():
                raise  # of a request
            raise IdleReaderError(f"the stream had nothing to read for {self._idle_timeout:g} s") from None

    async def _in_order(self, position: DLSN) -> AsyncGenerator[RecordBatch, None]:
        start = await self._find(
            lambda segments: find_start(segments, position, ignore_truncation=self._ignore_truncation)
        )
        if start is None:
            return
        segment, position = start.segment, start.position
        before: SegmentMetadata | None = None
        taken_back: int | None = None
        while True:
            try:
                async with aclosing(self._batches_of(segment, position)) as batches:
                    async for batch in batches:
                        yield batch
                before, taken_back = segment, None
            except _TakenBack:
                taken_back = segment.ledger_id
            following = await self._find(partial(self._follow, before, position, taken_back))
            if following is None:
                return
            segment, position = following.segment, following.position

    def _follow(
        self,
        done: SegmentMetadata | None,
        position: DLSN,
        taken_back: int | None,
        segments: Sequence[SegmentMetadata],
    ) -> Start | None:
        """Where to go on behind a segment; without one, where to begin. `taken_back`: a ledger that is gone."""
        left = [segment for segment in segments if segment.ledger_id != taken_back]
        if done is None:
            return find_start(left, position, ignore_truncation=self._ignore_truncation)
        following = find_next(left, done, ignore_truncation=self._ignore_truncation)
        return Start(following, DLSN(following.number, 0, 0)) if following is not None else None

    async def _find(self, look: Callable[[Sequence[SegmentMetadata]], T | None]) -> T | None:
        """What is found in the list of segments, once it is there; None if it is not and the reader does not tail."""
        if not self._tail:
            return look((await self._store.load()).segments)
        async with aclosing(self._store.watch()) as lists:
            async for segments in lists:
                found = look(segments)
                if found is not None:
                    return found
        return None

    async def locate(self) -> DLSN:
        """Turn a transaction id or *latest* into a position, as the stream is now; `position` from here on."""
        self._start = found = await self._resolve(self.position)
        return found

    async def _resolve(self, start: DLSN | TxId | Latest) -> DLSN:
        if isinstance(start, DLSN):
            return start
        segments = (await self._store.load()).segments
        if isinstance(start, TxId):
            self._lowest = start.txid
            return await self._search(segments, start.txid)
        if not segments or segments[-1].completed:
            return after(segments)
        async with await self._store.open(segments[-1]) as ledger:
            return DLSN(segments[-1].number, await ledger.read_last_add_confirmed() + 1, 0)

    async def _search(self, segments: Sequence[SegmentMetadata], txid: int) -> DLSN:
        """Where the first record with this transaction id or a higher one is; the end, if there is none."""
        at = find_txid(segments, txid)
        segment = next((segment for segment in segments if segment.number == at.segment), None)
        if segment is None or txid <= segment.first_txid:
            return at
        try:
            async with await self._store.open(segment) as ledger:
                if not segment.completed:
                    await ledger.read_last_add_confirmed()
                return await find_in_ledger(ledger, segment, at, txid)
        except (NoSuchLedgerError, NoSuchLedgerOnMetadataError):
            return at  # whoever reads it finds out what that means

    async def _batches_of(self, segment: SegmentMetadata, position: DLSN) -> AsyncGenerator[RecordBatch, None]:
        """The batches of one segment, to the end of its ledger. Raises `_TakenBack`."""
        untouched = position.entry == 0
        try:
            async with (
                await self._store.open(segment) as ledger,
                aclosing(self._entries(ledger, position.entry)) as entries,
            ):
                async for entry in entries:
                    untouched = False
                    first_slot = position.slot if entry.entry_id == position.entry else 0
                    stored = decode_stored(segment, entry)
                    wanted = stored.users(first_slot, self._lowest)
                    if wanted:
                        if lacks_number(segment):  # it has records, so by now the one before it is completed
                            segment = numbered((await self._store.load()).segments, segment)
                        yield RecordBatch(segment, entry.entry_id, wanted)
                    if stored.flags is not None and stored.flags[-1] & END:
                        raise EndOfStreamError("the stream was sealed; all of it was read")
        except (NoSuchLedgerError, NoSuchLedgerOnMetadataError) as error:
            raise await self._removed(segment, error, untouched=untouched) from error

    async def _removed(self, segment: SegmentMetadata, error: Exception, *, untouched: bool) -> Exception:
        """What it means that a ledger is gone. Raises `StreamNotFoundError` if all of the stream is gone."""
        segments = (await self._store.load()).segments
        if untouched and was_taken_back(segments, segment):
            return _TakenBack()
        left = find_start(segments, DLSN(segment.number + 1, 0, 0))
        return TruncatedError(
            f"segment {segment.number} of the stream was removed before it was read: {error}",
            str(left.position) if left is not None else "",
        )

    def _entries(self, ledger: LedgerReader, first: int) -> AsyncGenerator[LedgerEntry, None]:
        return ledger.tail(first) if self._tail else _confirmed(ledger, first)


async def _confirmed(ledger: LedgerReader, first: int) -> AsyncGenerator[LedgerEntry, None]:
    """What can be read now."""
    if first <= ledger.last_add_confirmed:
        async with aclosing(ledger.entries(first)) as entries:
            async for entry in entries:
                yield entry
