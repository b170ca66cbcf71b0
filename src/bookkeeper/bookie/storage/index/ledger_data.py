"""Keys and values of the `ledgers` database (spec bookie-storage §6.2).

Key: int64 ledger id. (Java's rebuild tool writes 16 bytes: the id and 8 zero bytes.) Negative ids are reserved:
-0xeefd holds the storage's state flags as one int64.

Value: protobuf message, proto2

    field  type   name
    1      bool   exists       required, always true
    2      bool   fenced       required
    3      bytes  masterKey    required; empty or all zero: not known yet, to be replaced
    4      bytes  explicitLac  optional; the body of the last WRITE_LAC
    5      bool   limbo        optional; absent means false
    1000   bytes  rewritten    optional, ours; two int64: least and greatest id of entries that were added again after
                               they had been flushed: an older copy may lie in a log behind its predecessor

Written by hand (see `protocol.protobuf`): its bytes are those that Java writes, and Java keeps the field that it does
not know. Read in any order of fields; unknown fields are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ....errors import CorruptStorageError
from ....protocol import protobuf
from ....protocol.protobuf import NotProtobuf, sized

STATE_FLAGS_KEY = (-0xEEFD).to_bytes(8, "big", signed=True)
NEEDS_INTEGRITY_CHECK = 0x1
KNOWN_FLAGS = NEEDS_INTEGRITY_CHECK

_ID = Struct(">q")
_IDS = Struct(">qq")


@dataclass(slots=True)
class LedgerData:
    """Attributes of one ledger."""

    fenced: bool = False
    master_key: bytes = b""
    explicit_lac: bytes | None = None
    limbo: bool | None = None
    """None: never was in limbo, and the field is not written."""
    rewritten: tuple[int, int] | None = None
    """Least and greatest id of which there may be older copies in the logs."""


def ledger_key(ledger_id: int) -> bytes:
    return _ID.pack(ledger_id)


def long_ledger_key(ledger_id: int) -> bytes:
    """The key that Java's rebuild tool would use."""
    return _ID.pack(ledger_id) + bytes(8)


def ledger_of_key(key: bytes) -> int:
    """Raises `CorruptStorageError` for a key that is neither 8 nor 16 bytes long."""
    if len(key) not in (8, 16):
        raise CorruptStorageError(f"key of {len(key)} bytes in the ledger index: {key.hex()}")
    return int(_ID.unpack_from(key)[0])


def is_placeholder(master_key: bytes) -> bool:
    """Whether a stored key stands for "not known yet"."""
    return not any(master_key)


def encode(data: LedgerData) -> bytes:
    parts = [b"\x08\x01\x10\x01" if data.fenced else b"\x08\x01\x10\x00", b"\x1a", sized(data.master_key)]
    if data.explicit_lac is not None:
        parts += (b"\x22", sized(data.explicit_lac))
    if data.limbo is not None:
        parts.append(b"\x28\x01" if data.limbo else b"\x28\x00")
    if data.rewritten is not None:
        parts += (b"\xc2\x3e", sized(_IDS.pack(*data.rewritten)))
    return b"".join(parts)


def decode(value: bytes) -> LedgerData:
    """Raises `CorruptStorageError`; also when a required field is missing."""
    try:
        fields = {number: item for number, _, item in protobuf.fields(value)}
    except NotProtobuf as error:
        raise CorruptStorageError(f"not a ledger record: {value.hex()}: {error}") from None
    exists, fenced, key = fields.get(1), fields.get(2), fields.get(3)
    lac, limbo, rewritten = fields.get(4), fields.get(5), fields.get(1000)
    if not (
        isinstance(exists, int)
        and isinstance(fenced, int)
        and isinstance(key, bytes)
        and isinstance(lac, bytes | None)
        and isinstance(limbo, int | None)
        and (rewritten is None or (isinstance(rewritten, bytes) and len(rewritten) == _IDS.size))
    ):
        raise CorruptStorageError(f"not a ledger record: {value.hex()}")
    span: tuple[int, int] | None = None if rewritten is None else _IDS.unpack(rewritten)
    return LedgerData(bool(fenced), key, lac, None if limbo is None else bool(limbo), span)


def encode_flags(flags: int) -> bytes:
    return _ID.pack(flags)


def decode_flags(value: bytes | None) -> int:
    """The state flags; 0 when none were written. Raises `CorruptStorageError` for flags unknown to us."""
    if value is None:
        return 0
    if len(value) != 8:
        raise CorruptStorageError(f"storage state flags of {len(value)} bytes")
    flags = int(_ID.unpack(value)[0])
    if flags & ~KNOWN_FLAGS:
        raise CorruptStorageError(f"unknown storage state flags {flags:#x}")
    return flags
