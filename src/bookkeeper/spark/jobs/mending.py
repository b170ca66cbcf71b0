"""What a scrub found is mended: copies that are missing, damaged or divergent are written again (spec streams §18).

Theory of operation

- A scrub knows which entries of which bookie are bad. A mark for autorecovery could not say it, and its workers, who
  look at the ends of fragments only, would find nothing. So tasks mend, with autorecovery's code and under its locks.
- A bookie that runs gets just the entries it lacks, from others that have good ones (`Repair.mend`). If it does not
  take them, its share of the fragment goes to another bookie.
- A bookie that could not be asked may be back in a moment, or lost: its ledgers are marked under-replicated, and
  autorecovery decides.
- What has no good copy left is lost, and stays as it is: nothing is ever made up.
- The findings stay on Spark, those of a ledger in one task. The ledger is locked anew after `FINDINGS_AT_ONCE`.

| status | meaning |
|---|---|
| mended | the copies were written again, and acknowledged |
| moved | another bookie has the fragment's copies now |
| marked | the bookie could not be asked; autorecovery is told |
| superseded | the ledger was deleted, or the bookie is not in its metadata any more |
| locked | somebody else repairs the ledger |
| lost | no bookie gives a good copy |
| failed | `detail` says why; the ledger is marked |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ...autorecovery.checker import Damage
from ...autorecovery.fragments import fragments_of
from ...errors import BKError, BookKeeperError, MetadataError, NoSuchLedgerOnMetadataError, ReadError
from ...metadata.api import LedgerLock
from ...types import BookieId
from ..errors import JobError
from ..options import ReadOptions
from ..session import Session
from .repairing import Tools, tools
from .running import Counter, OnProgress, materialize, on_parts, spark_errors, watched
from .scrubbing.state import State

BAD = ("missing", "digest_mismatch", "divergent", "unreadable", "unreachable")
"""Findings about a copy."""

WHOLE = frozenset({"mended", "moved", "superseded"})
"""Nothing is left to be done."""

FINDINGS_AT_ONCE = 10_000
"""Of one ledger, that a task holds."""

PARTS_PER_CORE = 4

SHOWN = 1000

SCHEMA = StructType(
    [
        StructField("ledger_id", LongType()),
        StructField("bookie", StringType()),
        StructField("first_entry", LongType()),
        StructField("last_entry", LongType()),
        StructField("found", StringType()),
        StructField("status", StringType()),
        StructField("copies", LongType()),
        StructField("bytes", LongType()),
        StructField("detail", StringType()),
    ]
)


class Finding(NamedTuple):
    """What a scrub found of consecutive entries on one bookie."""

    ledger_id: int
    bookie: BookieId
    first_entry: int
    last_entry: int
    status: str


Row = tuple[Any, ...]


@dataclass(frozen=True)
class MendReport:
    """What became of a scrub's findings. `rows` are all, kept by Spark until `rows.unpersist()`."""

    statuses: dict[str, int]
    """Findings, each about consecutive entries on one bookie, by what became of them."""
    copies: int
    """Written and acknowledged."""
    bytes: int
    """Of them, as they are stored."""
    problems: list[dict[str, Any]]
    """What is not whole now; the first `SHOWN`."""
    rows: DataFrame

    @property
    def done(self) -> bool:
        """Whether all findings were mended."""
        return not self.statuses.keys() - WHOLE

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "done": self.done,
            "statuses": self.statuses,
            "copies_written": self.copies,
            "bytes_written": self.bytes,
            "problems": self.problems,
        }


