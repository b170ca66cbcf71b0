"""From a selection of ledgers to pieces of work of about equal size.

1. The selection becomes ledger ids: those named, those found in ranges, those whose custom metadata fits.
2. Each ledger gets a *snapshot*: how far it is read, and how many bytes that is. A closed ledger says so itself. For
   one that is still written, `openLedgers` decides: `lac` reads up to the last entry confirmed now, found out from a
   quorum of bookies without disturbing the writer; `skip` leaves it out; `recover` fences its writer and closes it. So
   all tasks, and their retries, read the same entries.
3. Each snapshot is cut where its ensemble changed, then into ranges of about the wanted size, by the ledger's average
   entry size. A range never begins inside an entry.
4. Neighbouring small ranges go into one partition, so that many small ledgers do not become many small tasks.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ..client.client import BookKeeper
from ..errors import NoSuchLedgerOnMetadataError
from ..metadata.ledger_metadata import LedgerMetadata
from ..types import MAX_LEDGER_ID
from .bounds import Bounds
from .options import ReadOptions, Selection

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Ledgers looked up at the same time."""

LOOKED_UP = 4096
"""Ledgers whose metadata are in memory at a time, if only what is read of them is kept."""

PROBE_BELOW = 256
"""Ranges of up to so many ids are looked up id by id; for others all ids of the cluster are listed."""

NOTHING: Mapping[int, int | None] = {}

T = TypeVar("T")
R = TypeVar("R")


