"""Which record goes into which entry, and where it is then (spec streams §5.4, §8.3).

Theory of operation

A segment is one ledger with one writer, and entries get their ids in the order in which they are sent. So the position
of a record is known when it is put into the buffer of the next entry: before anything was sent. The buffer is sealed
into an entry when its records are larger than `buffer_bytes`, when a record would make the entry too large for readers,
and when the caller says so. Control records and the end of the stream never share an entry with others.

Whole batches are cut by looking for the place in their running sizes. Nothing is done for a single record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from .dlsn import DLSN
from .errors import RecordTooLargeError
from .formats.entry import encode_entry
from .formats.record_set import LARGEST_SET, LENGTH_SIZE, encode_set
from .formats.records import (
    CONTROL,
    CONTROL_PAYLOAD,
    END,
    END_PAYLOAD,
    END_TXID,
    HEADER_SIZE,
    LARGEST_PAYLOAD,
    SET,
    encode_record,
    encode_records,
)
from .policy import LARGEST_BODY, WritePolicy


class Entry(NamedTuple):
    """What goes to the ledger next."""

    number: int
    """The id that the ledger will give it."""
    payload: bytes
    records: int
    """User records; 0: a control record."""


class Run(NamedTuple):
    """Consecutive records of an append in one entry."""

    first: DLSN
    records: int


class EntryPacker:
    """Packs the records of one segment."""

    def __init__(self, segment: int, policy: WritePolicy, last_txid: int) -> None:
        self._segment = segment
        self._policy = policy
        self.last_txid = last_txid
        """Of the last record that was added."""
        self.next_entry = 0
        """The id of the entry that is filled now."""
        self.sealed_records = 0
        """User records that went into entries: the position of the last one."""
        self.last: DLSN | None = None
        """Where the last record is that is no control record."""
        self._payloads: list[bytes] = []
        self._txids: list[int] = []
        self._bytes = 0

    @property
    def records(self) -> int:
        """User records so far."""
        return self.sealed_records + len(self._payloads)

    @property
    def has_buffered(self) -> bool:
        """Whether records wait for their entry to be sealed."""
        return bool(self._payloads)

    def add(self, payloads: Sequence[bytes], txids: Sequence[int]) -> tuple[list[Entry], list[Run]]:
        """Add records, at least one; the entries that are full, and where the records are.

        Raises `RecordTooLargeError`; then nothing was added.
        """
        check_size(payloads, LARGEST_PAYLOAD)
        entries: list[Entry] = []
        runs: list[Run] = []
        ends = list(accumulate(map(HEADER_SIZE.__add__, map(len, payloads))))
        start, before = 0, 0
        while start < len(ends):
            stop = self._cut(ends, start, before)
            if stop > start:
                runs.append(Run(DLSN(self._segment, self.next_entry, len(self._payloads)), stop - start))
                self._payloads += payloads[start:stop]
                self._txids += txids[start:stop]
                self._bytes += ends[stop - 1] - before
                start, before = stop, ends[stop - 1]
            if start < len(ends) or self._bytes > self._policy.buffer_bytes:
                entries += self.seal()
        self.last_txid = txids[-1]
        self.last = runs[-1].first._replace(slot=runs[-1].first.slot + runs[-1].records - 1)
        return entries, runs

    def _cut(self, ends: list[int], start: int, before: int) -> int:
        """How far the records still go into this entry: up to and with the one that fills it, if that fits."""
        used = self._bytes - before
        stop = min(bisect_right(ends, self._policy.buffer_bytes - used, start) + 1, len(ends))
        return stop if ends[stop - 1] + used <= LARGEST_BODY else stop - 1

    def add_sets(self, payloads: Sequence[bytes], txid: int) -> tuple[list[Entry], list[Run]]:
        """Add records as record sets, one in an entry; as `add`, but nothing stays in the buffer but what was there."""
        check_size(payloads, LARGEST_SET - LENGTH_SIZE)
        entries, runs = self.seal(), []
        ends = list(accumulate(map(LENGTH_SIZE.__add__, map(len, payloads))))
        room = min(max(self._policy.buffer_bytes, 1), LARGEST_SET)
        start, before = 0, 0
        while start < len(ends):
            stop = max(bisect_right(ends, before + room, start), start + 1)
            count = stop - start
            data = encode_set(payloads[start:stop], self._policy.compression)
            runs.append(Run(DLSN(self._segment, self.next_entry, 0), count))
            self.last = DLSN(self._segment, self.next_entry, count - 1)
            entries.append(self._entry(encode_record(data, txid, self.sealed_records + 1, SET), count))
            start, before = stop, ends[stop - 1]
        self.last_txid = txid
        return entries, runs

    def add_body(self, body: bytes | memoryview, count: int) -> list[Entry]:
        """Add the encoded records of an entry; behind what is buffered, whose positions are before theirs."""
        entries = self.seal()
        self.last = DLSN(self._segment, self.next_entry, count - 1)
        return [*entries, self._entry(body, count)]

    def seal(self) -> list[Entry]:
        """The buffer as an entry, if there is something in it."""
        if not self._payloads:
            return []
        entry = self._entry(encode_records(self._payloads, self._txids, self.sealed_records + 1), len(self._payloads))
        self._payloads, self._txids, self._bytes = [], [], 0
        return [entry]

    def control(self, payload: bytes = CONTROL_PAYLOAD) -> list[Entry]:
        """What is buffered, and a control record behind it."""
        return [*self.seal(), self._entry(encode_record(payload, self.last_txid, self.sealed_records, CONTROL), 0)]

    def end(self) -> list[Entry]:
        """What is buffered, and the end of the stream behind it."""
        entries = self.seal()
        self.last_txid = END_TXID
        self.last = DLSN(self._segment, self.next_entry, 0)
        return [*entries, self._entry(encode_record(END_PAYLOAD, END_TXID, self.sealed_records, END), 0)]

    def _entry(self, body: bytes | memoryview, records: int) -> Entry:
        entry = Entry(self.next_entry, encode_entry(body, self._policy.compression), records)
        self.next_entry += 1
        self.sealed_records += records
        return entry


def check_size(payloads: Sequence[bytes], most: int) -> None:
    """Raises `RecordTooLargeError` if one is larger than `most` bytes."""
    largest = max(map(len, payloads), default=0)
    if largest > most:
        raise RecordTooLargeError(f"a record of {largest} bytes is too large: {most} at most")
