"""Large requests, judged by how they begin: so that no megabytes are kept and read that no request can be.

Theory of operation

Only the entry of an add is ever large. So of every other request, and of everything that stands in front of the entry
in an add, no more than `LARGEST_BESIDE_ENTRY` is accepted. That is far more than any client sends (the largest are
tokens of SASL, below 64 kB). The first `ENOUGH_TO_JUDGE` bytes of a frame say what it is:

    v2    version, operation: an add has a key of 20 bytes (spec wire-protocol §2.1)
    v3    0a h header   aa 06 n   fields of the add: its numbers, 1a k key (§3.2)

A v3 add may have its fields in another order. If the key is not among the first bytes nothing is said about it here,
and the request is judged when all of it is there.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from .frames import version_of
from .messages import V2, Operation
from .protobuf import BYTES, VARINT, NotProtobuf, read_varint
from .schema import Header
from .v2 import OP_ADD, decode_header
from .v3.adds import ADD_TAG

LARGEST_BESIDE_ENTRY = 1 << 20

ENOUGH_TO_JUDGE = 256
"""Bytes of a body."""

_HEADER_TAG = 0x0A
_MASTER_KEY = 3


def fault_of(start: bytes, size: int) -> str:
    """Why a body of `size` bytes that begins with the `ENOUGH_TO_JUDGE` bytes `start` is no request; empty if it may
    be one."""
    if size <= LARGEST_BESIDE_ENTRY:
        return ""
    if version_of(start) == V2:
        _, operation, _ = decode_header(start)
        return "" if operation == OP_ADD else f"a request of {size} bytes that is not an add"
    if start[0] != _HEADER_TAG:
        return ""
    try:
        header_size, at = read_varint(start, 1)
        header = Header.FromString(start[at : at + header_size])
    except (NotProtobuf, DecodeError):
        return "a header that is not one"
    if header.operation != Operation.ADD_ENTRY:
        return f"a request of {size} bytes that is not an add"
    try:
        return _fault_of_key(start, at + header_size)
    except NotProtobuf:
        return ""  # the fields before the key do not end among these bytes


def _fault_of_key(start: bytes, at: int) -> str:
    """Whether the master key of an add whose fields begin at `at` is too large. Raises `NotProtobuf`."""
    if start[at : at + len(ADD_TAG)] != ADD_TAG:
        return ""
    _, at = read_varint(start, at + len(ADD_TAG))
    while at < len(start):
        field, at = read_varint(start, at)
        value, at = read_varint(start, at)
        if field & 7 == BYTES:
            too_large = field >> 3 == _MASTER_KEY and value > LARGEST_BESIDE_ENTRY
            return f"an add with a master key of {value} bytes" if too_large else ""
        if field & 7 != VARINT:
            return ""
    return ""
