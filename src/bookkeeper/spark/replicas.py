"""Looking at every copy of every entry by itself: scrubbing, `verify=all`, and finding out why a read failed.

Theory of operation

- A bookie of a fragment must hold the entries of its write sets. Where it holds all of them (the ensemble is as large
  as the write quorum) they are fetched with batch reads, straight from that bookie; otherwise, and from bookies without
  batch reads, one by one with many requests under way.
- A copy is *damaged* if its digest, ids or last confirmed are wrong, *missing* if the bookie says it has no such
  entry, *divergent* if it is good but differs in payload or length from the other good copies. What a bookie could not
  be asked is *unreachable*: that says nothing about the copy.
- Where a batch read ends early the entry behind it is asked for by itself. When entries turn out to be missing the
  bookie is asked once for the list of what it has, so that a lost disk does not cost a request for each entry.
- A bookie may serve an entry although its index has lost it, because it stands behind another one in an entry log. A
  scrub therefore asks each bookie beforehand for the list of a ledger's entries. What is not on it is missing, whether
  or not it happens to be served now.
- Copies with equal digests are equal. Digests of good copies may differ, because recovery packages entries anew with
  the last confirmed that it knows; then payloads decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..client.client import BookKeeper
from ..client.wire.calls import Answer, ReadCall
from ..client.wire.results import OK, READ, result_code
from ..errors import (
    BKError,
    BookieUnavailableError,
    DigestMismatchError,
    NoSuchEntryError,
    NoSuchLedgerError,
    ProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
    from_code,
)
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.availability import Availability, decode_availability
from ..protocol.digest import Digest
from ..protocol.entry import HEADER_SIZE
from ..protocol.messages import (
    V2,
    BatchReadRequest,
    BatchReadResponse,
    GetListOfEntriesRequest,
    GetListOfEntriesResponse,
    ReadRequest,
    ReadResponse,
)
from ..quorum.distribution import Distribution
from ..types import BookieId
from .columns import Bytes, Int64s, PackedRun, take_run
from .errors import DataLossError, ReplicaError, ReplicasUnavailableError

BATCH_BYTES = 1 << 20
LIST_SECONDS = 600.0
LIST_STEP = 1 << 20
"""Entries compared with a bookie's list at a time."""

SINGLE_READS = 512
"""Reads of single entries under way on one bookie."""

PATIENCE_SECONDS = 0.5
"""Before a bookie that failed a request is asked a second and last time."""

_ABSENT = (NoSuchEntryError.code, NoSuchLedgerError.code)
_TRANSIENT = (BookieUnavailableError.code, RequestTimeoutError.code, TooManyRequestsError.code)


class CopyStatus(StrEnum):
    """What is wrong with a copy."""

    DAMAGED = "digest_mismatch"
    MISSING = "missing"
    DIVERGENT = "divergent"
    UNREACHABLE = "unreachable"


class Problem(NamedTuple):
    """A copy that is not as it should be."""

    entry_id: int
    bookie: BookieId
    status: CopyStatus
    detail: str


@dataclass
class RangeCheck:
    """What was found about all copies of a range of entries."""

    first: int
    last: int
    problems: list[Problem] = field(default_factory=list)
    good_copies: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))
    """For each entry."""
    good: dict[BookieId, tuple[int, int]] = field(default_factory=dict)
    """Copies and payload bytes that are as they should be."""

    def bad_copies(self) -> dict[int, dict[BookieId, None]]:
        """Bookies without a good copy, by entry."""
        bad: dict[int, dict[BookieId, None]] = {}
        for problem in self.problems:
            bad.setdefault(problem.entry_id, {})[problem.bookie] = None
        return bad


