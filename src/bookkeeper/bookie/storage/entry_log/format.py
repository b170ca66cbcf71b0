"""The entry log's format: header, records, locations, ledgers map (spec bookie-storage §5).

All integers are big-endian.

Header, 1024 bytes (logs of Java's direct-I/O writer: 4096, see below)

    offset  size
    0       4     "BKLO"
    4       4     version: 1 (0: an old log, which has no ledgers map)
    8       8     offset of the ledgers map; 0 until the log is sealed
    16      4     number of ledgers in the map; 0 until the log is sealed
    20            zeros

Record, from byte 1024 on; no alignment, no checksum

    0       4     size of the entry
    4       size  the entry as it was received; it begins with ledger id (8) and entry id (8)

A **location** is `log id << 32 | offset of the entry's first byte`, which is just after the size word. So it is never
0, and 0 means "absent" in every index.

Ledgers map, at the end of a sealed log: one or more batches of at most 10000 ledgers

    0       4     bytes that follow = 20 + 16 n
    4       8     ledger id -1
    12      8     entry id -2
    20      4     n
    24      16 n  n times: ledger id (8), bytes of its records in this log, size words included (8)

A direct-I/O log has a dummy record at 1024 (size 3068, ledger id -1) that makes a scan jump to 4096; between records
there may be 0xF0 bytes up to a multiple of 4096, and zeros at the end. Read as a size, both are not positive: a scan
steps over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from struct import Struct
from typing import NamedTuple

from ....errors import CorruptStorageError

HEADER_SIZE = 1024
VERSION = 1
MAX_LOG_ID = 0x7FFFFFFF
MAX_OFFSET = 0x7FFFFFFF
MIN_ENTRY_SIZE = 16
"""An entry has at least its two ids."""

SEAL_OFFSET = 8
"""Where `seal_fields` goes in the header."""

RECORD = Struct(">iqq")
"""Size word, ledger id and entry id of a record."""

SIZE_WORD = 4
LEDGER_MAP_LEDGER = -1
LEDGER_MAP_ENTRY = -2
LEDGER_MAP_BATCH = 10000

_HEADER = Struct(">4siqi")
_MAGIC = b"BKLO"
_SEAL = Struct(">qi")
_BATCH = Struct(">iqqi")
_LEDGER_SIZE = Struct(">qq")


class LogHeader(NamedTuple):
    """What a log's first bytes say."""

    version: int
    map_offset: int
    ledger_count: int


def new_header() -> bytes:
    """The header of a log that is being written."""
    return _HEADER.pack(_MAGIC, VERSION, 0, 0).ljust(HEADER_SIZE, b"\0")


def seal_fields(map_offset: int, ledger_count: int) -> bytes:
    """The header bytes from `SEAL_OFFSET` on that seal a log."""
    return _SEAL.pack(map_offset, ledger_count)


def parse_header(data: bytes) -> LogHeader:
    """Read a header. Raises `CorruptStorageError`: a log without the magic is not ours to interpret."""
    if len(data) < _HEADER.size:
        raise CorruptStorageError(f"entry log header has {len(data)} bytes")
    magic, version, map_offset, ledger_count = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptStorageError(f"entry log header begins with {magic!r}")
    if version not in (0, VERSION):
        raise CorruptStorageError(f"entry log has unknown version {version}")
    return LogHeader(version, map_offset if version else 0, ledger_count if version else 0)


def location_of(log_id: int, offset: int) -> int:
    return log_id << 32 | offset


def log_of(location: int) -> int:
    return location >> 32


def offset_of(location: int) -> int:
    return location & 0xFFFFFFFF


def encode_ledgers_map(sizes: Mapping[int, int]) -> bytes:
    """The ledgers map for record bytes per ledger."""
    pieces = []
    remaining = iter(sizes.items())
    while batch := list(islice(remaining, LEDGER_MAP_BATCH)):
        pieces.append(_BATCH.pack(20 + 16 * len(batch), LEDGER_MAP_LEDGER, LEDGER_MAP_ENTRY, len(batch)))
        pieces.extend(_LEDGER_SIZE.pack(ledger_id, size) for ledger_id, size in batch)
    return b"".join(pieces)


def decode_ledgers_map(data: bytes, ledger_count: int) -> dict[int, int]:
    """Read a ledgers map; what follows it (padding) is ignored. Raises `CorruptStorageError`."""
    sizes: dict[int, int] = {}
    offset = 0
    while offset + SIZE_WORD <= len(data):
        if int.from_bytes(data[offset : offset + SIZE_WORD], "big", signed=True) <= 0:
            break
        if offset + _BATCH.size > len(data):
            raise CorruptStorageError("ledgers map is cut off")
        length, ledger_id, entry_id, count = _BATCH.unpack_from(data, offset)
        start = offset + _BATCH.size
        offset += SIZE_WORD + length
        if (ledger_id, entry_id) != (LEDGER_MAP_LEDGER, LEDGER_MAP_ENTRY) or length != 20 + 16 * count:
            raise CorruptStorageError(
                f"not a ledgers map: ids {ledger_id}, {entry_id}, {length} bytes, {count} ledgers"
            )
        if offset > len(data):
            raise CorruptStorageError("ledgers map is cut off")
        sizes.update(_LEDGER_SIZE.iter_unpack(data[start:offset]))
    if not sizes or len(sizes) != ledger_count:
        raise CorruptStorageError(f"ledgers map holds {len(sizes)} ledgers, the header says {ledger_count}")
    return sizes
