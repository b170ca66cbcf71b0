"""Packed entries to columns, without a Python object per field.

A packed run is what a batch read answers (spec wire-protocol §2.6): for each entry an int32 size and the entry, which
is a header of 32 bytes (ledger id, entry id, last confirmed, length), a digest, and the payload. Here it becomes
arrays.

What has to be done for each entry by itself is its digest, since a checksum is a call for each. Everything else is done
for all of them at once: ids are compared, headers are turned from big-endian bytes into arrays, payloads are put
together. Where all entries of a run have one size, which `struct` and numpy can walk alone, no Python runs for an entry
but the call of the checksum; otherwise a loop finds where each entry begins, and payloads stay where they were
received, as views, until somebody asks for them in a row.

A digest that is wrong, an id that is not the expected one, and bytes that are no entry are damage: nothing behind it is
used.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.digest import JOIN_BELOW, Digest
from ...protocol.entry import HEADER_SIZE
from ...protocol.messages import Packed

SIZE = Struct(">i")

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class PackedRun(NamedTuple):
    """Columns of consecutive entries of one ledger, their digests checked."""

    ledger_id: int
    first: int
    last_confirmed: Int64s
    length: Int64s
    """Running length of the ledger."""
    offsets: npt.NDArray[np.int32]
    """Entry i's payload is `payload[offsets[i]:offsets[i + 1]]`."""
    payloads: Bytes | list[memoryview]
    """All of them in a row; or by themselves, as they were received."""
    digests: Bytes
    """A row each."""

    @property
    def rows(self) -> int:
        return len(self.length)

    @property
    def last(self) -> int:
        return self.first + len(self.length) - 1

    @property
    def payload(self) -> bytes | Bytes:
        """All payloads in a row."""
        return b"".join(self.payloads) if isinstance(self.payloads, list) else self.payloads

    def entries(self) -> Iterator[memoryview]:
        """The payload of each entry; nothing is copied."""
        if isinstance(self.payloads, list):
            return iter(self.payloads)
        data = self.payloads.data
        return (data[start:stop] for start, stop in pairwise(self.offsets.tolist()))

    @property
    def payload_bytes(self) -> int:
        return int(self.offsets[-1])

    def cut(self, start: int, stop: int) -> PackedRun:
        """Rows `start` up to `stop`, without the latter."""
        begin, end = int(self.offsets[start]), int(self.offsets[stop])
        alone = isinstance(self.payloads, list)
        return PackedRun(
            self.ledger_id,
            self.first + start,
            self.last_confirmed[start:stop],
            self.length[start:stop],
            self.offsets[start : stop + 1] - np.int32(begin),
            self.payloads[start:stop] if alone else self.payloads[begin:end],
            self.digests[start:stop],
        )

    def prefix(self, rows: int) -> PackedRun:
        """The first `rows` entries."""
        return self if rows >= self.rows else self.cut(0, rows)


def take_run(ledger_id: int, digest: Digest, first: int, body: Packed) -> tuple[PackedRun | None, int | None]:
    """The good entries at the beginning of a packed run whose ids are `first`, `first + 1`, ...; and the id of the
    first damaged entry, None if there is none."""
    head_size = SIZE.size + HEADER_SIZE + digest.size
    if len(body) < head_size:
        return None, first
    pitch = SIZE.size + SIZE.unpack_from(body)[0]
    if head_size <= pitch < head_size + JOIN_BELOW and _is_even(body, pitch):
        run, found_all = _take_even(ledger_id, digest, first, body, pitch)
    else:
        run, found_all = _take_uneven(ledger_id, digest, first, body)
    damaged = None if found_all else first + run.rows
    return (run if run.rows else None), damaged


def _is_even(body: Packed, pitch: int) -> bool:
    """Whether all entries take `pitch` bytes with their size."""
    if len(body) % pitch:
        return False
    sizes = np.frombuffer(body, np.uint8).reshape(-1, pitch)[:, : SIZE.size]
    return bool((sizes == sizes[0]).all())


