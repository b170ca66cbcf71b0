"""The bytes of a journal file, `<hex id>.txn` (spec bookie-storage §3.1 to §3.3, safety §3.5).

All numbers are big endian.

File header; records start at 0 (version 1), 8 (2 to 4) or 512 (5 and 6)

    offset  size  field
    0       4     "BKLG"
    4       4     version, 1 to 6; version 1 has no header at all
    8       36    seal header (files written here, version 5 and 6), else zeros
    44      468   zeros

Seal header: says that every batch of the file ends in a seal, and what came before the file

    8       4     "BKSL"
    12      2     seal version, 1
    14      2     flags, 0
    16      8     id of this journal
    24      8     id of the journal before it, 0 if there is none
    32      8     end of that journal: it has records up to there, all synced, and what follows is not part of it
    40      4     CRC32C of bytes [0, 40)

Record

    0       4     length of what follows
    4       8     ledger id
    12      8     entry id, or what kind of record it is:
                  >= 0       an entry; the payload is the packaged entry, ids included
                  -0x1000    master key; follows: int32 size, key             since version 3
                  -0x2000    the ledger is fenced; nothing follows             since version 4
                  -0x8000    explicit LAC; follows: int32 size, request body   since version 6
                  -0x4000    used in memory by Java, never written
                  else       unknown, skipped

A length of 0 is the end of the data (pre-allocated zeros). A length of -0x100 is padding (version 5 and 6):

    0       4     -0x100
    4       4     n
    8       n     skipped unread by Java; here the seal of the batch that the padding ends, and zeros

A batch is what goes to the disk together; padding brings its end to a multiple of `journalAlignmentSize`.

Seal: 44 bytes at the start of the padding's body

    0       4     "BKSL"
    4       2     seal version, 1
    6       2     flags; bit 0: the last two fields are there
    8       8     id of this journal (rejects batches of an earlier life of the file)
    16      8     offset of the batch's first record
    24      4     number of records in the batch
    28      4     CRC32C of the batch, [first record, padding)
    32      8     offset up to which this file was known to be synced when the batch was built
    40      4     CRC32C of the padding's first 8 bytes and bytes [0, 40) of the seal

Java reads eight bytes of the header and skips padding bodies, so it reads sealed files as it reads its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c

from ...errors import CorruptStorageError

MAGIC = b"BKLG"
SEAL_MAGIC = b"BKSL"
SEAL_VERSION = 1
SEAL_HAS_SYNCED = 1

CURRENT_VERSION = 6
SEALED_SINCE = 5
"""Versions before have no padding, so nowhere to put a seal."""

HEADER_SIZE = 512
SECTOR = 512
"""The least alignment of batches, and what a disk writes entirely or not at all."""

PADDING = -0x100

LEDGER_KEY = -0x1000
FENCE = -0x2000
FORCE_LEDGER = -0x4000
EXPLICIT_LAC = -0x8000

MINIMUM_VERSION = {LEDGER_KEY: 3, FENCE: 4, EXPLICIT_LAC: 6}

MIN_ENTRY_SIZE = 24
"""An entry that a bookie accepts has at least ledger id, entry id and last-add-confirmed."""

LENGTH = struct.Struct(">i")
PREFIX = struct.Struct(">iqq")
"""Length, ledger id and entry id: what every record begins with."""

_KEY_OR_LAC = struct.Struct(">iqqi")
_FILE_HEADER = struct.Struct(">4si")
_SEAL_HEADER = struct.Struct(">4sHHqqq")
_PADDING = struct.Struct(">ii")
_SEAL = struct.Struct(">4sHHqqiIq")
_CRC = struct.Struct(">I")

SEALED_PADDING = _PADDING.size + _SEAL.size + _CRC.size
"""The least size of a padding record with a seal in it."""


_SEAL_HEADER_END = _FILE_HEADER.size + _SEAL_HEADER.size + _CRC.size


class JournalRecord(NamedTuple):
    """One record as it is replayed."""

    ledger_id: int
    entry_id: int
    """The entry's id, or `LEDGER_KEY`, `FENCE`, `EXPLICIT_LAC`."""
    body: bytes
    """The packaged entry, the master key, nothing, or the body of the WRITE_LAC request."""
    offset: int
    """Where in its file the record begins."""
    sealed: bool
    """Whether a checksum vouches for the bytes; Java's journals have none."""


# --- records -------------------------------------------------------------------------------------


def entry_prefix(size: int) -> bytes:
    """What goes before a packaged entry of `size` bytes; prefix and entry are the add record."""
    return LENGTH.pack(size)


def ledger_key_record(ledger_id: int, key: bytes) -> bytes:
    """The record that tells the ledger's master key; it precedes every other record of the ledger."""
    return _KEY_OR_LAC.pack(20 + len(key), ledger_id, LEDGER_KEY, len(key)) + key


def fence_record(ledger_id: int) -> bytes:
    return PREFIX.pack(16, ledger_id, FENCE)


