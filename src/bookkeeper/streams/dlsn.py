"""Where a record is in a stream: the DLSN (spec streams §5.5).

A record is found by the number of its segment, the id of the ledger entry that holds it, and its slot: how many records
stand before it in the entry. The entry itself does not say so; positions come from where it was read. Their order is
that of the triple.

    offset  size  field
    0       1     version: 1
    1       8     segment
    9       8     entry
    17      8     slot

Version 0 is the same in 200 bytes, of which the last 175 are zero: somebody counted bits as bytes. As text it is the
base64 of these bytes, with padding.
"""

from __future__ import annotations

import base64
import binascii
from struct import Struct
from typing import NamedTuple, Self

from .errors import SegmentFormatError

_LAYOUT = Struct(">bqqq")
_SIZES = {0: 200, 1: _LAYOUT.size}
_URL_SAFE = str.maketrans("-_", "+/")


class DLSN(NamedTuple):
    """The position of a record. Positions compare as they stand in the stream."""

    segment: int
    """Number of its segment, from 1."""
    entry: int
    """Id of its entry in the segment's ledger."""
    slot: int
    """Records before it in the entry."""

    def __str__(self) -> str:
        """The text form: 36 characters."""
        return base64.b64encode(bytes(self)).decode("ascii")

    def __bytes__(self) -> bytes:
        return _LAYOUT.pack(1, self.segment, self.entry, self.slot)

    def next(self) -> Self:
        """Where the record after this one may be: reading from here gives what comes after this one."""
        return self._replace(slot=self.slot + 1)

    def next_segment(self) -> Self:
        """The beginning of the segment after this one."""
        return self._replace(segment=self.segment + 1, entry=0, slot=0)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From 25 bytes (version 1) or 200 (version 0). Raises `SegmentFormatError`."""
        size = _SIZES.get(data[0]) if data else None
        if size is None or len(data) != size:
            head = f"version {data[0]}" if data else "no version"
            raise SegmentFormatError(f"{len(data)} bytes with {head} are no position of a stream")
        if any(data[_LAYOUT.size :]):
            raise SegmentFormatError("a position of version 0 must end with zeros")
        _, segment, entry, slot = _LAYOUT.unpack_from(data)
        return cls(segment, entry, slot)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the text form, in the usual or the URL-safe alphabet. Raises `SegmentFormatError`."""
        try:
            data = base64.b64decode(text.translate(_URL_SAFE), validate=True)
        except (binascii.Error, ValueError) as error:
            raise SegmentFormatError(f"{text!r} is no position of a stream: {error}") from error
        return cls.decode(data)


INITIAL = DLSN(1, 0, 0)
"""The first position of a stream that was never truncated."""

LOWER_BOUND = DLSN(1, 0, -1)
"""Before every position of a stream."""

INVALID = DLSN(0, -1, -1)
"""No position."""