async def check_copies(
    bk: BookKeeper,
    metadata: LedgerMetadata,
    digest: Digest,
    first: int,
    last: int,
    unlisted: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
) -> RangeCheck:
    """Read all copies of entries that lie in one fragment. `unlisted`: ranges of entries that bookies do not list."""
    schedule = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    ensemble = metadata.ensemble_at(first)
    ids = np.arange(first, last + 1)
    readers = [
        _Copies(
            bk,
            metadata.ledger_id,
            digest,
            bookie,
            first,
            last,
            _held(schedule, index, ids),
            unlisted.get(str(bookie), ()),
        )
        for index, bookie in enumerate(ensemble)
    ]
    async with asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.read())
    await _compare(bk, metadata.ledger_id, digest, readers)
    check = RangeCheck(first, last)
    check.good_copies = np.sum([reader.good for reader in readers], axis=0, dtype=np.int16)
    for reader in readers:
        check.problems += reader.problems
        copies, size = check.good.get(reader.bookie, (0, 0))
        check.good[reader.bookie] = (copies + int(reader.good.sum()), size + int(reader.sizes[reader.good].sum()))
    return check


async def unlisted_copies(
    bk: BookKeeper, metadata: LedgerMetadata, pieces: Sequence[tuple[int, int]]
) -> list[tuple[str, int, int]]:
    """Copies of these fragments that bookies should have and do not list: bookie, first and last entry.

    A bookie that cannot be asked has none here: reading its copies will tell. Bookies are asked twice when something is
    not listed, because it may be on its way: a writer does not wait for its slowest bookie.
    """
    found = await _unlisted_now(bk, metadata, pieces)
    if found:
        await asyncio.sleep(PATIENCE_SECONDS)
        found = await _unlisted_now(bk, metadata, pieces)
    return found


async def _unlisted_now(
    bk: BookKeeper, metadata: LedgerMetadata, pieces: Sequence[tuple[int, int]]
) -> list[tuple[str, int, int]]:
    schedule = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    bookies = dict.fromkeys(bookie for first, _ in pieces for bookie in metadata.ensemble_at(first))
    lists = dict(
        zip(bookies, await asyncio.gather(*(_list(bk, metadata.ledger_id, bookie) for bookie in bookies)), strict=True)
    )
    found: list[tuple[str, int, int]] = []
    for fragment_first, fragment_last in pieces:
        for first in range(fragment_first, fragment_last + 1, LIST_STEP):
            last = min(first + LIST_STEP - 1, fragment_last)
            ids = np.arange(first, last + 1)
            for index, bookie in enumerate(metadata.ensemble_at(first)):
                listed = lists[bookie]
                if listed is not None:
                    absent = _held(schedule, index, ids) & ~_mask(listed, first, last)
                    found += [(str(bookie), start + first, stop + first) for start, stop in _runs(absent)]
    return found


async def _list(bk: BookKeeper, ledger_id: int, bookie: BookieId) -> Availability | None:
    """What a bookie lists of a ledger; None if it cannot be asked. It walks its index for that: so it gets time."""
    request = GetListOfEntriesRequest(ledger_id)
    try:
        response = await bk.context.bookies.request(bookie, request, timeout=LIST_SECONDS)
        assert isinstance(response, GetListOfEntriesResponse)
        code = result_code(response.status, READ)
        if code != OK:
            return Availability([]) if code in _ABSENT else None
        return decode_availability(response.availability or b"")
    except (BKError, ProtocolError):
        return None


def _mask(listed: Availability, first: int, last: int) -> npt.NDArray[np.bool_]:
    """Which of the entries `first` to `last` are listed."""
    mask = np.zeros(last - first + 1, np.bool_)
    for start, end, size, period in listed.groups:
        if start > last or end + size <= first:
            continue
        if start == end:
            mask[max(0, start - first) : start + size - first] = True
        else:
            low, high = max(start, first), min(end + size - 1, last)
            mask[low - first : high - first + 1] = (np.arange(low, high + 1) - start) % period < size
    return mask


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of each stretch of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(start), int(stop) - 1) for start, stop in edges.reshape(-1, 2)]


