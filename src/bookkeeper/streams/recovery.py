"""Ends segments whose writer is gone (spec streams §8.5).

The ledger is opened with recovery: that fences the writer off and fixes the end. The last record there says how many
records the segment has. A segment without any is deleted, and its number used again. Oldest first: a segment can be
completed only after the one before it, which its first sequence id builds on. There may be two without records: a
writer begins a segment before it has finished the one before.

A segment whose ledger is gone counts as one without records: whoever took it back deleted the ledger first, as Java's
writers do, and came no further. If a later segment has records, that cannot be: then records are lost, and the stream
is not touched.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..errors import NoSuchEntryError, NoSuchLedgerOnMetadataError, StreamStateError
from .dlsn import DLSN
from .formats.entry import decode_entry
from .formats.segment import SegmentMetadata
from .segments import SegmentStore, start_sequence_id

log = logging.getLogger(__name__)


async def recover_stream(store: SegmentStore, wall_ms: int) -> list[SegmentMetadata]:
    """Complete all segments in progress; those that are left, in order."""
    found = (await store.load()).segments
    done: list[SegmentMetadata] = []
    empty: list[SegmentMetadata] = []
    for segment in found:
        if segment.completed and not empty:
            done.append(segment)
            continue
        completed = segment if segment.completed else await _ended(store, segment, done, wall_ms)
        if completed is None:
            empty.append(segment)
        elif empty:
            raise StreamStateError(
                f"segment {empty[0].number} has no records, or its ledger {empty[0].ledger_id} is gone, but segment "
                f"{segment.number} behind it has some: records are lost"
            )
        else:
            await store.complete(completed)
            done.append(completed)
    for segment in reversed(empty):  # so that there is no gap at any moment
        await store.remove(segment)
    return done


async def _ended(
    store: SegmentStore, segment: SegmentMetadata, done: Sequence[SegmentMetadata], wall_ms: int
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
        start_sequence_id=start_sequence_id(done, segment.number),
    )
