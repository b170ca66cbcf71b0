"""The record of a segment in the metadata store (spec streams §4.2).

Decimal numbers with `;` between them. The first one packs four fields:

    bits 0-7    version of the layout, 1 to 5
    bits 8-15   status; its two lowest bits say how far the segment is truncated
    bits 28-31  region
    bits 32-63  number of records; 0 while the segment is being written

The others, by version; those in brackets are there once the segment is completed. The number of fields tells which:

    1     ledger, first txid [, last txid, completion time]
    2     ledger, first txid [, last txid, completion time], number [, last entry, last slot]
    3, 4  as 2, and: first entry and slot that are left
    5     as 4, and: sequence id of the first record

From version 4 on entries have envelopes (`entry`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

from ..dlsn import DLSN
from ..errors import SegmentFormatError, UnsupportedVersionError

LATEST_VERSION = 5
OLDEST_VERSION = 1
FIRST_NUMBERED = 2
FIRST_WITH_TRUNCATION = 3
FIRST_ENVELOPED = 4
FIRST_WITH_SEQUENCE = 5

NO_TXID = -999
"""The last txid of a segment that has none yet."""

MOST_RECORDS = (1 << 31) - 1

_FIELDS = {1: (3, 5), 2: (4, 8), 3: (6, 10), 4: (6, 10), 5: (7, 11)}
"""In progress, completed."""
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBERS = re.compile(r"-?[0-9]{1,18}(?:;-?[0-9]{1,18})*", re.ASCII)
"""All of them, none so large that it has to be looked at."""
_INT64 = range(-(1 << 63), 1 << 63)


class Truncation(IntEnum):
    """How far a segment is truncated."""

    ACTIVE = 0
    PARTLY = 1
    """Before (`min_entry`, `min_slot`)."""
    TRUNCATED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMetadata:
    """One segment of a stream. Times are milliseconds since 1970."""

    ledger_id: int
    first_txid: int
    number: int = 0
    """Its place in the stream. 0: version 1, which has none."""
    completed: bool = False
    """Nothing is added to it any more, and its ledger is closed."""
    version: int = LATEST_VERSION
    status: int = 0
    region: int = 0
    records: int = 0
    """User records; 0 until it is completed."""
    last_txid: int = NO_TXID
    completed_ms: int = 0
    last_entry: int = -1
    last_slot: int = -1
    """With `last_entry` a hint, and no bound for reading: the end is that of the ledger (§4.3)."""
    min_entry: int = 0
    min_slot: int = 0
    start_sequence_id: int = -1
    """Number of the first record in the whole stream; -1 unless known (see `sequence_id`)."""

    @property
    def truncation(self) -> Truncation:
        """Raises `SegmentFormatError` for a status that means nothing."""
        try:
            return Truncation(self.status & 3)
        except ValueError:
            raise SegmentFormatError(f"segment {self.number} has no known status: {self.status}") from None

    @property
    def enveloped(self) -> bool:
        """Whether its entries have envelopes."""
        return self.version >= FIRST_ENVELOPED

    @property
    def sequence_id(self) -> int:
        """Number of its first record. Negative where it was not recorded: such numbers are no more than in order."""
        if self.version >= FIRST_WITH_SEQUENCE and self.start_sequence_id != -1:
            return self.start_sequence_id
        return -(1 << 63) + (self.number << 32)

    @property
    def first(self) -> DLSN:
        """The first position that is left of it."""
        if self.truncation is Truncation.ACTIVE:
            return DLSN(self.number, 0, 0)
        return DLSN(self.number, self.min_entry, self.min_slot)

    @property
    def order(self) -> tuple[int, int, bool]:
        """Segments sort by it; of two with one number the one in progress comes first.

        Those of version 1 have no number and go first, by txid: newer versions never precede them in a stream.
        """
        return (self.number, self.first_txid if self.number == 0 else 0, self.completed)

    def complete(
        self, *, last_txid: int, records: int, last: DLSN | None, completed_ms: int, start_sequence_id: int
    ) -> Self:
        """As it is once its ledger is closed. `last`: of its last record."""
        entry, slot = (last.entry, last.slot) if last is not None else (-1, -1)
        return replace(
            self,
            completed=True,
            last_txid=last_txid,
            records=records,
            last_entry=entry,
            last_slot=slot,
            completed_ms=completed_ms,
            start_sequence_id=start_sequence_id,
        )

    def truncate(self, before: DLSN | None) -> Self:
        """Marked truncated before this position in it, or as a whole."""
        if before is None:
            return replace(self, status=self.status & ~3 | Truncation.TRUNCATED)
        status = self.status & ~3 | Truncation.PARTLY
        return replace(self, status=status, min_entry=before.entry, min_slot=before.slot)


def encode_segment(segment: SegmentMetadata) -> bytes:
    """The record in the segment's own version. Raises `SegmentFormatError` for what the layout cannot hold."""
    _check(segment)
    version = segment.version
    packed = version | segment.records << 32
    if version >= FIRST_NUMBERED:
        packed |= segment.status << 8 | segment.region << 28
    fields = [packed, segment.ledger_id, segment.first_txid]
    if segment.completed:
        fields += [segment.last_txid, segment.completed_ms]
    if version >= FIRST_NUMBERED:
        fields.append(segment.number)
        if segment.completed:
            fields += [segment.last_entry, segment.last_slot]
    if version >= FIRST_WITH_TRUNCATION:
        fields += [segment.min_entry, segment.min_slot]
    if version >= FIRST_WITH_SEQUENCE:
        fields.append(segment.start_sequence_id)
    return ";".join(map(str, fields)).encode("ascii")