async def diagnose(bk: BookKeeper, metadata: LedgerMetadata, digest: Digest, entry_id: int) -> ReplicaError:
    """Ask every replica of an entry for it: why can it not be read?"""
    schedule = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    ensemble = metadata.ensemble_at(entry_id)
    bookies = list(dict.fromkeys(ensemble[index] for index in schedule.write_set(entry_id)))
    answers = await asyncio.gather(*(_copy(bk, bookie, metadata.ledger_id, entry_id) for bookie in bookies))
    reasons: list[tuple[str, str]] = []
    lost = True
    for bookie, (code, entry) in zip(bookies, answers, strict=True):
        if code == OK:
            try:
                digest.verify(metadata.ledger_id, entry_id, entry)
            except DigestMismatchError as error:
                reasons.append((bookie, f"damaged, {error.args[0].removeprefix('the ')}"))
            else:
                lost = False
                reasons.append((bookie, "good now"))
        else:
            lost = lost and code in _ABSENT
            reasons.append((bookie, _words(code)))
    return (DataLossError if lost else ReplicasUnavailableError)(metadata.ledger_id, entry_id, reasons)


def _words(code: int) -> str:
    """An error code as part of a sentence."""
    text = from_code(code).args[0]
    return str(text[:1].lower() + text[1:])


def _held(schedule: Distribution, index: int, ids: Int64s) -> npt.NDArray[np.bool_]:
    """Which of the entries the bookie at an ensemble index must have."""
    size = schedule.ensemble_size
    by_remainder = np.array([schedule.has_entry(remainder, index) for remainder in range(size)])
    return np.asarray(by_remainder[ids % size], np.bool_)