class EntryRange(NamedTuple):
    """Consecutive entries of one fragment of one ledger."""

    ledger_id: int
    first: int
    last: int
    bytes: int
    """Of payload; an estimate from the ledger's average."""
    records: int = 0
    """An estimate, too; 0: nobody asked."""

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a ledger is read."""

    metadata: LedgerMetadata
    last: int
    """The last entry; -1 for an empty ledger."""
    bytes: int
    """Payload up to there."""

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id


@dataclass(frozen=True, slots=True)
class Plan:
    """What a read consists of."""

    snapshots: tuple[Snapshot, ...]
    """Ascending by ledger id, without those left out; none, if they were not to be kept."""
    partitions: tuple[tuple[EntryRange, ...], ...]

    @property
    def entries(self) -> int:
        return sum(piece.entries for partition in self.partitions for piece in partition)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for partition in self.partitions for piece in partition)


async def plan_read(
    bk: BookKeeper, options: ReadOptions, already: Mapping[int, int | None] = NOTHING, *, keep_snapshots: bool = True
) -> Plan:
    """Plan a read.

    - `already`: ledgers that were read up to an entry before, or (None) to their end.
    - `keep_snapshots`: without, the plan has partitions only: for very many ledgers.

    Raises `NoSuchLedgerOnMetadataError`, `UnauthorizedError`, and what opening a ledger raises."""
    greatest = MAX_LEDGER_ID if options.entries_to is None else options.entries_to
    entries = options.where.entries.within(options.entries_from, greatest)
    snapshots: list[Snapshot] = []
    ranges: list[EntryRange] = []
    count = 0
    async for snapshot in take_snapshots(bk, options, already):
        count += 1
        if keep_snapshots:
            snapshots.append(snapshot)
        ranges += cut(snapshot, entries.within(_next(already.get(snapshot.ledger_id)), MAX_LEDGER_ID))
    if (most := options.max_partition_records) is not None:
        ranges = [part for piece in ranges for part in counted(piece, 1.0, most)]
    partitions = into_partitions(ranges, options.target_partition_bytes, options.min_partitions, most)
    plan = Plan(tuple(snapshots), tuple(partitions))
    log.info(
        "%s, ledgers %s: %d ledgers, %d entries, about %d bytes in %d tasks",
        *(options.uri, options.selection, count, plan.entries, plan.bytes, len(plan.partitions)),
    )
    return plan


def _next(last: int | None) -> int:
    return 0 if last is None else last + 1


async def take_snapshots(
    bk: BookKeeper, options: ReadOptions, already: Mapping[int, int | None] = NOTHING
) -> AsyncIterator[Snapshot]:
    """The ledgers that are selected, and within `where`, ascending, each as of now; without those read to their end."""
    named = frozenset(options.selection.ids)
    within = options.where.ledgers

    async def look_up(ledger_id: int) -> Snapshot | None:
        try:
            metadata = await bk.get_ledger_metadata(ledger_id)
            if not fits(metadata, options.selection):
                return None
            options.password_for(metadata.password, ledger_id)
            return await snapshot_of(bk, metadata, options)
        except NoSuchLedgerOnMetadataError:
            if ledger_id not in named:
                return None  # deleted after it was listed, or a gap in a range
            if options.fail_on_data_loss:
                raise NoSuchLedgerOnMetadataError(
                    "there is no such ledger in the metadata store", ledger_id=ledger_id
                ) from None
            log.warning("ledger %d does not exist, and is left out", ledger_id)
            return None

    ids = [
        ledger_id
        async for ledger_id in selected_ids(bk, options.selection)
        if ledger_id in within and already.get(ledger_id, 0) is not None
    ]
    for start in range(0, len(ids), LOOKED_UP):
        for snapshot in await gather_bounded(look_up, ids[start : start + LOOKED_UP], AT_ONCE):
            if snapshot is not None:
                yield snapshot


async def gather_bounded(work: Callable[[T], Awaitable[R]], items: Sequence[T], at_once: int) -> list[R]:
    """`work(item)` for each item, `at_once` at a time; results in the order of the items."""
    results: list[R | None] = [None] * len(items)
    numbers = iter(range(len(items)))

    async def worker() -> None:
        for number in numbers:
            results[number] = await work(items[number])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return results  # type: ignore[return-value]  # none is left out


async def selected_ids(bk: BookKeeper, selection: Selection) -> AsyncIterator[int]:
    """The ids that are named or listed, ascending; whether they exist and fit is not known yet."""
    ids = dict.fromkeys(selection.ids)
    wide = [(first, last) for first, last in selection.ranges if last - first >= PROBE_BELOW]
    for first, last in selection.ranges:
        if last - first < PROBE_BELOW:
            ids.update(dict.fromkeys(range(first, last + 1)))
    everything = selection.everything or not (selection.ids or selection.ranges)
    if everything or wide:
        async for ledger_id in bk.list_ledgers():
            if everything or any(first <= ledger_id <= last for first, last in wide):
                ids[ledger_id] = None
    for ledger_id in sorted(ids):
        yield ledger_id


def fits(metadata: LedgerMetadata, selection: Selection) -> bool:
    """Whether a ledger has the custom metadata that is wanted."""
    if not selection.custom:
        return True
    has = {key.lower(): value for key, value in metadata.custom_metadata.items()}
    return all(has.get(key.lower()) == value.encode() for key, value in selection.custom)


async def snapshot_of(bk: BookKeeper, metadata: LedgerMetadata, options: ReadOptions) -> Snapshot | None:
    """How far a ledger is to be read; None if `openLedgers` leaves it out."""
    if metadata.closed:
        return Snapshot(metadata, metadata.last_entry_id, metadata.length)
    if options.open_ledgers == "skip":
        return None
    recover = options.open_ledgers == "recover"
    password = options.password_for(metadata.password, metadata.ledger_id)
    async with bk.open_ledger(metadata.ledger_id, password=password, recover=recover) as reader:
        last = reader.last_add_confirmed
        if reader.closed:
            return Snapshot(reader.metadata, last, reader.length)
        size = 0 if last < 0 else (await reader.read_unconfirmed(last, last))[0].ledger_length
        return Snapshot(reader.metadata, last, size)


def cut(snapshot: Snapshot, entries: Bounds) -> list[EntryRange]:
    """A snapshot's wanted entries, by fragment."""
    if snapshot.last < 0:
        return []
    average = snapshot.bytes / (snapshot.last + 1)
    ranges: list[EntryRange] = []
    for first, last in fragments(snapshot.metadata, snapshot.last):
        for start, end in entries.pieces(first, last):
            ranges.append(EntryRange(snapshot.ledger_id, start, end, round((end - start + 1) * average)))
    return ranges


