"""Where everything is in a canonical add request (`adds`), so that rows of adds are read without protobuf.

A guess is enough to begin with: a layout tells where the fields would be, and what must be found around them if the
request is canonical. Only what is found to be so, byte for byte, is read by it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from ...types import MASTER_KEY_LENGTH
from .. import entry as packaged
from ..protobuf import VarintForm, size_behind_its_varint, varint, varint_form
from .adds import ADD_HEADER, ADD_TAG

AddShape = tuple[int, int, int]
"""Bytes of the varints of an add request: txn id, ledger id, entry id."""

KEY = slice(2, 2 + MASTER_KEY_LENGTH)
"""The master key in the field that stands in front of an entry."""

_MAX_TXN = 10
_MAX_ID = 9
"""Bytes of a number that is not negative."""


def canonical_layout(body: bytes) -> AddLayout | None:
    """The layout of this add request if it is canonical, without priority; any or none if it is not."""
    if len(body) < 2:
        return None
    txn_at = 2 + len(ADD_HEADER)
    ledger_at = 2 + body[1] + len(ADD_TAG)
    ledger_at += _varint_size(body, ledger_at) + 1
    entry_at = ledger_at + _varint_size(body, ledger_at) + 1
    shape = 2 + body[1] - txn_at, _varint_size(body, ledger_at), _varint_size(body, entry_at)
    if not (0 < shape[0] <= _MAX_TXN and shape[1] <= _MAX_ID and shape[2] <= _MAX_ID):
        return None
    return add_layout(len(body), shape)


def _varint_size(body: bytes, at: int) -> int:
    """Of the varint that begins there; `_MAX_TXN` if there is none."""
    for size, byte in enumerate(body[at : at + _MAX_TXN], 1):
        if byte < 0x80:
            return size
    return _MAX_TXN


@dataclass(frozen=True, slots=True)
class AddLayout:
    """Where everything is in a canonical add request of one size, without flags and with a 20-byte key.

    head    0a h 08 03 10 02 18
    token   txn id
    middle  aa 06 n 08 ledger 10
    number  entry id
    key     1a 14 key 22 m
    entry   m bytes, of which ids and LAC are read
    """

    unpack: Callable[[bytes], tuple[bytes, bytes, bytes, bytes, int, int, int]]
    """The fields above, without the head; of the entry its ledger and entry id, and its LAC."""
    head: bytes
    """It must begin so."""
    middle_start: bytes
    key_end: bytes
    entry_at: int
    shape: AddShape
    token: VarintForm

    def fits(self, middle: bytes, key: bytes, ledger_id: int) -> bool:
        """Whether these fields are what a canonical request with the ledger id of its entry has there."""
        return (
            middle == self.middle_start + varint(ledger_id) + b"\x10"
            and key[:2] == b"\x1a\x14"
            and key[KEY.stop :] == self.key_end
        )


@functools.lru_cache(maxsize=1024)
def add_layout(size: int, shape: AddShape) -> AddLayout | None:
    """The layout of a body of `size` bytes; None if no add of that size and shape has an entry that can be stored."""
    token_size, ledger_size, number_size = shape
    head = b"\x0a" + varint(len(ADD_HEADER) + token_size) + ADD_HEADER
    add_size = size_behind_its_varint(size - len(head) - token_size - len(ADD_TAG))
    entry_size = size_behind_its_varint(add_size - (1 + ledger_size + 1 + number_size + 2 + MASTER_KEY_LENGTH + 1))
    if entry_size < packaged.MIN_STORED_SIZE:
        return None
    middle_start = ADD_TAG + varint(add_size) + b"\x08"
    key_end = b"\x22" + varint(entry_size)
    fields = Struct(
        f">{len(head)}x{token_size}s{len(middle_start) + ledger_size + 1}s{number_size}s"
        f"{2 + MASTER_KEY_LENGTH + len(key_end)}sqqq"
    )
    entry_at = size - entry_size
    assert fields.size == entry_at + packaged.MIN_STORED_SIZE
    return AddLayout(
        fields.unpack_from,
        head,
        middle_start,
        key_end,
        entry_at,
        shape,
        varint_form(token_size),
    )
