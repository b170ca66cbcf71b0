"""Acknowledgements of v3 adds in bulk: written by a bookie, read by a client.

    00 00 00 L   0a h 08 03 10 02 18 txn   10 status   aa 06 n   08 status 10 ledger 18 entry

is the canonical frame that answers an add; L, h and n are sizes. Only it is written here; and where it says success it
is read here, byte for byte. Whatever else a bookie may send for the same is left to `v3.decode_response`.

A bookie answers the adds of one journal write together, so frames stand in rows: of one size, with numbers that have
equally many bytes, and mostly of one ledger, with entry ids that count up. Such a row is written and read by columns: a
byte of each frame, taken with the frames' size as step, costs about a nanosecond.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import Any, ClassVar

from ..frames import Acks, PackedAcks, ResponseStream
from ..messages import AddRun, MixedAdds, Status
from ..protobuf import VARINT, tag, unvarint, varint, varints
from .adds import ADD_HEADER, ADD_TAG

ROW_FROM = 16
"""Frames at least that are written or read by columns."""

_ENTRY_TAG = tag(3, VARINT)
"""`entryId`, which follows the ledger id."""

_pack_length = Struct(">I").pack


# --- writing ---------------------------------------------------------------------------------------------------


def encode_add_response(txn_id: int, ledger_id: int, entry_id: int, status: int = Status.EOK) -> bytes:
    """The frame that answers one add."""
    return _encode_answer(varint(txn_id), varint(ledger_id), varint(entry_id), status)


def encode_add_responses(run: AddRun, status: int = Status.EOK) -> bytes:
    """The frames that answer all adds of a run alike."""
    return encode_adds_answered((run,), status)


def encode_adds_answered(runs: Iterable[AddRun | MixedAdds], status: int = Status.EOK) -> bytes:
    """The frames that answer all adds of these runs alike; as cheap for many runs as for one."""
    tokens: list[bytes] = []
    ledgers: list[bytes] = []
    numbers: list[bytes] = []
    for run in runs:
        tokens += run.txn_tokens
        numbers += varints(run.entry_ids)
        if isinstance(run, MixedAdds):
            ledgers += map(varint, run.ledger_ids)
        else:
            ledgers += [varint(run.ledger_id)] * len(run.entry_ids)
    columns = (tokens, ledgers, numbers)
    assert len(tokens) == len(ledgers) == len(numbers), "each add has a transaction id"
    if len(tokens) >= ROW_FROM and all(len(set(map(len, column))) == 1 for column in columns):
        return _encode_row(tokens, ledgers, numbers, status)
    return b"".join(map(_encode_answer, tokens, ledgers, numbers, repeat(status)))


def _encode_answer(token: bytes, ledger: bytes, number: bytes, status: int) -> bytes:
    start, middle = _around(len(token), len(ledger), len(number), status)
    return b"%b%b%b%b%b%b" % (start, token, middle, ledger, _ENTRY_TAG, number)


def _encode_row(tokens: Sequence[bytes], ledgers: Sequence[bytes], numbers: Sequence[bytes], status: int) -> bytes:
    """Answers whose numbers have equally many bytes."""
    first = _encode_answer(tokens[0], ledgers[0], numbers[0], status)
    size = len(first)
    frames = bytearray(first * len(tokens))
    number_at = size - len(numbers[0])
    ledger_at = number_at - len(_ENTRY_TAG) - len(ledgers[0])
    token_at = _ACK_HEADER_AT + 2 + len(ADD_HEADER)
    for at, column in ((token_at, tokens), (ledger_at, ledgers), (number_at, numbers)):
        width, joined = len(column[0]), b"".join(column)
        for place in range(width):
            frames[at + place :: size] = joined[place::width]
    return bytes(frames)


@functools.lru_cache(maxsize=1024)
def _around(token_size: int, ledger_size: int, number_size: int, status: int) -> tuple[bytes, bytes]:
    """The bytes in front of the txn id, and those between it and the ledger id."""
    code = varint(status)
    ids = b"\x08" + code + b"\x10"
    inner_size = len(ids) + ledger_size + len(_ENTRY_TAG) + number_size
    middle = b"\x10" + code + ADD_TAG + varint(inner_size) + ids
    header = b"\x0a" + varint(len(ADD_HEADER) + token_size) + ADD_HEADER
    size = len(header) + token_size + len(middle) - len(ids) + inner_size
    return _pack_length(size) + header, middle


# --- reading ---------------------------------------------------------------------------------------------------


class _Values(dict[bytes, int]):
    """The int64 of each varint met; decoded once."""

    def __missing__(self, encoded: bytes) -> int:
        value = self[encoded] = unvarint(encoded)
        return value


_Fields = Iterable[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _AckRow:
    """Acknowledgements that stand in a row and have numbers of the same sizes.

    00 00 00 L   0a h 08 03 10 02 18 txn   10 00   aa 06 n 08 00 10 ledger 18 entry
    """

    end: Callable[[bytes, int], int]
    """Where the row that starts at this position ends."""
    size: int
    """Of each frame."""
    ledger_size: int
    number_size: int
    fields: Callable[[bytes], _Fields]
    """Ledger id and entry id of each as they stand there, the latter in one or two pieces."""
    read_fields: Callable[[_Fields, _Values], Acks]
    """Both ids as numbers."""

    def read(self, row: bytes, values: _Values) -> Acks:
        """Ledger and entry ids of a whole row."""
        if len(row) >= ROW_FROM * self.size and (acks := self._read_in_order(row)) is not None:
            return acks
        return self.read_fields(self.fields(row), values)

    def _read_in_order(self, row: bytes) -> Acks | None:
        """The same, if they are of one ledger and count up by one."""
        size, width = self.size, self.number_size
        count, number_at = len(row) // size, size - width
        ledger_at = number_at - len(_ENTRY_TAG) - self.ledger_size
        if any(row[at::size].count(row[at]) != count for at in range(ledger_at, ledger_at + self.ledger_size)):
            return None
        first = unvarint(row[number_at:size])
        if unvarint(row[-width:]) != first + count - 1:
            return None
        numbers = range(first, first + count)
        joined = b"".join(varints(numbers))
        if len(joined) != width * count or any(
            row[number_at + place :: size] != joined[place::width] for place in range(width)
        ):
            return None
        return [*zip(repeat(unvarint(row[ledger_at : ledger_at + self.ledger_size])), numbers)]


_SUCCESS = b"\x10\x00" + ADD_TAG
_ACK_MIDDLE = _SUCCESS + b"\0"  # the last byte is a size, which varies
_ACK_LEDGER_TAG = b"\x08\x00\x10"
_ACK_HEADER_AT = 4
_MIN_ACK_SIZE = (
    _ACK_HEADER_AT + 2 + len(ADD_HEADER) + 1 + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG) + 1 + len(_ENTRY_TAG) + 1
)
_MAX_VARINT = 10
_MAX_ACK_SIZE = _MIN_ACK_SIZE + 3 * (_MAX_VARINT - 1)


class Responses(ResponseStream):
    """The stream of v3: acknowledgements are of equal size as long as their numbers have equally many bytes. Packed
    they are `Acks`: where one ends in the bytes is not known before it was read."""

    __slots__ = ()
    unit = 1
    _no_acks: ClassVar[PackedAcks] = []
    _max_ack_size = _MAX_ACK_SIZE

    @staticmethod
    def unpack(packed: PackedAcks) -> Iterator[tuple[int, int]]:
        return iter(packed)

    def _leading_acks(self, data: bytes) -> tuple[PackedAcks, int]:
        acks: Acks = []
        values = _Values()
        at = 0
        while (row := _ack_row_at(data, at)) is not None:
            end = row.end(data, at)
            if end == at:
                break
            acks += row.read(data[at:end], values)
            at = end
        return acks, at


def _ack_row_at(data: bytes, at: int) -> _AckRow | None:
    """The row that the frame at this position is in, if it is an acknowledgement (which `end` decides)."""
    if len(data) - at < _MIN_ACK_SIZE:
        return None
    header_size = data[at + _ACK_HEADER_AT + 1]
    ledger_at = at + _ACK_HEADER_AT + 2 + header_size + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG)
    ledger_size = 1
    for byte in data[ledger_at : ledger_at + _MAX_VARINT]:
        if byte < 0x80:
            break
        ledger_size += 1
    return _ack_row(data[at + 3], header_size, ledger_size)


@functools.lru_cache(maxsize=256)
def _ack_row(size: int, header_size: int, ledger_size: int) -> _AckRow | None:
    """Frames with these three sizes; None if no acknowledgement has them.

    The pattern fits nothing but complete, canonical frames.
    """
    token_size = header_size - len(ADD_HEADER)
    before_ledger = 2 + header_size + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG)
    number_size = size - before_ledger - ledger_size - len(_ENTRY_TAG)
    if not all(1 <= varint_size <= _MAX_VARINT for varint_size in (token_size, ledger_size, number_size)):
        return None
    inner_size = len(_ACK_LEDGER_TAG) + ledger_size + len(_ENTRY_TAG) + number_size
    pieces = (
        re.escape(_pack_length(size) + b"\x0a" + bytes((header_size,)) + ADD_HEADER),
        _varint_pattern(token_size),
        re.escape(_SUCCESS + bytes((inner_size,)) + _ACK_LEDGER_TAG),
        _varint_pattern(ledger_size),
        re.escape(_ENTRY_TAG),
        _varint_pattern(number_size),
    )
    match = re.compile(b"(?:%b)*+" % b"".join(pieces), re.DOTALL).match
    number, read = _NUMBER_READERS.get(number_size, (f"{number_size}s", _read_other_numbers))
    fields = Struct(f"<{_ACK_HEADER_AT + before_ledger}x{ledger_size}sx{number}")
    assert fields.size == _ACK_HEADER_AT + size

    def end(data: bytes, at: int) -> int:
        found = match(data, at)
        assert found is not None  # the pattern fits an empty row, too
        return found.end()

    return _AckRow(end, fields.size, ledger_size, number_size, fields.iter_unpack, read)


def _read_1_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [(values[ledger], a) for ledger, a in fields]


def _read_2_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [(values[ledger], a & 0x7F | a >> 1 & 0x3F80) for ledger, a in fields]


def _read_3_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [(values[ledger], a & 0x7F | a >> 1 & 0x3F80 | b << 14) for ledger, a, b in fields]


def _read_4_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [
        (values[ledger], a & 0x7F | a >> 1 & 0x3F80 | (b & 0x7F | b >> 1 & 0x3F80) << 14) for ledger, a, b in fields
    ]


def _read_other_numbers(fields: _Fields, values: _Values) -> Acks:
    return [(values[ledger], values[number]) for ledger, number in fields]


_NUMBER_READERS = {
    1: ("B", _read_1_byte_numbers),
    2: ("H", _read_2_byte_numbers),
    3: ("HB", _read_3_byte_numbers),
    4: ("HH", _read_4_byte_numbers),
}
"""How entry ids up to 2**28 are read: two bytes at a time, as little-endian integers without their top bits."""


def _varint_pattern(size: int) -> bytes:
    """Fits the shortest encodings of numbers that need `size` bytes."""
    if size == 1:
        return rb"[\x00-\x7f]"
    last = rb"\x01" if size == _MAX_VARINT else rb"[\x01-\x7f]"
    return rb"[\x80-\xff]{%d}" % (size - 1) + last
