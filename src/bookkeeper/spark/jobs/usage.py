"""Usage: how many entries and bytes each ledger has on each bookie, from the metadata and the lengths entries carry.

Exact where a bookie of a fragment holds all of its entries. In a striped fragment the entries are exact, and the bytes
a share by their number: those rows are marked as estimated. So are the bytes of a fragment whose last entry cannot be
read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from ...client.client import BookieInfo, BookKeeper
from ...errors import BKError, NoSuchLedgerOnMetadataError
from ...protocol.entry import HEADER_SIZE
from ...quorum.distribution import Distribution
from ..options import ReadOptions, Selection
from ..planning import AT_ONCE, Snapshot, fits, fragments, gather_bounded, selected_ids, snapshot_of
from ..reading import digest_of
from ..session import Session
from .running import Counter, OnProgress, connected, materialize, on_units, watched

log = logging.getLogger(__name__)

LEDGERS_PER_TASK = 1000

SHOWN = 20
"""Ledgers that a report lists, the largest first; all of them are in its rows."""

SCHEMA = StructType(
    [
        StructField("ledger_id", LongType()),
        StructField("state", StringType()),
        StructField("ledger_entries", LongType()),
        StructField("ledger_bytes", LongType()),
        StructField("bookie", StringType()),
        StructField("fragments", IntegerType()),
        StructField("entries", LongType()),
        StructField("bytes", LongType()),
        StructField("stored_bytes", LongType()),
        StructField("estimated", BooleanType()),
    ]
)

Row = tuple[int, str, int, int, str, int, int, int, int, bool]


@dataclass(frozen=True)
class UsageReport:
    """Space by ledger and bookie. `rows` has one for each ledger and bookie, kept by Spark until `rows.unpersist()`."""

    ledgers: int
    entries: int
    bytes: int
    """Payload of one copy of everything."""
    stored_bytes: int
    """All copies, with the headers and digests of entries; without the bookies' indexes and what waits for reclaim."""
    bookies: list[dict[str, Any]]
    largest: list[dict[str, Any]]
    rows: DataFrame

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ledgers": self.ledgers,
            "entries": self.entries,
            "bytes": self.bytes,
            "stored_bytes": self.stored_bytes,
            "bookies": self.bookies,
            "largest": self.largest,
        }


async def _plan(bk: BookKeeper, selection: Selection) -> list[int]:
    return [ledger_id async for ledger_id in selected_ids(bk, selection)]


def plan_usage(options: ReadOptions) -> list[int]:
    """The ledgers that would be looked at; some may turn out not to fit the wanted custom metadata."""
    with connected(options) as here:
        return here.run(_plan(here.client, options.selection))


def usage(
    spark: SparkSession, options: ReadOptions, *, plan: list[int] | None = None, on_progress: OnProgress | None = None
) -> UsageReport:
    """Space used by the ledgers that the options select."""
    ids = plan if plan is not None else plan_usage(options)
    units = [ids[start : start + LEDGERS_PER_TASK] for start in range(0, len(ids), LEDGERS_PER_TASK)]
    counter = Counter(spark)

    def work(here: Session, ledger_ids: list[int]) -> Iterator[Row]:
        async def look_up(ledger_id: int) -> list[Row]:
            return await _usage_of(here.client, options, ledger_id)

        for rows in here.run(gather_bounded(look_up, ledger_ids, AT_ONCE)):
            counter.add(1, 0)
            yield from rows

    with connected(options) as here:
        disks = here.run(here.client.bookie_info())
    with watched(counter, len(ids), 0, on_progress):
        rows = materialize(on_units(spark, units, work, options, SCHEMA))
        return _report(rows, disks)


async def _usage_of(bk: BookKeeper, options: ReadOptions, ledger_id: int) -> list[Row]:
    try:
        metadata = await bk.get_ledger_metadata(ledger_id)
        if not fits(metadata, options.selection):
            return []
        snapshot = await snapshot_of(bk, metadata, options)
    except NoSuchLedgerOnMetadataError:
        return []  # a gap in a range, or deleted meanwhile
    if snapshot is None:
        return []
    return await _rows(bk, options, snapshot)