def explicit_lac_record(ledger_id: int, body: bytes) -> bytes:
    """The record of a WRITE_LAC request with this body."""
    return _KEY_OR_LAC.pack(20 + len(body), ledger_id, EXPLICIT_LAC, len(body)) + body


# --- header --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SealHeader:
    journal_id: int
    previous_id: int
    previous_end: int


@dataclass(frozen=True, slots=True)
class Header:
    version: int
    first_record: int
    seal: SealHeader | None
    """None for a file whose batches are not sealed."""


def encode_header(version: int, seal: SealHeader) -> bytes:
    """The header of a new file; sealed from version 5 on."""
    plain = _FILE_HEADER.pack(MAGIC, version)
    if version < SEALED_SINCE:
        return plain
    fields = _SEAL_HEADER.pack(SEAL_MAGIC, SEAL_VERSION, 0, seal.journal_id, seal.previous_id, seal.previous_end)
    head = plain + fields
    return (head + _CRC.pack(google_crc32c.value(head))).ljust(HEADER_SIZE, b"\0")


def decode_header(data: bytes) -> Header:
    """The header in the first 512 bytes of a file (fewer if it is shorter).

    Raises `CorruptStorageError` for an unknown version or a damaged header.
    """
    if len(data) < _FILE_HEADER.size and MAGIC.startswith(data[:4]):
        raise CorruptStorageError("journal header is cut short")
    if data[:4] != MAGIC:
        return Header(1, 0, None)
    version = _FILE_HEADER.unpack_from(data)[1]
    if not 1 <= version <= CURRENT_VERSION:
        raise CorruptStorageError(f"journal version {version} is not one of 1 to {CURRENT_VERSION}")
    rest = data[_FILE_HEADER.size : HEADER_SIZE]
    seal = _decode_seal_header(data, version) if rest[:4] == SEAL_MAGIC else None
    if version < 2:
        return Header(version, 0, None)
    if version < SEALED_SINCE:
        return Header(version, _FILE_HEADER.size, None)
    if len(data) < HEADER_SIZE:
        raise CorruptStorageError("journal header is cut short")
    if seal is None and any(rest):
        raise CorruptStorageError("journal header is damaged: the bytes after the version should be zeros or a seal")
    return Header(version, HEADER_SIZE, seal)


def _decode_seal_header(data: bytes, version: int) -> SealHeader:
    fields_end = _SEAL_HEADER_END - _CRC.size
    if (
        len(data) < HEADER_SIZE
        or version < SEALED_SINCE
        or _CRC.unpack_from(data, fields_end)[0] != google_crc32c.value(data[:fields_end])
        or any(data[_SEAL_HEADER_END:HEADER_SIZE])
    ):
        raise CorruptStorageError("journal header is damaged: its checksum does not match")
    _, seal_version, _, journal_id, previous_id, previous_end = _SEAL_HEADER.unpack_from(data, _FILE_HEADER.size)
    if seal_version != SEAL_VERSION:
        raise CorruptStorageError(f"journal seal version {seal_version} is not {SEAL_VERSION}")
    return SealHeader(journal_id, previous_id, previous_end)


# --- padding and seals ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seal:
    journal_id: int
    start: int
    count: int
    crc: int
    synced: int


def padding(position: int, alignment: int) -> bytes:
    """What Java puts after a batch that ends at `position`: nothing, or a padding record without seal."""
    rest = -position % alignment
    if rest == 0:
        return b""
    if rest < _PADDING.size:
        rest += alignment
    return _PADDING.pack(PADDING, rest - _PADDING.size).ljust(rest, b"\0")


def sealed_padding(
    pieces: Sequence[bytes], journal_id: int, start: int, count: int, synced: int, alignment: int
) -> bytes:
    """The padding record that ends and seals the batch of these pieces, which is to be written at `start`."""
    rest = -(start + sum(map(len, pieces))) % alignment
    if rest < SEALED_PADDING:
        rest += alignment
    crc = 0
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece)
    seal = _SEAL.pack(SEAL_MAGIC, SEAL_VERSION, SEAL_HAS_SYNCED, journal_id, start, count, crc, synced)
    head = _PADDING.pack(PADDING, rest - _PADDING.size) + seal
    return (head + _CRC.pack(google_crc32c.value(head))).ljust(rest, b"\0")


def decode_seal(record: bytes) -> Seal | None:
    """The seal in a padding record (its first `SEALED_PADDING` bytes will do); None if there is none that is whole."""
    covered = _PADDING.size + _SEAL.size
    if len(record) < SEALED_PADDING or record[_PADDING.size : _PADDING.size + len(SEAL_MAGIC)] != SEAL_MAGIC:
        return None
    if _CRC.unpack_from(record, covered)[0] != google_crc32c.value(record[:covered]):
        return None
    _, version, flags, journal_id, start, count, crc, synced = _SEAL.unpack_from(record, _PADDING.size)
    if version != SEAL_VERSION or flags != SEAL_HAS_SYNCED:
        return None
    return Seal(journal_id, start, count, crc, synced)
