"""Records with keys, headers and times, as those of Kafka have them (spec streams §15.8): the codec `kv1`.

A record of a stream is bytes. Where the stream's policy has the codec `kv1`, these are

    offset  size    field
    0       3       4b 56 01
    3       1       flags: 1 key, 2 headers, 4 time, 8 there is no value
    4       8       time, if flagged: milliseconds since 1970, signed, high byte first
    ...     ...     key, if flagged: varint length, bytes
    ...     ...     headers, if flagged: varint count; of each varint length, name, varint n; n = 0: no value, else
                    n - 1 bytes
    ...     ...     the value: what is left

Varints have seven bits a byte, lowest first. A record that does not begin with these three bytes was written by
somebody who knows nothing of the codec, as before the policy was set: all of it is the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct

from ...errors import IncorrectParameterError
from ...protocol import protobuf
from ..errors import CorruptEntryError

MAGIC = b"KV\x01"
_KEY, _HEADERS, _TIME, _NO_VALUE = 1, 2, 4, 8
_KNOWN = _KEY | _HEADERS | _TIME | _NO_VALUE
_MILLISECONDS = Struct(">q")
_HEAD = len(MAGIC) + 1
_LONGEST_VARINT = 5

Headers = Sequence[tuple[str, bytes | None]]
"""Names, which may occur more than once, and values."""


class Codec(StrEnum):
    """What the payloads of a stream are."""

    RAW = "raw"
    """What was appended."""
    KV1 = "kv1"
    """Values with keys, headers and times."""


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """A value, and what goes with it. `append(KeyedRecord(...).encode())` writes it, `KeyedRecord.decode` reads it."""

    value: bytes | None
    """None: the record says that its key has no value any more."""
    key: bytes | None = None
    """None: there is none."""
    headers: Headers = ()
    """Names and values."""
    event_ms: int | None = None
    """When it happened, milliseconds since 1970."""

    def encode(self) -> bytes:
        """The payload. Raises `IncorrectParameterError` for a time that is none."""
        return encode_keyed(self.value, self.key, self.headers, self.event_ms)

    @classmethod
    def decode(cls, payload: bytes) -> KeyedRecord:
        """From a payload. Raises `CorruptEntryError`."""
        if not payload.startswith(MAGIC):
            return cls(payload)
        try:
            return _decode(payload)
        except (ValueError, IndexError) as error:
            raise CorruptEntryError(f"a record with a key makes no sense: {error}", _HEAD) from None


def encode_keyed(
    value: bytes | None, key: bytes | None = None, headers: Headers = (), event_ms: int | None = None
) -> bytes:
    """As `KeyedRecord.encode`, without the object."""
    flags = 0
    parts = [b""]
    if event_ms is not None:
        if not -(1 << 63) <= event_ms < 1 << 63:
            raise IncorrectParameterError(f"{event_ms} ms is no time")
        flags |= _TIME
        parts.append(_MILLISECONDS.pack(event_ms))
    if key is not None:
        flags |= _KEY
        parts += protobuf.varint(len(key)), key
    if headers:
        flags |= _HEADERS
        parts.append(protobuf.varint(len(headers)))
        for name, content in headers:
            text = name.encode()
            parts += protobuf.varint(len(text)), text
            parts += (b"\0",) if content is None else (protobuf.varint(len(content) + 1), content)
    if value is None:
        flags |= _NO_VALUE
    else:
        parts.append(value)
    parts[0] = MAGIC + bytes((flags,))
    return b"".join(parts)


def _decode(payload: bytes) -> KeyedRecord:
    """Raises `ValueError`, `IndexError` for what is cut off or has flags that are not known."""
    flags, at = payload[_HEAD - 1], _HEAD
    if flags & ~_KNOWN:
        raise ValueError(f"its flags are {flags}")
    event_ms = key = None
    headers: list[tuple[str, bytes | None]] = []
    if flags & _TIME:
        if len(payload) < at + _MILLISECONDS.size:
            raise ValueError("its time is cut off")
        (event_ms,) = _MILLISECONDS.unpack_from(payload, at)
        at += _MILLISECONDS.size
    if flags & _KEY:
        key, at = _sized(payload, at)
    if flags & _HEADERS:
        count, at = protobuf.read_varint(payload, at, _LONGEST_VARINT)
        for _ in range(count):
            name, at = _sized(payload, at)
            size, at = protobuf.read_varint(payload, at, _LONGEST_VARINT)
            content, at = _taken(payload, at, size - 1) if size else (None, at)
            headers.append((name.decode(), content))
    if flags & _NO_VALUE and at < len(payload):
        raise ValueError("it has a value, and says that it has none")
    return KeyedRecord(None if flags & _NO_VALUE else payload[at:], key, tuple(headers), event_ms)


def _sized(payload: bytes, at: int) -> tuple[bytes, int]:
    size, at = protobuf.read_varint(payload, at, _LONGEST_VARINT)
    return _taken(payload, at, size)


def _taken(payload: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(payload):
        raise ValueError("it is cut off")
    return payload[at : at + size], at + size
