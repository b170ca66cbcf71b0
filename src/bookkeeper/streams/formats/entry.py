"""Entries: the envelope around records (spec streams §5.1).

    offset  size  field
    0       1     version: 1
    1       4     flags; bits 0-1: codec
    5       4     bytes of the records, not compressed
    9       4     bytes of the records, as stored
    13      ...   records, perhaps compressed

Segments whose records have a version below 4 have no envelopes: there an entry is its records. Which kind it is cannot
be seen in the entry.
"""

from __future__ import annotations

from struct import Struct

from ..errors import CorruptEntryError
from .codec import Buffer, Compression, pack, unpack
from .records import decode_records
from .stored import StoredRecords

HEADER = Struct(">biii")
HEADER_SIZE = HEADER.size
VERSION = 1

LARGEST_ENTRY = 1_044_480
"""Bytes of an entry before it is compressed, its header included."""


def encode_entry(records: bytes | memoryview, compression: Compression = Compression.NONE) -> bytes:
    """The entry for encoded records."""
    stored = pack(records, compression)
    return b"".join((HEADER.pack(VERSION, compression, len(records), len(stored)), stored))


def open_entry(entry: Buffer) -> Buffer | bytes:
    """The encoded records of an entry; a view of it, if it is one and is not compressed. Raises `CorruptEntryError`."""
    if len(entry) < HEADER_SIZE:
        raise CorruptEntryError("the header of an entry is cut", len(entry))
    version, flags, size, stored = HEADER.unpack_from(entry)
    if version != VERSION:
        raise CorruptEntryError(f"there is no version {version} of entries", 0)
    if stored != len(entry) - HEADER_SIZE:
        raise CorruptEntryError(f"{stored} bytes of records are stored as {len(entry) - HEADER_SIZE}", 9)
    return unpack(entry[HEADER_SIZE:], flags, size, 5)


def decode_entry(entry: bytes, *, enveloped: bool = True) -> StoredRecords:
    """All records of an entry, at least one; sets are taken apart. Raises `CorruptEntryError`."""
    records = decode_records(bytes(open_entry(entry)) if enveloped else entry)
    if not records:
        raise CorruptEntryError("an entry has no records", len(entry))
    return records