class _Copies:
    """One bookie's copies of a range of entries. Arrays have an element for each entry of the range."""

    def __init__(
        self,
        bk: BookKeeper,
        ledger_id: int,
        digest: Digest,
        bookie: BookieId,
        first: int,
        last: int,
        held: npt.NDArray[np.bool_],
        unlisted: Sequence[tuple[int, int]],
    ) -> None:
        self._bk = bk
        self._ledger_id = ledger_id
        self._digest = digest
        self.bookie = bookie
        self._first = first
        self._last = last
        self._held = held
        self._wanted = held.copy()
        """Those to be read."""
        for start, stop in unlisted:
            self._wanted[max(0, start - first) : max(0, stop + 1 - first)] = False
        count = last - first + 1
        self.good = np.zeros(count, np.bool_)
        self.lengths: Int64s = np.zeros(count, np.int64)
        self.sizes: Int64s = np.zeros(count, np.int64)
        self.marks: Bytes = np.zeros((count, digest.size or 4), np.uint8)
        """The digest of each good copy; without digests, a checksum of its payload."""
        self.problems: list[Problem] = []
        self._listed: Availability | None = None

    async def read(self) -> None:
        """Look at all copies the bookie must have."""
        config = self._bk.context.config
        batches = config.batchReadEnabled and self._bk.context.bookies.read_version == V2
        if batches and bool(self._held.all()):
            for start, stop in _runs(self._wanted):
                await self._read_batches(self._first + start, self._first + stop)
        else:
            await self._read_singly(self._ids(self._wanted))
        for entry_id in self._ids(self._held & ~self._wanted):
            self.problem(entry_id, CopyStatus.MISSING, "the bookie does not list it")

    def _ids(self, flags: npt.NDArray[np.bool_]) -> list[int]:
        return [int(row) + self._first for row in np.flatnonzero(flags)]

    def problem(self, entry_id: int, status: CopyStatus, detail: str) -> None:
        """A copy is not good."""
        self.good[entry_id - self._first] = False
        self.problems.append(Problem(entry_id, self.bookie, status, detail))

    # --- runs ---

    async def _read_batches(self, first: int, last: int) -> None:
        at = first
        while at <= last:
            code, body = await self._batch(at, last)
            if code == OK:
                run, _ = take_run(self._ledger_id, self._digest, at, body)
                if run is None:
                    self.problem(at, CopyStatus.DAMAGED, "digest or ids are wrong")
                    at += 1
                else:
                    self._take(run.prefix(last - at + 1))
                    at = run.last + 1
            elif code in _ABSENT:
                at = await self._skip_missing(at, last, code)
            elif code == BookieUnavailableError.code:
                # It is gone, or one that hangs up on requests it does not know.
                await self._read_singly(list(range(at, last + 1)))
                return
            else:
                for entry_id in range(at, last + 1):
                    self.problem(entry_id, CopyStatus.UNREACHABLE, _words(code))
                return

    async def _batch(self, at: int, last: int) -> tuple[int, bytes]:
        request = BatchReadRequest(self._ledger_id, at, 0, last - at + 1, BATCH_BYTES)
        code = OK
        for _ in range(2):
            try:
                response = await self._bk.context.bookies.request(self.bookie, request)
            except BKError as error:
                code = error.code
                if code not in _TRANSIENT:
                    break
                await asyncio.sleep(PATIENCE_SECONDS)
            else:
                assert isinstance(response, BatchReadResponse)
                return result_code(response.status, READ), response.body
        return code, b""

    def _take(self, run: PackedRun) -> None:
        start = run.first - self._first
        rows = slice(start, start + run.rows)
        self.good[rows] = True
        self.lengths[rows] = run.length
        self.sizes[rows] = np.diff(run.offsets)
        if self._digest.size:
            self.marks[rows] = run.digests
        else:
            payload = bytes(run.payload)
            bounds = run.offsets.tolist()
            sums = [google_crc32c.value(payload[a:b]) for a, b in pairwise(bounds)]
            self.marks[rows] = np.array(sums, ">u4").view(np.uint8).reshape(-1, 4)
        ahead = run.last_confirmed >= np.arange(run.first, run.last + 1)
        for entry_id in (np.flatnonzero(ahead) + run.first).tolist():
            self.problem(entry_id, CopyStatus.DAMAGED, "its last confirmed is not below its id")

    async def _skip_missing(self, at: int, last: int, code: int) -> int:
        """The bookie has no entry `at`: note it and those that follow and are missing as well."""
        self.problem(at, CopyStatus.MISSING, _words(code))
        at += 1
        if at > last:
            return at
        if self._listed is None:
            self._listed = await _list(self._bk, self._ledger_id, self.bookie)
            if self._listed is None:
                return at  # one by one then
        while at <= last and at not in self._listed:
            self.problem(at, CopyStatus.MISSING, _words(code))
            at += 1
        return at

    # --- entry by entry ---

    async def _read_singly(self, wanted: list[int]) -> None:
        for start in range(0, len(wanted), SINGLE_READS):
            entry_ids = wanted[start : start + SINGLE_READS]
            answers = await _read_many(self._bk, self.bookie, self._ledger_id, entry_ids)
            again = [entry_id for entry_id, (code, _) in answers.items() if code in _TRANSIENT]
            if again:
                await asyncio.sleep(PATIENCE_SECONDS)
                answers |= await _read_many(self._bk, self.bookie, self._ledger_id, again)
            for entry_id in entry_ids:
                self._take_single(entry_id, *answers[entry_id])
            codes = [code for code, _ in answers.values()]
            if all(code in _TRANSIENT for code in codes):
                rest = wanted[start + SINGLE_READS :]
                for entry_id in rest:
                    self.problem(entry_id, CopyStatus.UNREACHABLE, _words(codes[0]))
                return

    def _take_single(self, entry_id: int, code: int, entry: bytes) -> None:
        if code == OK:
            row = entry_id - self._first
            try:
                lac, length, payload = self._digest.verify(self._ledger_id, entry_id, entry)
            except DigestMismatchError as error:
                self.problem(entry_id, CopyStatus.DAMAGED, str(error.args[0]))
                return
            self.good[row] = True
            self.lengths[row] = length
            self.sizes[row] = len(payload)
            mark = entry[HEADER_SIZE : HEADER_SIZE + self._digest.size]
            if not mark:
                mark = google_crc32c.value(payload).to_bytes(4, "big")
            self.marks[row] = np.frombuffer(mark, np.uint8)
            if lac >= entry_id:
                self.problem(entry_id, CopyStatus.DAMAGED, "its last confirmed is not below its id")
        elif code in _ABSENT:
            self.problem(entry_id, CopyStatus.MISSING, _words(code))
        else:
            self.problem(entry_id, CopyStatus.UNREACHABLE, _words(code))


