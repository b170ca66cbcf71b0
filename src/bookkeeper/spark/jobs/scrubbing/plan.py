"""Units of work of a scrub: which entries of which ledgers each task reads.

Where all ledgers are sampled, and nothing else decides, only the records of the sample are looked up. With `since`, and
in ranges of ids, the records of all are, by the driver, some thousands a second: only a record says how old a ledger
is, and whether it is there.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....client.client import BookKeeper
from ....errors import NoSuchLedgerOnMetadataError
from ....metadata.ledger_metadata import LedgerMetadata
from ...options import ReadOptions, Selection
from ...planning import AT_ONCE, EntryRange, Plan, fits, gather_bounded, into_partitions, plan_read, selected_ids
from .choice import Choice, joined, sampled_ids, sampled_runs

UNDIVIDED = 1 << 62
"""Bytes: no range is cut before it is known how much of it is read."""

Unlisted = dict[int, list[tuple[str, int, int]]]
"""Ledger id -> bookie, first and last entry of copies that should be there and are not listed."""


class Looked(NamedTuple):
    """A ledger as it is when it is scrubbed. With the same values later, nothing of it is new."""

    ledger_id: int
    last: int
    """The last entry; -1 for an empty ledger."""
    bookies: int
    """Checksum of its ensembles: copies that repair makes elsewhere are new ones."""


class Piece(NamedTuple):
    """Entries of one fragment."""

    ledger_id: int
    first: int
    last: int
    bytes: int
    """Of payload, once; an estimate of what is read."""
    quorum: int
    """Copies that there should be."""
    wanted: int
    """Entries to be read; fewer than there are in a sample."""

    def within(self, unlisted: Unlisted) -> list[tuple[str, int, int]]:
        """What bookies do not list of this piece."""
        found = unlisted.get(self.ledger_id, ())
        return [
            (bookie, max(first, self.first), min(last, self.last))
            for bookie, first, last in found
            if first <= self.last and last >= self.first
        ]

    def runs(self, seed: int, unlisted: Sequence[tuple[str, int, int]]) -> list[tuple[int, int]]:
        """What is read: all, or the sample and what is not listed."""
        if self.wanted == self.last - self.first + 1:
            return [(self.first, self.last)]
        dice = random.Random(f"{seed} {self.ledger_id} {self.first}")
        drawn = sampled_runs(self.first, self.last, self.wanted, dice)
        return joined([*drawn, *((first, last) for _, first, last in unlisted)])

    def steps(self, first: int, last: int, most_bytes: int, most_entries: int) -> Iterator[EntryRange]:
        """Entries of a run that are looked at together."""
        step = max(1, min(most_entries, most_bytes * self.wanted // max(1, self.bytes)))
        for start in range(first, last + 1, step):
            yield EntryRange(self.ledger_id, start, min(start + step - 1, last), 0)


@dataclass(frozen=True)
class ScrubPlan:
    """What a scrub looks at."""

    ledgers: tuple[Looked, ...]
    units: tuple[tuple[Piece, ...], ...]
    seed: int

    @property
    def entries(self) -> int:
        return sum(piece.wanted for unit in self.units for piece in unit)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for unit in self.units for piece in unit)

    @property
    def total_copies(self) -> int:
        return sum(piece.wanted * piece.quorum for unit in self.units for piece in unit)

    @property
    def total_bytes(self) -> int:
        return sum(piece.bytes * piece.quorum for unit in self.units for piece in unit)


class Seen:
    """Ledgers that were found whole, as they were then: 24 bytes each."""

    def __init__(self, ids: npt.NDArray[np.int64], last: npt.NDArray[np.int64], bookies: npt.NDArray[np.int64]) -> None:
        order = np.argsort(ids)
        self.ids, self.last, self.bookies = ids[order], last[order], bookies[order]

    @classmethod
    def of(cls, ledgers: Sequence[Looked]) -> Seen:
        table = np.array(ledgers, np.int64).reshape(-1, 3)
        return cls(table[:, 0], table[:, 1], table[:, 2])

    def __contains__(self, ledger: Looked) -> bool:
        at = int(np.searchsorted(self.ids, ledger.ledger_id))
        return at < len(self.ids) and (self.ids[at], self.last[at], self.bookies[at]) == ledger

    def then(self, later: Seen, bad: npt.NDArray[np.int64]) -> Seen:
        """After a scrub that looked at the ledgers `later`, and found something in the `bad` ones."""
        old, new = ~np.isin(self.ids, np.concatenate((later.ids, bad))), ~np.isin(later.ids, bad)
        both = zip((self.ids, self.last, self.bookies), (later.ids, later.last, later.bookies), strict=True)
        return Seen(*(np.concatenate((mine[old], its[new])) for mine, its in both))


NOTHING_SEEN = Seen.of(())


def looked(metadata: LedgerMetadata, last: int) -> Looked:
    """A ledger up to an entry."""
    return Looked(metadata.ledger_id, last, zlib.crc32(repr(sorted(metadata.ensembles.items())).encode()))


async def plan_of(bk: BookKeeper, options: ReadOptions, choice: Choice, seen: Seen = NOTHING_SEEN) -> ScrubPlan:
    """What a scrub looks at. `seen`: what counts as old with `since=last`. Raises as `plan_read`."""
    selection = await _selected(bk, options, choice, seen)
    if selection is None:
        return ScrubPlan((), (), choice.seed)
    whole = replace(options, selection=selection, target_partition_bytes=UNDIVIDED, min_partitions=1)
    plan = await plan_read(bk, whole)
    ledgers = tuple(looked(snapshot.metadata, snapshot.last) for snapshot in plan.snapshots)
    return ScrubPlan(ledgers, _units(plan, options, choice), choice.seed)


async def _selected(bk: BookKeeper, options: ReadOptions, choice: Choice, seen: Seen) -> Selection | None:
    """The ledgers that are looked at; None: there are none."""
    selection = options.selection
    if choice.ledgers is None and choice.since is None:
        return selection
    ids = [ledger_id async for ledger_id in selected_ids(bk, selection) if ledger_id in options.where.ledgers]
    named = frozenset(selection.ids)
    if selection.custom or selection.ranges or choice.since is not None:  # not all ids of a range exist

        async def wanted(ledger_id: int) -> bool:
            try:
                metadata = await bk.get_ledger_metadata(ledger_id)
            except NoSuchLedgerOnMetadataError:
                return ledger_id in named  # who plans the read says what it means
            return fits(metadata, selection) and _is_new(metadata, choice, seen)

        answers = await gather_bounded(wanted, ids, AT_ONCE)
        ids = [ledger_id for ledger_id, is_wanted in zip(ids, answers, strict=True) if is_wanted]
    if choice.ledgers is not None:
        ids = sampled_ids(ids, choice.ledgers, choice.seed)
    if not ids:
        return None
    return replace(
        selection,
        everything=False,
        ids=tuple(ledger_id for ledger_id in ids if ledger_id in named),
        ranges=tuple((ledger_id, ledger_id) for ledger_id in ids if ledger_id not in named),
    )


def _is_new(metadata: LedgerMetadata, choice: Choice, seen: Seen) -> bool:
    if choice.since_last:
        return not metadata.closed or looked(metadata, metadata.last_entry_id) not in seen
    return choice.is_new(metadata)


def _units(plan: Plan, options: ReadOptions, choice: Choice) -> tuple[tuple[Piece, ...], ...]:
    """A plan of whole ranges, divided by what is read of them."""
    quorums = {snapshot.ledger_id: snapshot.metadata.write_quorum for snapshot in plan.snapshots}
    totals: dict[int, int] = {}
    pieces = [piece for partition in plan.partitions for piece in partition]
    for piece in pieces:
        totals[piece.ledger_id] = totals.get(piece.ledger_id, 0) + piece.entries

    def share(ledger_id: int) -> float:
        total = totals[ledger_id]
        return 1.0 if choice.entries is None else choice.entries.of(total) / total

    reading = [piece._replace(bytes=round(piece.bytes * share(piece.ledger_id))) for piece in pieces]
    target, most = options.target_partition_bytes, options.max_partition_records
    return tuple(
        tuple(
            Piece(
                *(part.ledger_id, part.first, part.last, part.bytes, quorums[part.ledger_id]),
                wanted=min(part.entries, max(1, round(part.entries * share(part.ledger_id)))),
            )
            for part in unit
        )
        for unit in into_partitions(reading, target, options.min_partitions, most)
    )
