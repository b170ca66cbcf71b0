"""Re-replicate: what lost bookies held is copied to others, by many tasks at once (spec streams §18).

Theory of operation

- The driver walks over all records once and keeps 24 bytes for each ledger that names a lost bookie, of at most
  `MOST_LEDGERS`; if there are more, the job says so, and is run again. Nothing is forgotten: a ledger that is done
  does not name a lost bookie any more, which is also how a job that died goes on.
- Ledgers go to tasks in units of about `targetPartitionBytes`, the largest first, so that no task ends long after the
  others. A ledger is never divided: one at a time may change its record, whoever holds its lock (`repairing`).
- What is done with a ledger is what `bookkeeper shell recover` does with it (`autorecovery.manual`): the copies first,
  then the record, by compare-and-set.
- Ledgers that are open are left to their writers, who replace a lost bookie by themselves with the next entry; unless
  `recover_open` asks that they be fenced and closed.

| status | meaning |
|---|---|
| moved | the fragment has new bookies |
| failed | it has not; `detail` says why |
| locked | somebody else repairs the ledger now |
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructField, StructType

from ...autorecovery.fragments import Fragment, fragments_of
from ...autorecovery.manual import LedgerOutcome, Move, Recovery, ledgers_of
from ...metadata.api import LedgerLock
from ...metadata.ledger_metadata import LedgerMetadata
from ...types import BookieId, LedgerState
from ..options import ReadOptions, Selection
from ..planning import fits
from ..session import Session
from .repairing import Tools, dealt, tools, with_tools
from .running import Counter, OnProgress, connected, materialize, on_units, watched

MOST_LEDGERS = 1_000_000
"""That one run takes on."""

LEDGERS_PER_UNIT = 500

SHOWN = 1000
"""Fragments a report lists that were not moved; all are in its rows."""

SCHEMA = StructType(
    [
        StructField("run_id", StringType()),
        StructField("ledger_id", LongType()),
        StructField("first_entry", LongType()),
        StructField("last_entry", LongType()),
        StructField("lost", ArrayType(StringType())),
        StructField("target", ArrayType(StringType())),
        StructField("copies", LongType()),
        StructField("bytes", LongType()),
        StructField("status", StringType()),
        StructField("seconds", DoubleType()),
        StructField("detail", StringType()),
    ]
)

Row = tuple[Any, ...]


@dataclass
class RereplicatePlan:
    """What is to be copied. Bytes are payload, and estimates where a ledger is striped or open."""

    lost: tuple[BookieId, ...]
    ledgers: array[int] = field(default_factory=lambda: array("q"))
    copies: array[int] = field(default_factory=lambda: array("q"))
    """Of each of them: entries, counted once for each bookie that gets them."""
    sizes: array[int] = field(default_factory=lambda: array("q"))
    fragments: int = 0
    open: int = 0
    """Ledgers that are left to their writers."""
    more: bool = False
    """There are more ledgers than one run takes on: run it again."""

    @property
    def total_copies(self) -> int:
        return sum(self.copies)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)

    def add(self, record: LedgerMetadata, moved: Sequence[Fragment]) -> None:
        """A ledger, and those of its fragments that name a lost bookie."""
        quorums = record.quorums
        average = record.length / (record.last_entry_id + 1) if record.closed and record.last_entry_id >= 0 else 0
        copies = 0
        for fragment in moved:
            lost = sum(bookie in self.lost for bookie in fragment.ensemble)
            copies += lost * (fragment.last - fragment.first + 1) * quorums.write_quorum // quorums.ensemble_size
        self.ledgers.append(record.ledger_id)
        self.copies.append(copies)
        self.sizes.append(round(copies * average))
        self.fragments += len(moved)

    def units(self, target: int) -> list[list[int]]:
        """Ledgers together, up to about `target` bytes, the largest first."""
        units: list[list[int]] = []
        size = 0
        for index in sorted(range(len(self.ledgers)), key=self.sizes.__getitem__, reverse=True):
            if not units or size + self.sizes[index] > target or len(units[-1]) == LEDGERS_PER_UNIT:
                units.append([])
                size = 0
            units[-1].append(self.ledgers[index])
            size += self.sizes[index]
        return units

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "lost": list(self.lost),
            "ledgers": len(self.ledgers),
            "fragments": self.fragments,
            "copies": self.total_copies,
            "bytes": self.total_bytes,
            "open": self.open,
            "more": self.more,
        }


@dataclass(frozen=True)
class RereplicateReport:
    """What was done. `rows` are all fragments, kept by Spark until `rows.unpersist()`."""

    run_id: str
    plan: RereplicatePlan
    statuses: dict[str, int]
    """Fragments, or for `locked` ledgers, by status."""
    copies: int
    """Written and acknowledged."""
    bytes: int
    """Of them, as they are stored."""
    problems: list[dict[str, Any]]
    """What was not moved; the first `SHOWN`."""
    rows: DataFrame

    @property
    def done(self) -> bool:
        """Whether everything that was planned was moved, and nothing was left out of the plan."""
        return not self.plan.more and not self.statuses.keys() - {"moved"}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run_id": self.run_id,
            "done": self.done,
            **self.plan.as_dict(),
            "statuses": self.statuses,
            "copies_written": self.copies,
            "bytes_written": self.bytes,
            "problems": self.problems,
        }


# --- planning ---


def plan_rereplicate(
    options: ReadOptions, lost: Sequence[BookieId], *, recover_open: bool = False, most: int = MOST_LEDGERS
) -> RereplicatePlan:
    """What these bookies' ledgers need. Asks the metadata store alone, and changes nothing."""

    async def work(mine: Tools) -> RereplicatePlan:
        plan = RereplicatePlan(tuple(dict.fromkeys(lost)))
        async with aclosing(ledgers_of(mine.driver, plan.lost)) as ledgers:
            async for record in ledgers:
                if not selected(record, options.selection):
                    continue
                if record.state is LedgerState.OPEN and not recover_open:
                    plan.open += 1
                    continue
                if len(plan.ledgers) == most:
                    plan.more = True
                    break
                pieces = fragments_of(record, record.last_entry_id)
                plan.add(record, [piece for piece in pieces if set(piece.ensemble) & set(plan.lost)])
        return plan

    with connected(options) as here:
        return with_tools(here, options, work)


