"""What Java does with a journal file, written from the tables of the specification alone: no code is shared with ours.

`write` lays records out as Java's journal writes them; `read` is Java's replay, which trusts every byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence


def entry(ledger_id: int, entry_id: int, size: int, fill: int = 0x61) -> bytes:
    """A packaged entry of `size` bytes: ids, last add confirmed, length, and something."""
    head = struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, size)
    return (head + bytes([fill]) * size)[:size]


def header(version: int) -> bytes:
    if version == 1:
        return b""
    head = b"BKLG" + struct.pack(">i", version)
    return head if version < 5 else head.ljust(512, b"\0")


def padding(position: int, alignment: int) -> bytes:
    rest = alignment - position % alignment
    if rest == alignment:
        return b""
    size = rest - 8 if rest >= 8 else alignment - (8 - rest)
    return struct.pack(">ii", -0x100, size) + bytes(size)


def write(batches: Sequence[Sequence[bytes]], version: int = 6, *, alignment: int = 512, allocate: int = 0) -> bytes:
    """A file of batches of record payloads; `allocate` zeros follow."""
    data = header(version)
    for batch in batches:
        for payload in batch:
            data += struct.pack(">i", len(payload)) + payload
        if version >= 5:
            data += padding(len(data), alignment)
    return data + bytes(allocate)


def read(data: bytes, start: int = 0) -> tuple[list[bytes], int]:
    """The payloads Java would replay, and the position it would mark. `ValueError` where Java would not start."""
    version = struct.unpack_from(">i", data, 4)[0] if data[:4] == b"BKLG" else 1
    at = start or (512 if version >= 5 else 8 if version >= 2 else 0)
    records = []
    while True:
        if at + 4 > len(data):
            return records, len(data)
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size == 0:
            return records, at
        skip = False
        if size < 0:
            if size != -0x100 or version < 5:
                raise ValueError(f"invalid record with negative length at {at - 4}")
            (size,) = struct.unpack_from(">i", data, at)
            at += 4
            skip = True
        body = data[at : at + size]
        at += len(body)
        if len(body) < size:
            return records, at
        if not skip:
            records.append(body)