def _take_even(ledger_id: int, digest: Digest, first: int, body: Packed, pitch: int) -> tuple[PackedRun, bool]:
    start, end, head = SIZE.size, SIZE.size + HEADER_SIZE, SIZE.size + HEADER_SIZE + digest.size
    rows = np.frombuffer(body, np.uint8).reshape(-1, pitch)
    count = len(rows)
    size = pitch - head
    protected = np.empty((count, HEADER_SIZE + size), np.uint8)  # what the digests are of
    protected[:, :HEADER_SIZE] = rows[:, start:end]
    protected[:, HEADER_SIZE:] = rows[:, head:]
    sum_of = digest.sum
    sums = [sum_of(piece) for (piece,) in Struct(f"{HEADER_SIZE + size}s").iter_unpack(protected.data.cast("B"))]
    run = PackedRun(
        ledger_id,
        first,
        *_headers(rows[:, start:end])[2:],
        np.arange(0, count * size + 1, size, dtype=np.int32) if size else np.zeros(count + 1, np.int32),
        np.ascontiguousarray(rows[:, head:]).ravel(),
        np.ascontiguousarray(rows[:, end:head]),
    )
    good = _good(run, _headers(rows[:, start:end]), sums)
    return run.prefix(good), good == count


def _take_uneven(ledger_id: int, digest: Digest, first: int, body: Packed) -> tuple[PackedRun, bool]:
    headers, marks, payloads, complete = _split(body, digest.size)
    count = len(payloads)
    sums: list[int | bytes]
    if max(map(len, payloads), default=0) < JOIN_BELOW:
        sums = [digest.sum(header + payload) for header, payload in zip(headers, payloads, strict=True)]
    else:
        sums = list(map(digest.sum_pieces, headers, payloads))
    fields = _headers(np.frombuffer(b"".join(headers), np.uint8).reshape(count, HEADER_SIZE))
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, payloads), np.int32, count), out=offsets[1:])
    digests = np.frombuffer(b"".join(marks), np.uint8).reshape(count, digest.size)
    run = PackedRun(ledger_id, first, *fields[2:], offsets, payloads, digests)
    good = _good(run, fields, sums)
    return run.prefix(good), good == count and complete


def _split(body: Packed, digest_size: int) -> tuple[list[bytes], list[bytes], list[memoryview], bool]:
    """Headers, digests and payloads of the entries in `body`, and whether it consists of entries to its end."""
    headers: list[bytes] = []
    marks: list[bytes] = []
    payloads: list[memoryview] = []
    add_header, add_mark, add_payload = headers.append, marks.append, payloads.append
    unpack = Struct(f">i{HEADER_SIZE}s{digest_size}s").unpack_from
    head = SIZE.size + HEADER_SIZE + digest_size
    smallest = HEADER_SIZE + digest_size
    view, end = memoryview(body), len(body)
    at = 0
    while at <= end - head:
        size, header, mark = unpack(body, at)
        stop = at + 4 + size
        if size < smallest or stop > end:
            break
        add_header(header)
        add_mark(mark)
        add_payload(view[at + head : stop])
        at = stop
    return headers, marks, payloads, at == end


def _headers(rows: Bytes) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Ledger id, entry id, last confirmed and length of each."""
    fields = np.ascontiguousarray(rows).view(">i8")
    return tuple(np.ascontiguousarray(fields[:, i], np.int64) for i in range(4))  # type: ignore[return-value]


def _good(run: PackedRun, headers: tuple[Int64s, Int64s, Int64s, Int64s], sums: list[int | bytes]) -> int:
    """How many entries at the beginning have the right ids and digests."""
    count, size = run.digests.shape
    good = (headers[0] == run.ledger_id) & (headers[1] == np.arange(run.first, run.first + count))
    if size:
        if size in (4, 8):
            computed = np.array(sums, f">u{size}").view(np.uint8).reshape(-1, size)
        else:
            computed = np.frombuffer(b"".join(sums), np.uint8).reshape(-1, size)  # type: ignore[arg-type]
        good &= (computed == run.digests).all(axis=1)
    return count if good.all() else int(np.argmin(good))
