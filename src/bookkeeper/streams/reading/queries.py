"""What a stream holds (spec streams §9.4).

Every record says how many user records of its segment come before it, and so does every control record. So counting
needs one entry of a segment at most, however long it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from ...client.reader import LedgerReader
from ..dlsn import DLSN
from ..errors import StreamEmptyError
from ..formats.segment import SegmentMetadata, Truncation
from ..segments import SegmentStore
from .cursor import numbered
from .reader import EARLIEST, Record, RecordBatch, StreamReader
from .search import decode_stored


async def first_record(store: SegmentStore) -> Record:
    """The first one that is left. Raises `StreamEmptyError`."""
    async with aclosing(StreamReader(store, EARLIEST, tail=False).batches()) as batches:
        async for batch in batches:
            return next(batch.records())
    raise StreamEmptyError("the stream has no records")


async def last_record(store: SegmentStore) -> Record:
    """The last one that readers can see. Raises `StreamEmptyError`."""
    segments = (await store.load()).segments
    for segment in reversed(_left(segments)):
        if segment.completed and not segment.records:
            continue
        async with await store.open(segment) as ledger:
            for entry in range(await _end(ledger, segment) - 1, segment.first.entry - 1, -1):
                stored = decode_stored(segment, await ledger.read_entry(entry))
                users = stored.users()
                if users:
                    return list(RecordBatch(numbered(segments, segment), entry, users).records())[-1]
    raise StreamEmptyError("the stream has no records")


async def count_records(store: SegmentStore, start: DLSN, until: DLSN | None) -> int:
    """How many there are from one position to before another; None: to what readers can see now.

    What is truncated is not counted.
    """
    total = 0
    for segment in _left((await store.load()).segments):
        first = max(start, segment.first)
        if first.segment > segment.number or (until is not None and until <= DLSN(segment.number, 0, 0)):
            continue
        ends_here = until is not None and until.segment == segment.number
        if segment.completed and first <= DLSN(segment.number, 0, 0) and not ends_here:
            total += segment.records
            continue
        async with await store.open(segment) as ledger:
            last = until if ends_here and until is not None else segment.first.next_segment()
            total += max(await _before(ledger, segment, last) - await _before(ledger, segment, first), 0)
    return total


def _left(segments: Sequence[SegmentMetadata]) -> list[SegmentMetadata]:
    return [segment for segment in segments if segment.truncation is not Truncation.TRUNCATED]


async def _end(ledger: LedgerReader, segment: SegmentMetadata) -> int:
    """The first entry that cannot be read."""
    if not segment.completed:
        return await ledger.read_last_add_confirmed() + 1
    return ledger.last_add_confirmed + 1


async def _before(ledger: LedgerReader, segment: SegmentMetadata, position: DLSN) -> int:
    """User records of a segment before a position; all of them, if it is behind it."""
    if position <= DLSN(segment.number, 0, 0):
        return 0
    end = await _end(ledger, segment)
    beyond = position.segment > segment.number or position.entry >= end
    if not end:
        return 0
    stored = decode_stored(segment, await ledger.read_entry(end - 1 if beyond else position.entry))
    if not beyond:
        for record in stored:
            if not record.flags and record.slot >= position.slot:
                return record.position - 1
    return stored[-1].position
