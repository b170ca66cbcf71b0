"""Scrub: read every copy of every entry, and say what is not as the metadata promise.

First each bookie is asked to list what it has of each ledger, then every copy is read. Nothing is changed. Each row of
the result is about consecutive entries:

| status | bookie | meaning |
|---|---|---|
| ok | yes | these copies are there and good |
| digest_mismatch | yes | the copy's digest, ids or last confirmed are wrong |
| missing | yes | the bookie should have a copy, and does not list it, or says it has none |
| divergent | yes | the copy is good by itself, but differs from what most others say |
| unreachable | yes | the bookie could not be asked |
| underreplicated | no | fewer good copies than the write quorum, at least one |
| gap | no | no good copy at all, and every bookie was asked: the entry is lost |
| deleted | no | the ledger was deleted while the scrub ran |
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ...client.client import BookKeeper
from ...client.reads.replicas import CopyStatus, Problem, Replicas
from ...errors import NoSuchLedgerOnMetadataError
from ...metadata.ledger_metadata import LedgerMetadata
from ..options import ReadOptions
from ..planning import EntryRange, Plan, fragments, gather_bounded, plan_read
from ..reading import digest_of
from ..replicas import RangeCheck, check_copies, unlisted_copies
from ..session import Session
from .running import Counter, OnProgress, connected, materialize, on_units, watched

CHECK_BYTES = 16 << 20
CHECK_ENTRIES = 50_000
"""A task holds what it knows of so many entries at a time."""

LEDGERS_PER_LIST = 50
"""Ledgers a task asks all bookies to list; the lists of `LISTS_AT_ONCE` of them at a time."""

LISTS_AT_ONCE = 4

SHOWN = 1000
"""Problems that a report lists; all of them are in its rows."""

SCHEMA = StructType(
    [
        StructField("run_id", StringType()),
        StructField("ledger_id", LongType()),
        StructField("fragment", LongType()),
        StructField("first_entry", LongType()),
        StructField("last_entry", LongType()),
        StructField("bookie", StringType()),
        StructField("status", StringType()),
        StructField("entries", LongType()),
        StructField("bytes", LongType()),
        StructField("detail", StringType()),
    ]
)

UNLISTED = StructType(
    [
        StructField("ledger_id", LongType()),
        StructField("bookie", StringType()),
        StructField("first", LongType()),
        StructField("last", LongType()),
    ]
)

_Unlisted = dict[int, list[tuple[str, int, int]]]
"""Ledger id -> bookie, first and last entry of copies that should be there and are not listed."""

_Unit = tuple[Sequence[EntryRange], _Unlisted]

Row = tuple[str, int, int, int, int, str | None, str, int, int | None, str | None]


class _Found(NamedTuple):
    """A finding about one entry, before neighbours are put together."""

    entry_id: int
    bookie: str | None
    status: str
    detail: str


@dataclass(frozen=True)
class ScrubReport:
    """What a scrub found. `rows` are all its rows, kept by Spark until `rows.unpersist()`."""

    run_id: str
    ledgers: int
    entries: int
    copies: int
    """Good ones."""
    bytes: int
    """Payload of the good copies."""
    statuses: dict[str, int]
    """Copies, or entries, by status, without `ok`."""
    bookies: dict[str, dict[str, int]]
    """The same, `ok` included, for each bookie."""
    problems: list[dict[str, Any]]
    """The first ones, at most `SHOWN`."""
    rows: DataFrame

    @property
    def clean(self) -> bool:
        """Whether every copy of every entry is there and good."""
        return not self.statuses

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run_id": self.run_id,
            "clean": self.clean,
            "ledgers": self.ledgers,
            "entries": self.entries,
            "good_copies": self.copies,
            "bytes": self.bytes,
            "statuses": self.statuses,
            "bookies": self.bookies,
            "problems": self.problems,
        }


def plan_scrub(options: ReadOptions) -> Plan:
    """What a scrub would look at."""
    with connected(options) as here:
        return here.run(plan_read(here.client, options))


def scrub(
    spark: SparkSession, options: ReadOptions, *, plan: Plan | None = None, on_progress: OnProgress | None = None
) -> ScrubReport:
    """Scrub the ledgers that the options select."""
    plan = plan or plan_scrub(options)
    run_id = str(uuid.uuid4())
    counter = Counter(spark)

    def work(here: Session, unit: _Unit) -> Iterator[Row]:
        ranges, unlisted = unit
        for piece in ranges:
            step = max(1, min(CHECK_ENTRIES, CHECK_BYTES * piece.entries // max(1, piece.bytes)))
            for first in range(piece.first, piece.last + 1, step):
                part = EntryRange(piece.ledger_id, first, min(first + step - 1, piece.last), 0)
                rows, copies, size = here.run(
                    _check(here.client, options, part, unlisted.get(part.ledger_id, []), run_id)
                )
                counter.add(copies, size)
                yield from rows

    total_rows, total_bytes = _copies(plan)
    with watched(counter, total_rows, total_bytes, on_progress):
        unlisted = _find_unlisted(spark, options, plan)
        units = [(ranges, _of_ranges(unlisted, ranges)) for ranges in plan.partitions]
        rows = materialize(on_units(spark, units, work, options, SCHEMA))
        return _report(run_id, plan, rows)


def _find_unlisted(spark: SparkSession, options: ReadOptions, plan: Plan) -> _Unlisted:
    """What bookies should have of each ledger and do not list: bookie, first and last entry."""
    ledgers = [(snapshot.ledger_id, snapshot.last) for snapshot in plan.snapshots if snapshot.last >= 0]
    units = [ledgers[start : start + LEDGERS_PER_LIST] for start in range(0, len(ledgers), LEDGERS_PER_LIST)]

    def work(here: Session, unit: list[tuple[int, int]]) -> Iterator[tuple[int, str, int, int]]:
        async def look_up(ledger: tuple[int, int]) -> list[tuple[str, int, int]]:
            try:
                metadata = await here.client.get_ledger_metadata(ledger[0])
            except NoSuchLedgerOnMetadataError:
                return []
            replicas = Replicas(here.client.context, metadata, digest_of(metadata, options))
            return await unlisted_copies(replicas, fragments(metadata, ledger[1]))

        for (ledger_id, _), found in zip(unit, here.run(gather_bounded(look_up, unit, LISTS_AT_ONCE)), strict=True):
            for bookie, first, last in found:
                yield ledger_id, bookie, first, last

    unlisted: _Unlisted = {}
    for row in on_units(spark, units, work, options, UNLISTED).collect():
        unlisted.setdefault(row["ledger_id"], []).append((row["bookie"], row["first"], row["last"]))
    return unlisted


def _copies(plan: Plan) -> tuple[int, int]:
    """How many copies there should be, and their bytes."""
    quorums = {snapshot.ledger_id: snapshot.metadata.write_quorum for snapshot in plan.snapshots}
    pieces = [piece for partition in plan.partitions for piece in partition]
    return (
        sum(piece.entries * quorums[piece.ledger_id] for piece in pieces),
        sum(piece.bytes * quorums[piece.ledger_id] for piece in pieces),
    )


def _of_ranges(unlisted: _Unlisted, ranges: Sequence[EntryRange]) -> _Unlisted:
    """What concerns these ranges."""
    mine: _Unlisted = {}
    for piece in ranges:
        found = [one for one in unlisted.get(piece.ledger_id, ()) if one[1] <= piece.last and one[2] >= piece.first]
        if found:
            mine[piece.ledger_id] = [*mine.get(piece.ledger_id, ()), *found]
    return mine


async def _check(
    bk: BookKeeper, options: ReadOptions, part: EntryRange, unlisted: list[tuple[str, int, int]], run_id: str
) -> tuple[list[Row], int, int]:
    """Rows about a range of entries; how many good copies were read, and their bytes."""
    try:
        metadata = await bk.get_ledger_metadata(part.ledger_id)
    except NoSuchLedgerOnMetadataError:
        return (
            [(run_id, part.ledger_id, part.first, part.first, part.last, None, "deleted", part.entries, None, None)],
            0,
            0,
        )
    by_bookie: dict[str, list[tuple[int, int]]] = {}
    for bookie, first, last in unlisted:
        by_bookie.setdefault(bookie, []).append((first, last))
    check = await check_copies(bk, metadata, digest_of(metadata, options), part.first, part.last, by_bookie)
    fragment = max(first for first in metadata.ensembles if first <= part.first)
    head = (run_id, part.ledger_id, fragment)
    rows: list[Row] = [
        (*head, part.first, part.last, str(bookie), "ok", copies, size, None)
        for bookie, (copies, size) in check.good.items()
        if copies
    ]
    for first, found in _runs([*_of_copies(check.problems), *_of_entries(check, metadata)]):
        entries = found.entry_id - first + 1
        rows.append((*head, first, found.entry_id, found.bookie, found.status, entries, None, found.detail))
    return rows, sum(copies for copies, _ in check.good.values()), sum(size for _, size in check.good.values())


def _of_copies(problems: Iterable[Problem]) -> Iterator[_Found]:
    for problem in problems:
        yield _Found(problem.entry_id, str(problem.bookie), problem.status.value, problem.detail)


def _of_entries(check: RangeCheck, metadata: LedgerMetadata) -> Iterator[_Found]:
    wanted = metadata.write_quorum
    unknown = {problem.entry_id for problem in check.problems if problem.status is CopyStatus.UNREACHABLE}
    for row in np.flatnonzero(check.good_copies < wanted).tolist():
        entry_id = check.first + row
        copies = int(check.good_copies[row])
        gap = copies == 0 and entry_id not in unknown
        yield _Found(entry_id, None, "gap" if gap else "underreplicated", f"{copies} of {wanted} copies are good")


def _runs(found: list[_Found]) -> Iterator[tuple[int, _Found]]:
    """Consecutive entries with the same finding, as the first entry id and the last finding."""

    def kind(numbered: tuple[int, _Found]) -> tuple[str, str, str, int]:
        number, one = numbered
        return one.bookie or "", one.status, one.detail, one.entry_id - number

    found.sort(key=lambda one: (one.bookie or "", one.status, one.detail, one.entry_id))
    for _, group in groupby(enumerate(found), kind):
        members = [one for _, one in group]
        yield members[0].entry_id, members[-1]


def _report(run_id: str, plan: Plan, rows: DataFrame) -> ScrubReport:
    statuses: dict[str, int] = {}
    bookies: dict[str, dict[str, int]] = {}
    size = 0
    totals = rows.groupBy("bookie", "status").agg(F.sum("entries").alias("n"), F.sum("bytes").alias("size")).collect()
    for row in totals:
        if row["bookie"] is not None:
            bookies.setdefault(row["bookie"], {})[row["status"]] = row["n"]
        if row["status"] == "ok":
            size += row["size"] or 0
        else:
            statuses[row["status"]] = statuses.get(row["status"], 0) + row["n"]
    bad = rows.where(F.col("status") != "ok").orderBy("ledger_id", "first_entry", "bookie").limit(SHOWN)
    problems = [row.asDict() for row in bad.drop("run_id", "bytes").collect()]
    copies = sum(counts.get("ok", 0) for counts in bookies.values())
    return ScrubReport(
        run_id,
        len(plan.snapshots),
        plan.entries,
        copies,
        size,
        dict(sorted(statuses.items())),
        dict(sorted(bookies.items())),
        problems,
        rows,
    )
