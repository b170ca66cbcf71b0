"""Finds records in a segment (spec streams §9.1).

Transaction ids never fall along a stream, so the entry that has one is found by halving: each step reads one entry.
Java probes several entries at once; where both find a record, it is the same one.
"""

from __future__ import annotations

from ...client.entry import LedgerEntry
from ...client.reader import LedgerReader
from ..dlsn import DLSN
from ..errors import CorruptEntryError
from ..formats.entry import decode_entry
from ..formats.segment import SegmentMetadata
from ..formats.stored import StoredRecords


def decode_stored(segment: SegmentMetadata, entry: LedgerEntry) -> StoredRecords:
    """The records of an entry; those that were written before they got their place have the segment's transaction id.

    Raises `CorruptEntryError`.
    """
    try:
        stored = decode_entry(entry.data, enveloped=segment.enveloped)
    except CorruptEntryError as error:
        where = f"segment {segment.number}, ledger {segment.ledger_id}, entry {entry.entry_id}"
        raise CorruptEntryError(f"{where}: {error}", error.offset) from error
    return stored if stored.txids[0] >= segment.first_txid else stored.not_below(segment.first_txid)


async def find_in_ledger(ledger: LedgerReader, segment: SegmentMetadata, first: DLSN, txid: int) -> DLSN:
    """Where the first record from `first` on is that has this transaction id or a higher one; behind the last entry
    that can be read, if there is none.

    Raises `CorruptEntryError`, and what reading raises.
    """
    low, end = first.entry, ledger.last_add_confirmed + 1
    found = DLSN(segment.number, end, 0)
    while low < end:
        middle = (low + end) // 2
        stored = decode_stored(segment, await ledger.read_entry(middle))
        if stored.txids[-1] < txid:
            low = middle + 1
            continue
        end = middle
        found = DLSN(segment.number, middle, next(record.slot for record in stored if record.txid >= txid))
    return max(found, first)