async def _compare(bk: BookKeeper, ledger_id: int, digest: Digest, readers: Sequence[_Copies]) -> None:
    """Find good copies that differ from each other."""
    marks = np.zeros_like(readers[0].marks)
    lengths = np.zeros_like(readers[0].lengths)
    known = np.zeros_like(readers[0].good)
    suspects: dict[int, None] = {}
    for reader in readers:
        both = reader.good & known
        differ = both & ((reader.marks != marks).any(axis=1) | (reader.lengths != lengths))
        suspects.update(dict.fromkeys((np.flatnonzero(differ)).tolist()))
        new = reader.good & ~known
        marks[new] = reader.marks[new]
        lengths[new] = reader.lengths[new]
        known |= new
    for row in suspects:
        entry_id = readers[0]._first + row
        await _settle(bk, ledger_id, digest, entry_id, [reader for reader in readers if reader.good[row]])


async def _settle(bk: BookKeeper, ledger_id: int, digest: Digest, entry_id: int, readers: Sequence[_Copies]) -> None:
    """Which of these copies, whose digests differ, differs from what most of them say?"""
    contents: dict[tuple[int, bytes], list[_Copies]] = {}
    for reader in readers:
        code, entry = await _copy(bk, reader.bookie, ledger_id, entry_id)
        try:
            if code != OK:
                reader.problem(entry_id, CopyStatus.UNREACHABLE, _words(code))
                continue
            _, length, payload = digest.verify(ledger_id, entry_id, entry)
        except DigestMismatchError as error:
            reader.problem(entry_id, CopyStatus.DAMAGED, str(error.args[0]))
            continue
        contents.setdefault((length, payload), []).append(reader)
    if len(contents) < 2:
        return
    most = max(contents.values(), key=len)
    for group in contents.values():
        if group is not most:
            for reader in group:
                reader.problem(entry_id, CopyStatus.DIVERGENT, f"differs from the copy of {most[0].bookie}")


async def _copy(bk: BookKeeper, bookie: BookieId, ledger_id: int, entry_id: int) -> tuple[int, bytes]:
    """One bookie's copy of an entry, unchecked; or why there is none."""
    try:
        response = await bk.context.bookies.request(bookie, ReadRequest(ledger_id, entry_id))
    except BKError as error:
        return error.code, b""
    assert isinstance(response, ReadResponse)
    return result_code(response.status, READ), response.entry or b""


class _Collector:
    """Gathers the answers of reads from one bookie."""

    def __init__(self, count: int) -> None:
        self.answers: dict[int, tuple[int, bytes]] = {}
        self._count = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answers(self, _call: ReadCall, answers: list[Answer]) -> None:
        for entry_id, code, entry, _ in answers:
            self.answers[entry_id] = (code, entry or b"")
        if len(self.answers) == self._count and not self.done.done():
            self.done.set_result(None)


async def _read_many(
    bk: BookKeeper, bookie: BookieId, ledger_id: int, entry_ids: Sequence[int]
) -> dict[int, tuple[int, bytes]]:
    """One bookie's copies, unchecked, with one request for each."""
    bookies = bk.context.bookies
    collector = _Collector(len(entry_ids))
    try:
        bookies.read_entries(ledger_id, entry_ids, ReadCall(bookie, 0, collector, bookies.read_deadline()))
    except TooManyRequestsError as error:
        return dict.fromkeys(entry_ids, (error.code, b""))
    await collector.done
    return collector.answers
