"""Whether a stream is whole (spec streams §4.3, §5.4, §9.2).

The list of segments is checked by itself, then each segment against its ledger: that every record can be read, that
records count on by one, that transaction ids never fall, and that the segment says of its end what is there. Nothing is
changed, and a writer is not disturbed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from ...client.entry import LedgerEntry
from ...client.reader import LedgerReader
from ...errors import BKError, NoSuchLedgerError, NoSuchLedgerOnMetadataError
from ..dlsn import DLSN
from ..errors import CorruptEntryError
from ..formats.records import END, END_TXID
from ..formats.segment import FIRST_NUMBERED, FIRST_WITH_SEQUENCE, SegmentMetadata, Truncation
from ..segments import SegmentStore
from .search import decode_stored

MOST_FINDINGS = 100
"""Of one segment; more say nothing new."""


@dataclass(slots=True)
class CheckedSegment:
    """What was seen of a segment."""

    segment: SegmentMetadata
    """As the list of segments has it."""
    records: int = 0
    """User records that were read."""
    bytes: int = 0
    """Of their payloads."""
    findings: list[str] = field(default_factory=list)
    """What is wrong, a line each; empty: it is whole."""
    is_gone: bool = False
    """Its ledger was deleted; right for a segment that is truncated."""

    def find(self, what: str) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(what)


async def verify_stream(store: SegmentStore) -> AsyncGenerator[CheckedSegment, None]:
    """Check all segments, oldest first; each is given out when it was read.

    Raises `StreamNotFoundError`. A bookie or store that does not answer is a finding of the segment.
    """
    segments = (await store.load()).segments
    before: SegmentMetadata | None = None
    for segment in segments:
        checked = CheckedSegment(segment, findings=check_order(before, segment))
        await _check_ledger(store, checked)
        yield checked
        before = segment


def check_order(before: SegmentMetadata | None, segment: SegmentMetadata) -> list[str]:
    """What is wrong with a segment behind another one. Pure."""
    if before is None:
        return []
    found = []
    if min(before.version, segment.version) >= FIRST_NUMBERED and segment.number != before.number + 1:
        found.append(f"follows segment {before.number}: segments between them are missing")
    if segment.first_txid < before.last_txid and before.completed:
        found.append(
            f"begins with transaction id {segment.first_txid}, and the one before ends with {before.last_txid}"
        )
    numbered = min(before.version, segment.version) >= FIRST_WITH_SEQUENCE and before.completed and segment.completed
    if numbered and segment.sequence_id != before.sequence_id + before.records:
        found.append(
            f"begins with record {segment.sequence_id} of the stream, not {before.sequence_id + before.records}"
        )
    if segment.completed and not before.completed:
        found.append(f"is completed, and segment {before.number} before it is not")
    if segment.truncation is not Truncation.ACTIVE and before.truncation is not Truncation.TRUNCATED:
        found.append(f"is truncated, and segment {before.number} before it is not")
    return found


async def _check_ledger(store: SegmentStore, checked: CheckedSegment) -> None:
    segment = checked.segment
    try:
        async with await store.open(segment) as ledger:
            if segment.completed and not ledger.closed:
                checked.find(f"is completed, but its ledger {segment.ledger_id} is open")
            await _check_records(ledger, checked)
    except (NoSuchLedgerError, NoSuchLedgerOnMetadataError):
        checked.is_gone = True
        if segment.truncation is not Truncation.TRUNCATED:
            checked.find(f"its ledger {segment.ledger_id} does not exist")
    except BKError as error:
        checked.find(f"its ledger {segment.ledger_id} cannot be read: {error}")


async def _check_records(ledger: LedgerReader, checked: CheckedSegment) -> None:
    segment = checked.segment
    seen = _Seen(segment)
    last = ledger.last_add_confirmed if segment.completed else await ledger.read_last_add_confirmed()
    if last >= 0:
        async with aclosing(ledger.entries(0, last)) as entries:
            async for entry in entries:
                try:
                    seen.look_at(entry, checked)
                except CorruptEntryError as error:
                    checked.find(str(error))
    if segment.completed:
        seen.compare(checked)


class _Seen:
    """How far a segment was read."""

    def __init__(self, segment: SegmentMetadata) -> None:
        self._segment = segment
        self._position = 0
        self._txid = segment.first_txid
        self._last: DLSN | None = None
        self._end: DLSN | None = None
        """Of control records, too: a segment that was recovered names the last record of any kind."""

    def look_at(self, entry: LedgerEntry, checked: CheckedSegment) -> None:
        """Raises `CorruptEntryError`."""
        for record in decode_stored(self._segment, entry):
            at = DLSN(self._segment.number, entry.entry_id, record.slot)
            place = f"entry {entry.entry_id}, slot {record.slot}"
            if record.txid < self._txid:
                checked.find(f"{place}: transaction id {record.txid} after {self._txid}")
            self._txid = max(self._txid, record.txid)
            self._end = at
            if record.flags & END:
                self._last = at
            elif not record.flags:
                if record.position != self._position + 1:
                    checked.find(f"{place}: record {record.position} of the segment after record {self._position}")
                self._position, self._last = record.position, at
                checked.records += 1
                checked.bytes += len(record.payload)

    def compare(self, checked: CheckedSegment) -> None:
        """With what the segment says of itself."""
        segment = self._segment
        if checked.records != segment.records:
            checked.find(f"has {checked.records} records, its metadata says {segment.records}")
        if self._last is None or self._end is None or segment.version < FIRST_NUMBERED:
            return
        if (segment.last_entry, segment.last_slot) not in (self._last[1:], self._end[1:]):
            said = f"{segment.last_entry}, slot {segment.last_slot}"
            checked.find(f"ends at entry {self._last.entry}, slot {self._last.slot}, its metadata says entry {said}")
        if self._txid != segment.last_txid and segment.last_txid != END_TXID:
            checked.find(f"ends with transaction id {self._txid}, its metadata says {segment.last_txid}")