def fragments(metadata: LedgerMetadata, last: int) -> list[tuple[int, int]]:
    """First and last entry of each non-empty fragment, up to entry `last`."""
    firsts = [first for first in metadata.ensembles if first <= last]
    ends = [*(first - 1 for first in firsts[1:]), last]
    return list(zip(firsts, ends, strict=True)) if firsts else []


def counted(piece: EntryRange, each: float, most: int) -> list[EntryRange]:
    """A range, whose entries have `each` records, in equal parts of at most so many; a single entry may have more."""
    parts = min(piece.entries, -(-piece.entries // max(1, int(most / each))))
    cut_up = split(piece, max(1, piece.bytes), None, parts)
    return [part._replace(records=math.ceil(part.entries * each)) for part in cut_up]


def into_partitions(
    ranges: Sequence[EntryRange], target: int, at_least: int, most: int | None = None
) -> list[tuple[EntryRange, ...]]:
    """Partitions of about `target` bytes; at least so many, if there are that many entries; of at most `most` records,
    if the ranges are `counted`.

    To begin with a range costs time, too. So a wish for many partitions divides what all of it costs, not the payload:
    thousands of small ledgers stay as few tasks as were asked for.
    """
    if at_least == 1:
        return pack([part for piece in ranges for part in split(piece, target)], target, 1, most)
    wanted = min(at_least, sum(piece.entries for piece in ranges))
    # An entry without payload counts as a byte, so that a ledger of such entries can be cut, too.
    share = sum(piece.bytes + piece.entries for piece in ranges) // at_least + 1
    parts: list[EntryRange] = []
    while len(parts) < wanted:  # more than one round only where a single entry is larger than a share
        parts = [part for piece in ranges for part in split(piece, target, share)]
        share = max(1, share // 2)
    cost = sum(part.bytes + PIECE_COST for part in parts)
    return pack(parts, min(target, -(-cost // at_least)), at_least, most)


def split(piece: EntryRange, target: int, share: int | None = None, least: int = 1) -> list[EntryRange]:
    """A range in equal parts of about `target` bytes, at least so many; none of them larger than `share`, unless it is
    one entry."""
    count = piece.entries
    parts = max(least, round(piece.bytes / target))
    if share is not None:
        parts = max(parts, -(-(piece.bytes + count) // share))
    parts = min(count, parts)
    bounds = [piece.first + count * number // parts for number in range(parts + 1)]
    return [
        EntryRange(
            piece.ledger_id,
            start,
            end - 1,
            piece.bytes * (end - start) // count,
            -(-piece.records * (end - start) // count),
        )
        for start, end in pairwise(bounds)
    ]


def pack(
    ranges: Sequence[EntryRange], target: int, at_least: int = 1, most: int | None = None
) -> list[tuple[EntryRange, ...]]:
    """Neighbours together, up to about `target` bytes and `most` records; at least so many partitions, if there are
    that many ranges."""
    partitions: list[tuple[EntryRange, ...]] = []
    current: list[EntryRange] = []
    size = records = 0
    for number, piece in enumerate(ranges):
        cost = piece.bytes + PIECE_COST
        one_each = len(ranges) - number < at_least - len(partitions)  # what is left is needed for partitions of its own
        full = size + cost > target or (most is not None and records + piece.records > most)
        if current and (full or one_each):
            partitions.append(tuple(current))
            current, size, records = [], 0, 0
        current.append(piece)
        size, records = size + cost, records + piece.records
    if current:
        partitions.append(tuple(current))
    return partitions


PIECE_COST = 64 << 10
"""Bytes that could be read in the time it takes to begin with another range."""
