"""The packaged entry: what a client sends, a bookie stores, and a read returns (spec wire-protocol §6.1).

    offset  size  field
    0       8     ledger id
    8       8     entry id
    16      8     last add confirmed (LAC) known to the writer when it packaged the entry, -1 if none
    24      8     length: payload bytes of the ledger up to and including this entry, in the order of the add calls
    32      m     digest over bytes 0..31 and the payload: 0, 4, 8 or 20 bytes (see `digest`)
    32 + m  ...   payload

and the LAC packet, the body of WRITE_LAC (§6.5):

    0       8     ledger id
    8       8     LAC
    16      m     digest over bytes 0..15

All integers are signed and big-endian. Bookies look at the first 24 bytes only and never at the digest.
The functions raise `struct.error` for bytes that are too short: callers check sizes first.
"""

from __future__ import annotations

from struct import Struct

HEADER = Struct(">qqqq")
HEADER_SIZE = HEADER.size

LAC_HEADER = Struct(">qq")
LAC_HEADER_SIZE = LAC_HEADER.size

MIN_STORED_SIZE = 24
"""A bookie stores anything that has at least its ids and LAC (§4.1)."""

_IDS = Struct(">qq")
_INT64 = Struct(">q")


def ids(entry: bytes) -> tuple[int, int]:
    """Ledger id and entry id."""
    ledger_id, entry_id = _IDS.unpack_from(entry)
    return ledger_id, entry_id


def header(entry: bytes) -> tuple[int, int, int, int]:
    """Ledger id, entry id, LAC, length."""
    ledger_id, entry_id, lac, length = HEADER.unpack_from(entry)
    return ledger_id, entry_id, lac, length


def ledger_id_of(entry: bytes) -> int:
    (value,) = _INT64.unpack_from(entry, 0)
    return int(value)


def entry_id_of(entry: bytes) -> int:
    (value,) = _INT64.unpack_from(entry, 8)
    return int(value)


def lac_of(entry: bytes) -> int:
    """The LAC that the entry carries."""
    (value,) = _INT64.unpack_from(entry, 16)
    return int(value)


def length_of(entry: bytes) -> int:
    """The ledger's length up to and including this entry."""
    (value,) = _INT64.unpack_from(entry, 24)
    return int(value)
