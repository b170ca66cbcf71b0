"""What a reader reads next, from the list of segments (spec streams §9.1, §9.3).

A reader that begins is lenient: what is truncated or gone at its position is skipped. One that is under way is not: it
would leave out records without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..dlsn import DLSN
from ..errors import TruncatedError
from ..formats.segment import FIRST_WITH_SEQUENCE, SegmentMetadata, Truncation
from ..segments import start_sequence_id


@dataclass(frozen=True, slots=True)
class Start:
    """Where a reader begins: in `segment` at `position`."""

    segment: SegmentMetadata
    position: DLSN


def find_start(segments: Sequence[SegmentMetadata], position: DLSN, *, ignore_truncation: bool = False) -> Start | None:
    """The first segment that has this position or later ones; None: it is not begun yet."""
    for segment in segments:
        if segment.number < position.segment:
            continue
        if ignore_truncation:
            return Start(numbered(segments, segment), max(position, DLSN(segment.number, 0, 0)))
        if segment.truncation is not Truncation.TRUNCATED:
            return Start(numbered(segments, segment), max(position, segment.first))
    return None


def find_next(
    segments: Sequence[SegmentMetadata], done: SegmentMetadata, *, ignore_truncation: bool = False
) -> SegmentMetadata | None:
    """The segment after one that was read to its end; None: it is not begun yet.

    It may have the same number, if the one that was read had no records and was removed. Raises `TruncatedError`.
    """
    for segment in segments:
        if segment.number < done.number or segment.ledger_id == done.ledger_id:
            continue
        expected = segment.number in (done.number, done.number + 1)
        if expected and (ignore_truncation or segment.truncation is Truncation.ACTIVE):
            return numbered(segments, segment)
        first = find_start(segments, DLSN(done.number + 1, 0, 0))
        raise TruncatedError(
            f"segment {done.number + 1} of the stream was truncated before it was read",
            str(first.position) if first is not None else "",
        )
    return None


def was_taken_back(segments: Sequence[SegmentMetadata], begun: SegmentMetadata) -> bool:
    """Whether a segment that was in progress, and whose ledger is gone before anything was read, had no records: then
    its number is used again. If it was completed, truncated and deleted meanwhile, a later one is there: the newest
    completed segment always stays.
    """
    if begun.completed:
        return False
    for segment in segments:
        if segment.ledger_id == begun.ledger_id:
            return not segment.completed
    numbers = {segment.number for segment in segments}
    return begun.number in numbers or max(numbers, default=0) < begun.number


def numbered(segments: Sequence[SegmentMetadata], segment: SegmentMetadata) -> SegmentMetadata:
    """With its sequence id, which one in progress gets from the one before it; that may still be in progress, too."""
    if segment.completed or segment.version < FIRST_WITH_SEQUENCE:
        return segment
    before = next((other for other in segments if other.number == segment.number - 1), None)
    if before is not None and not before.completed:
        return segment
    return replace(segment, start_sequence_id=start_sequence_id(segments, segment.number))


def lacks_number(segment: SegmentMetadata) -> bool:
    """Whether its sequence id was not known yet when the list was read: `numbered` with a later list may know."""
    return not segment.completed and segment.version >= FIRST_WITH_SEQUENCE and segment.start_sequence_id == -1


def find_txid(segments: Sequence[SegmentMetadata], txid: int) -> DLSN:
    """The beginning of the segment that has the first record with this transaction id or a higher one; where the next
    segment will begin, if all are lower. Right only for streams whose transaction ids never fall."""
    for segment in segments:
        left = segment.truncation is not Truncation.TRUNCATED
        if left and (not segment.completed or (segment.records > 0 and segment.last_txid >= txid)):
            return segment.first
    return after(segments)


def after(segments: Sequence[SegmentMetadata]) -> DLSN:
    """Behind all segments."""
    return DLSN(max((segment.number for segment in segments), default=0) + 1, 0, 0)
