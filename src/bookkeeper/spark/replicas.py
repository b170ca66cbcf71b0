"""Every copy of a range of entries, as arrays: scrubbing, and `verify=all`.

What a good copy is, and how it is asked for, `client.reads.replicas` says.

Theory of operation

- A bookie of a fragment must hold the entries of its write sets. Where it holds all of them (the ensemble is as large
  as the write quorum) they are fetched with batch reads, straight from that bookie; otherwise, and from bookies without
  batch reads, one by one with many requests under way.
- Where a batch read ends early the entry behind it is asked for by itself. Where it fails, those that were asked for
  are, one by one: a torn entry log must not speak for others. When entries turn out to be missing the
  bookie is asked once for the list of what it has, so that a lost disk does not cost a request for each entry.
- A scrub asks each bookie beforehand for the list of a ledger's entries. What is not on it is missing, whether or not
  the bookie happens to serve it now.
- Copies with equal digests are equal. Those whose digests differ are read once more, and compared by their content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..client.client import BookKeeper
from ..client.reads.columns import Bytes, Int64s, PackedRun, take_run
from ..client.reads.replicas import RETRY_SECONDS, Copy, CopyStatus, Problem, Replicas, Reply
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.availability import Availability
from ..protocol.digest import Digest
from ..quorum.distribution import Distribution
from ..types import BookieId

LIST_STEP = 1 << 20
"""Entries compared with a bookie's list at a time."""


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
    replicas = Replicas(bk.context, metadata, digest)
    ids = np.arange(first, last + 1)
    readers = [
        _Copies(
            replicas,
            metadata.ledger_id,
            digest,
            bookie,
            _held(replicas.distribution, index, ids),
            first,
            unlisted.get(str(bookie), ()),
        )
        for index, bookie in enumerate(metadata.ensemble_at(first))
    ]
    async with asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.read())
    await _compare(replicas, readers)
    check = RangeCheck(first, last)
    check.good_copies = np.sum([reader.good for reader in readers], axis=0, dtype=np.int16)
    for reader in readers:
        check.problems += reader.problems
        copies, size = check.good.get(reader.bookie, (0, 0))
        check.good[reader.bookie] = (copies + int(reader.good.sum()), size + int(reader.sizes[reader.good].sum()))
    return check