def selected(record: LedgerMetadata, selection: Selection) -> bool:
    """Whether a ledger is among those that were named, and fits."""
    ledger_id = record.ledger_id
    named = selection.everything or not (selection.ids or selection.ranges)
    within = ledger_id in selection.ids or any(first <= ledger_id <= last for first, last in selection.ranges)
    return (named or within) and fits(record, selection)


# --- doing ---


def rereplicate(
    spark: SparkSession,
    options: ReadOptions,
    lost: Sequence[BookieId],
    *,
    plan: RereplicatePlan | None = None,
    recover_open: bool = False,
    rate: int = -1,
    at_once: int | None = None,
    on_progress: OnProgress | None = None,
) -> RereplicateReport:
    """Give the ledgers that the options select others in the place of the lost bookies.

    - `rate`: bytes that each task reads in a second at most. `at_once`: tasks at most.
    """
    plan = plan or plan_rereplicate(options, lost, recover_open=recover_open)
    run_id = str(uuid.uuid4())
    counter = Counter(spark)

    def work(here: Session, units: list[list[int]]) -> Iterator[Row]:
        ids = [ledger_id for unit in units for ledger_id in unit]
        for row in here.stream(_recovered(here, options, plan.lost, ids, not recover_open, rate)):
            counter.add(row[5], row[6])
            yield (run_id, *row)

    tasks = dealt(plan.units(options.target_partition_bytes), at_once)
    with watched(counter, plan.total_copies, plan.total_bytes, on_progress):
        return _report(run_id, plan, materialize(on_units(spark, tasks, work, options, SCHEMA)))


async def _recovered(
    here: Session, options: ReadOptions, lost: Sequence[BookieId], ids: Sequence[int], skip_open: bool, rate: int
) -> AsyncGenerator[Row, None]:
    """In a task: the rows about these ledgers, as they are done."""
    async with tools(here, options, rate) as mine:
        recovery = Recovery(mine.client, mine.repair, lost, skip_open=skip_open, dry_run=False)

        async def recover(lock: LedgerLock) -> LedgerOutcome | None:
            outcome = await recovery.recover(lock.ledger_id)
            if outcome is not None and not outcome.error:
                await mine.unmark(lock)
            return outcome

        for ledger_id in ids:
            started = mine.client.context.runtime.now()
            outcome = await mine.locked(ledger_id, recover)
            for row in _rows(ledger_id, outcome, lost, mine.client.context.runtime.now() - started):
                yield row


def _rows(
    ledger_id: int, outcome: LedgerOutcome | str | None, lost: Sequence[BookieId], seconds: float
) -> Iterator[Row]:
    """Without the run's id. None: there was nothing to do any more."""
    if isinstance(outcome, str):
        yield ledger_id, None, None, None, None, 0, 0, "locked", seconds, outcome
    elif outcome is not None and not outcome.moves:
        yield ledger_id, None, None, None, None, 0, 0, "failed", seconds, outcome.error
    elif outcome is not None:
        for move in outcome.moves:
            yield _row_of(ledger_id, move, outcome.error, lost, seconds)


def _row_of(ledger_id: int, move: Move, error: str, lost: Sequence[BookieId], seconds: float) -> Row:
    indexes = [index for index, bookie in enumerate(move.old) if bookie in lost]
    old = [move.old[index] for index in indexes]
    new = None if move.new is None else [move.new[index] for index in indexes]
    status, detail = ("failed", error) if new is None else ("moved", None)
    return ledger_id, move.first, move.last, old, new, move.copies, move.bytes, status, seconds, detail


def _report(run_id: str, plan: RereplicatePlan, rows: DataFrame) -> RereplicateReport:
    totals = rows.groupBy("status").agg(F.count("*").alias("n"), F.sum("copies"), F.sum("bytes")).collect()
    bad = rows.where(F.col("status") != "moved").orderBy("ledger_id", "first_entry").limit(SHOWN)
    return RereplicateReport(
        run_id,
        plan,
        {row[0]: row[1] for row in sorted(totals)},
        sum(row[2] for row in totals),
        sum(row[3] for row in totals),
        [row.asDict() for row in bad.drop("run_id").collect()],
        rows,
    )