def _check(segment: SegmentMetadata) -> None:
    if segment.version not in _FIELDS:
        raise UnsupportedVersionError(f"segments have no version {segment.version}")
    for name, value, most in (
        ("records", segment.records, MOST_RECORDS if segment.completed else 0),
        ("status", segment.status, 255),
        ("region", segment.region, 15),
    ):
        if not 0 <= value <= most:
            raise SegmentFormatError(f"segment {segment.number}: {name} cannot be {value}")


def decode_segment(data: bytes) -> SegmentMetadata:
    """From the record. Raises `SegmentFormatError`, `UnsupportedVersionError`."""
    fields = _numbers(data)
    packed = fields[0]
    version, records = packed & 0xFF, packed >> 32
    if version not in _FIELDS:
        raise UnsupportedVersionError(f"segments have no version {version}")
    if len(fields) not in _FIELDS[version]:
        raise SegmentFormatError(f"the record of a segment of version {version} cannot have {len(fields)} fields")
    completed = len(fields) == _FIELDS[version][1]
    if records < 0:
        raise SegmentFormatError(f"a segment cannot have {records} records")
    rest = iter(fields[1:])
    found = {"ledger_id": next(rest), "first_txid": next(rest)}
    if completed:
        found |= {"records": records, "last_txid": next(rest), "completed_ms": next(rest)}
    if version >= FIRST_NUMBERED:
        found |= {"status": packed >> 8 & 0xFF, "region": packed >> 28 & 0xF, "number": next(rest)}
        if completed:
            found |= {"last_entry": next(rest), "last_slot": next(rest)}
    if version >= FIRST_WITH_TRUNCATION:
        found |= {"min_entry": next(rest), "min_slot": next(rest)}
    if version >= FIRST_WITH_SEQUENCE:
        found["start_sequence_id"] = next(rest)
    return SegmentMetadata(version=version, completed=completed, **found)


def _numbers(data: bytes) -> list[int]:
    """The fields. Raises `SegmentFormatError`, with the place."""
    text = data.decode("latin-1")
    if _NUMBERS.fullmatch(text):
        return list(map(int, text.split(";")))
    at = 0
    found: list[int] = []
    for field in text.split(";"):
        if not _NUMBER.fullmatch(field) or int(field) not in _INT64:
            raise SegmentFormatError(f"the record of a segment has {field[:40]!r} for a number, at byte {at}")
        found.append(int(field))
        at += len(field) + 1
    return found