@dataclass(frozen=True)
class MendPlan:
    """What a scrub's findings ask for."""

    ledgers: int
    bookies: dict[str, dict[str, int]]
    """Copies that are bad, by bookie and what was found."""

    @property
    def copies(self) -> int:
        return sum(count for counts in self.bookies.values() for count in counts.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ledgers": self.ledgers, "copies": self.copies, "bookies": self.bookies}


def rows_of(place: str) -> str:
    """Where the rows of a scrub are: `place`, or if that is the state of scrubs, those of the last one that finished.

    Raises `JobError` for a state in which none is finished, `OptionError` for a place that is none."""
    state = State(place, rows_too=True)
    scrub = state.newest()
    where = state.location if scrub is None else f"{state.location.rstrip('/')}/{scrub.name}/rows"
    return where if "://" in where else Path(where).as_uri()


def load_rows(spark: SparkSession, place: str) -> DataFrame:
    """The rows of a scrub, as Parquet. Raises `JobError` if there are none."""
    with spark_errors():
        rows = spark.read.parquet(place)
    if missing := [name for name in ("entries", *Finding._fields) if name not in rows.columns]:
        raise JobError(f"{place} has no rows of a scrub: the column {missing[0]} is missing")
    return rows


def plan_mend(found: DataFrame) -> MendPlan:
    """What is to be mended. Changes nothing."""
    with spark_errors():
        bad = found.where(F.col("status").isin(*BAD))
        (ledgers,) = bad.agg(F.countDistinct("ledger_id")).collect()
        bookies: dict[str, dict[str, int]] = {}
        for bookie, status, entries in bad.groupBy("bookie", "status").agg(F.sum("entries")).sort("bookie").collect():
            bookies.setdefault(bookie, {})[status] = entries
        return MendPlan(ledgers[0], bookies)


def mend(
    spark: SparkSession,
    options: ReadOptions,
    found: DataFrame,
    *,
    rate: int = -1,
    at_once: int | None = None,
    on_progress: OnProgress | None = None,
) -> MendReport:
    """Mend what the rows of a scrub say. `rate`: bytes that each task reads in a second at most; `at_once`: tasks."""
    counter = Counter(spark)
    bad = found.where(F.col("status").isin(*BAD))

    def work(here: Session, findings: Iterable[Any]) -> Iterator[Row]:
        for row in here.stream(_mended(here, options, findings, rate)):
            counter.add(row[6], row[7])
            yield row

    (total,) = bad.agg(F.sum("entries")).collect()
    with watched(counter, total[0] or 0, 0, on_progress):
        parts = at_once or PARTS_PER_CORE * spark.sparkContext.defaultParallelism
        of_ledgers = bad.select(*Finding._fields).repartition(parts, "ledger_id")
        sorted_ = of_ledgers.sortWithinPartitions("ledger_id", "bookie", "first_entry")
        return _report(materialize(on_parts(spark, sorted_.rdd, work, options, SCHEMA)))


async def _mended(here: Session, options: ReadOptions, findings: Iterable[Any], rate: int) -> AsyncGenerator[Row, None]:
    """In a task: the rows about these findings, which are sorted by ledger."""
    async with tools(here, options, rate) as mine:
        for ledger_id, group in groupby(findings, attrgetter("ledger_id")):
            while some := [Finding(*row) for row in islice(group, FINDINGS_AT_ONCE)]:
                job = _Mending(mine, some)
                why_not = await mine.locked(ledger_id, job.run)
                for row in job.rows:
                    yield row
                for finding in some[len(job.rows) :]:
                    yield _row(finding, "locked", detail=why_not)


def _row(finding: Finding, status: str, copies: int = 0, size: int = 0, detail: str | None = None) -> Row:
    return *finding, status, copies, size, detail


class _Mending:
    """Findings of one ledger, one after the other, under its lock."""

    def __init__(self, mine: Tools, findings: list[Finding]) -> None:
        self._tools = mine
        self._findings = findings
        self.rows: list[Row] = []
        """About those that were looked at."""

    async def run(self, lock: LedgerLock) -> None:
        for finding in self._findings:
            stats = self._tools.repair.stats
            copies, size = stats.NUM_ENTRIES_WRITTEN, stats.NUM_BYTES_WRITTEN.total
            status, detail = await self._mend(finding)
            copies, size = stats.NUM_ENTRIES_WRITTEN - copies, stats.NUM_BYTES_WRITTEN.total - size
            self.rows.append(_row(finding, status, copies, size, detail))
        if all(row[5] in WHOLE for row in self.rows):
            try:
                await self._tools.unmark(lock)
            except NoSuchLedgerOnMetadataError:
                await lock.mark_replicated()

    async def _mend(self, finding: Finding) -> tuple[str, str | None]:
        """What became of it, and why."""
        try:
            return await self._try(finding), None
        except NoSuchLedgerOnMetadataError:
            return "superseded", "the ledger was deleted"
        except MetadataError:
            raise
        except ReadError as error:
            return "lost", str(error)
        except BookKeeperError as error:
            await self._mark(finding)
            return "failed", str(error)

    async def _try(self, finding: Finding) -> str:
        if finding.status == "unreachable":
            await self._mark(finding)
            return "marked"
        metadata, last_confirmed = await self._tools.look(finding.ledger_id)
        pieces = fragments_of(metadata.value, last_confirmed)
        fragment = next((piece for piece in pieces if piece.first <= finding.first_entry <= piece.last), None)
        if fragment is None or finding.bookie not in fragment.ensemble:
            return "superseded"
        index = fragment.ensemble.index(finding.bookie)
        try:
            await self._give(finding, partial(self._tools.repair.mend, metadata.value, fragment, index))
        except ReadError:
            raise
        except BKError:
            if not fragment.settled:
                raise
            await self._tools.repair.repair_fragment(metadata, Damage(fragment, frozenset({index})))
            return "moved"
        return "mended"

    async def _give(self, finding: Finding, give: Callable[[int, int], Awaitable[None]]) -> None:
        """Give a bookie all entries of a finding that others have. Raises `ReadError` about the first that none has."""
        first: int = finding.first_entry
        none_has: ReadError | None = None
        while first <= finding.last_entry:
            try:
                await give(first, finding.last_entry)
                break
            except ReadError as error:
                if error.entry_id is None or error.entry_id < first:
                    raise
                none_has = none_has or error
                if error.entry_id > first:
                    await give(first, error.entry_id - 1)
                first = error.entry_id + 1
        if none_has is not None:
            raise none_has

    async def _mark(self, finding: Finding) -> None:
        await self._tools.driver.underreplication.mark(finding.ledger_id, [finding.bookie])


def _report(rows: DataFrame) -> MendReport:
    totals = rows.groupBy("status").agg(F.count("*").alias("n"), F.sum("copies"), F.sum("bytes")).collect()
    bad = rows.where(~F.col("status").isin(*sorted(WHOLE))).orderBy("ledger_id", "first_entry").limit(SHOWN)
    return MendReport(
        {row[0]: row[1] for row in sorted(totals)},
        sum(row[2] for row in totals),
        sum(row[3] for row in totals),
        [row.asDict() for row in bad.collect()],
        rows,
    )
