"""Ends segments whose writer is gone (spec streams §8.5).

The ledger is opened with recovery: that fences the writer off and fixes the end. The last record there says how many
records the segment has. A segment without any is deleted, and its number used again. Oldest first: a segment can be
completed only after the one before it, which its first sequence id builds on.
"""

from __future__ import annotations

import logging

from ..errors import NoSuchEntryError, NoSuchLedgerOnMetadataError
from .dlsn import DLSN
from .formats.entry import decode_entry
from .formats.segment import SegmentMetadata
from .segments import SegmentStore, start_sequence_id

log = logging.getLogger(__name__)


async def recover_stream(store: SegmentStore, wall_ms: int) -> list[SegmentMetadata]:
    """Complete all segments in progress; those that are left, in order."""
    found = (await store.load()).segments
    done: list[SegmentMetadata] = []
    for segment in found:
        if segment.completed:
            done.append(segment)
            continue
        completed = await _completed(store, segment, start_sequence_id(done, segment.number), wall_ms)
        if completed is None:
            await store.remove(segment)
        else:
            await store.complete(completed)
            done.append(completed)
    return done


async def _completed(
    store: SegmentStore, segment: SegmentMetadata, sequence_id: int, wall_ms: int
) -> SegmentMetadata | None:
    """The segment with what its ledger tells, or None if that is empty."""
    try:
        recovered = await store.recover(segment)
    except NoSuchLedgerOnMetadataError:
        # who removes an empty segment deletes its ledger first, and may have come no further
        log.warning("segment %d is removed: its ledger %d is gone", segment.number, segment.ledger_id)
        return None
    async with recovered as ledger:
        try:
            entry = await ledger.read_last_entry()
        except NoSuchEntryError:
            return None
    last = decode_entry(entry.data, enveloped=segment.enveloped)[-1]
    return segment.complete(
        last_txid=last.txid,
        records=last.position,
        last=DLSN(segment.number, entry.entry_id, last.slot),
        completed_ms=wall_ms,
        start_sequence_id=sequence_id,
    )