async def _rows(bk: BookKeeper, options: ReadOptions, snapshot: Snapshot) -> list[Row]:
    metadata = snapshot.metadata
    schedule = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    whole = metadata.ensemble_size == metadata.write_quorum
    overhead = HEADER_SIZE + digest_of(metadata, options).size
    pieces = fragments(metadata, snapshot.last)
    lengths, exact = await _lengths(bk, snapshot, [last for _, last in pieces])
    found = {} if pieces else {str(bookie): [0, 0, 0] for bookie in metadata.last_ensemble[1]}
    for (first, last), size in zip(pieces, lengths, strict=True):
        for index, bookie in enumerate(metadata.ensemble_at(first)):
            entries = _held_up_to(schedule, index, last) - _held_up_to(schedule, index, first - 1)
            share = size * entries // (last - first + 1)
            total = found.setdefault(str(bookie), [0, 0, 0])
            total[0] += 1
            total[1] += entries
            total[2] += share
    return [
        (
            metadata.ledger_id,
            metadata.state.name,
            snapshot.last + 1,
            snapshot.bytes,
            bookie,
            count,
            entries,
            size,
            size + entries * overhead,
            not (whole and exact),
        )
        for bookie, (count, entries, size) in found.items()
    ]


def _held_up_to(schedule: Distribution, index: int, last: int) -> int:
    """How many of the entries 0 to `last` the bookie at an ensemble index holds."""
    size = schedule.ensemble_size
    cycles, rest = divmod(last + 1, size)
    return cycles * schedule.write_quorum + sum(schedule.has_entry(entry, index) for entry in range(rest))


async def _lengths(bk: BookKeeper, snapshot: Snapshot, ends: list[int]) -> tuple[list[int], bool]:
    """Payload bytes of each fragment, given their last entries; and whether they are exact."""
    totals = [0]
    exact = True
    if len(ends) > 1:
        async with bk.open_ledger_as_admin(snapshot.ledger_id) as reader:
            for end in ends[:-1]:
                try:
                    totals.append((await reader.read_unconfirmed(end, end))[0].ledger_length)
                except BKError as error:
                    log.warning("%s; its fragment's bytes are estimated", error)
                    totals.append(snapshot.bytes * (end + 1) // (snapshot.last + 1))
                    exact = False
    if ends:
        totals.append(snapshot.bytes)
    return [after - before for before, after in pairwise(totals)], exact


def _report(rows: DataFrame, disks: dict[Any, BookieInfo]) -> UsageReport:
    by_ledger = rows.groupBy("ledger_id", "state").agg(
        F.max("ledger_entries").alias("entries"),
        F.max("ledger_bytes").alias("bytes"),
        F.count("*").alias("bookies"),
        F.sum("stored_bytes").alias("stored_bytes"),
    )
    total = by_ledger.agg(F.count("*"), F.sum("entries"), F.sum("bytes"), F.sum("stored_bytes")).collect()[0]
    largest = by_ledger.orderBy(F.desc("stored_bytes"), "ledger_id").limit(SHOWN).collect()
    by_bookie = rows.groupBy("bookie").agg(
        F.countDistinct("ledger_id").alias("ledgers"),
        F.sum("entries").alias("entries"),
        F.sum("bytes").alias("bytes"),
        F.sum("stored_bytes").alias("stored_bytes"),
    )
    bookies = {row["bookie"]: row.asDict() for row in by_bookie.orderBy("bookie").collect()}
    for bookie, space in disks.items():
        bookies.setdefault(
            bookie, {"bookie": bookie, "ledgers": 0, "entries": 0, "bytes": 0, "stored_bytes": 0}
        ).update(disk_total=space.total, disk_free=space.free)
    return UsageReport(
        total[0],
        total[1] or 0,
        total[2] or 0,
        total[3] or 0,
        [bookies[name] for name in sorted(bookies)],
        [row.asDict() for row in largest],
        rows,
    )