async def unlisted_copies(replicas: Replicas, pieces: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
    """Copies of these fragments that bookies should have and do not list: bookie, first and last entry.

    A bookie that cannot be asked has none here: reading its copies will tell. Bookies are asked twice when something is
    not listed, because it may be on its way: a writer does not wait for its slowest bookie.
    """
    found = await _unlisted_now(replicas, pieces)
    if found:
        await asyncio.sleep(RETRY_SECONDS)
        found = await _unlisted_now(replicas, pieces)
    return found


async def _unlisted_now(replicas: Replicas, pieces: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
    metadata, schedule = replicas.metadata, replicas.distribution
    bookies = list(dict.fromkeys(bookie for first, _ in pieces for bookie in metadata.ensemble_at(first)))
    answers = await asyncio.gather(*(replicas.listed(bookie) for bookie in bookies))
    lists = dict(zip(bookies, answers, strict=True))
    found: list[tuple[str, int, int]] = []
    for fragment_first, fragment_last in pieces:
        for first in range(fragment_first, fragment_last + 1, LIST_STEP):
            last = min(first + LIST_STEP - 1, fragment_last)
            ids = np.arange(first, last + 1)
            for index, bookie in enumerate(metadata.ensemble_at(first)):
                listed = lists[bookie]
                if listed is not None:
                    absent = _held(schedule, index, ids) & ~listed_mask(listed, first, last)
                    found += [(str(bookie), start + first, stop + first) for start, stop in _runs(absent)]
    return found


def listed_mask(listed: Availability, first: int, last: int) -> npt.NDArray[np.bool_]:
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


def _held(schedule: Distribution, index: int, ids: Int64s) -> npt.NDArray[np.bool_]:
    """Which of the entries the bookie at an ensemble index must have."""
    size = schedule.ensemble_size
    by_remainder = np.array([schedule.has_entry(remainder, index) for remainder in range(size)])
    return np.asarray(by_remainder[ids % size], np.bool_)


class _Copies:
    """One bookie's copies of a range of entries. Arrays have an element for each entry of the range."""

    def __init__(
        self,
        replicas: Replicas,
        ledger_id: int,
        digest: Digest,
        bookie: BookieId,
        held: npt.NDArray[np.bool_],
        first: int,
        unlisted: Sequence[tuple[int, int]],
    ) -> None:
        self._replicas = replicas
        self._ledger_id = ledger_id
        self._digest = digest
        self.bookie = bookie
        self.first = first
        self._held = held
        self._wanted = held.copy()
        """Those to be read."""
        for start, stop in unlisted:
            self._wanted[max(0, start - first) : max(0, stop + 1 - first)] = False
        count = len(held)
        self.good = np.zeros(count, np.bool_)
        self.lengths: Int64s = np.zeros(count, np.int64)
        self.sizes: Int64s = np.zeros(count, np.int64)
        self.marks: Bytes = np.zeros((count, digest.size or 4), np.uint8)
        """The digest of each good copy; without digests, a checksum of its payload."""
        self.problems: list[Problem] = []
        self._listed: Availability | None = None

    async def read(self) -> None:
        """Look at all copies the bookie must have."""
        if self._replicas.in_batches and bool(self._held.all()):
            for start, stop in _runs(self._wanted):
                await self._read_batches(self.first + start, self.first + stop)
        else:
            await self._read_singly(self._ids(self._wanted))
        for entry_id in self._ids(self._held & ~self._wanted):
            self.problem(entry_id, CopyStatus.MISSING, "the bookie does not list it")

    def _ids(self, flags: npt.NDArray[np.bool_]) -> list[int]:
        return [int(row) + self.first for row in np.flatnonzero(flags)]

    def problem(self, entry_id: int, status: CopyStatus, detail: str) -> None:
        """A copy is not good."""
        self.good[entry_id - self.first] = False
        self.problems.append(Problem(entry_id, self.bookie, status, detail))

    # --- runs ---

    async def _read_batches(self, first: int, last: int) -> None:
        at = first
        while at <= last:
            reply = await self._replicas.batch(self.bookie, at, last - at + 1)
            if reply.ok:
                run, _ = take_run(self._ledger_id, self._digest, at, reply.body)
                if run is None:
                    self.problem(at, CopyStatus.DAMAGED, "digest or ids are wrong")
                    at += 1
                else:
                    self._take(run.prefix(last - at + 1))
                    at = run.last + 1
            elif reply.status is CopyStatus.MISSING:
                at = await self._skip_missing(at, last, reply.detail)
            elif reply.hung_up or reply.unreadable:  # it may lack batch reads, or only one of them is bad
                await self._read_singly(list(range(at, last + 1)))
                return
            else:
                for entry_id in range(at, last + 1):
                    self.problem(entry_id, reply.status, reply.detail)
                return

    def _take(self, run: PackedRun) -> None:
        start = run.first - self.first
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

    async def _skip_missing(self, at: int, last: int, detail: str) -> int:
        """The bookie has no entry `at`: note it and those that follow and are missing as well."""
        self.problem(at, CopyStatus.MISSING, detail)
        at += 1
        if at > last:
            return at
        if self._listed is None:
            self._listed = await self._replicas.listed(self.bookie)
            if self._listed is None:
                return at  # one by one then
        while at <= last and at not in self._listed:
            self.problem(at, CopyStatus.MISSING, detail)
            at += 1
        return at

    # --- entry by entry ---

    async def _read_singly(self, wanted: list[int]) -> None:
        async for entry_id, reply in self._replicas.each(self.bookie, wanted):
            self._take_single(entry_id, reply)

    def _take_single(self, entry_id: int, reply: Reply) -> None:
        copy = self._replicas.examine(entry_id, reply)
        if reply.unreadable:
            self.problem(entry_id, CopyStatus.UNREADABLE, "the bookie fails to read it")
            return
        if not isinstance(copy, Copy):
            self.problem(entry_id, copy.status, copy.detail)
            return
        row = entry_id - self.first
        self.good[row] = True
        self.lengths[row] = copy.length
        self.sizes[row] = len(copy.payload)
        mark = copy.digest or google_crc32c.value(copy.payload).to_bytes(4, "big")
        self.marks[row] = np.frombuffer(mark, np.uint8)


async def _compare(replicas: Replicas, readers: Sequence[_Copies]) -> None:
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
    of = {reader.bookie: reader for reader in readers}
    for row in suspects:
        having = [reader.bookie for reader in readers if reader.good[row]]
        for problem in await replicas.compare(readers[0].first + row, having):
            of[problem.bookie].problem(problem.entry_id, problem.status, problem.detail)
