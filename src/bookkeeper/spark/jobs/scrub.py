"""Scrub: read every copy of every entry, and say what is not as the metadata promise.

First each bookie is asked to list what it has of each ledger, then every copy is read. Nothing is changed. Which
ledgers and entries are looked at, and how a scrub that died goes on, `scrubbing` says. Each row of the result is about
consecutive entries:

| status | bookie | meaning |
|---|---|---|
| ok | yes | these copies are there and good |
| digest_mismatch | yes | the copy's digest, ids or last confirmed are wrong |
| missing | yes | the bookie should have a copy, and does not list it, or says it has none |
| divergent | yes | the copy is good by itself, but differs from what most others say |
| unreadable | yes | the bookie says that it fails to read it, as from a torn file or a bad disk |
| unreachable | yes | the bookie could not be asked |
| underreplicated | no | fewer good copies than the write quorum, at least one |
| gap | no | no good copy at all, and every bookie was asked: the entry is lost |
| deleted | no | the ledger was deleted while the scrub ran |
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ...client.client import BookKeeper
from ...client.reads.replicas import CopyStatus, Problem, Replicas
from ...errors import NoSuchLedgerOnMetadataError
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime.waiting.rate_limit import RateLimit
from ..errors import OptionError
from ..options import ReadOptions
from ..planning import EntryRange, fragments, gather_bounded
from ..reading import digest_of
from ..replicas import RangeCheck, check_copies, unlisted_copies
from ..session import Session
from .running import Counter, OnProgress, connected, materialize, on_units, watched
from .scrubbing.choice import EVERYTHING, Choice
from .scrubbing.plan import NOTHING_SEEN, Piece, ScrubPlan, Seen, Unlisted, plan_of
from .scrubbing.state import Scrub, State, clean_after

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

KEPT = pa.schema(
    [(field.name, pa.int64() if isinstance(field.dataType, LongType) else pa.string()) for field in SCHEMA]
)
"""The same, as a state keeps it."""

_Unit = tuple[int, Sequence[Piece], Unlisted]
"""Its number, what it reads, and what bookies do not list of it."""

Row = tuple[Any, ...]


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


@dataclass(frozen=True)
class Work:
    """A scrub that is planned, or is to be gone on with."""

    options: ReadOptions
    plan: ScrubPlan
    kept: Scrub | None = None
    """Where its units' rows are kept."""
    before: Seen = NOTHING_SEEN
    """What earlier scrubs of the state have found whole."""
    done: frozenset[int] = frozenset()
    """Units whose rows are there."""
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))


def plan_scrub(
    options: ReadOptions, choice: Choice = EVERYTHING, state: str | None = None, *, dry_run: bool = False
) -> Work:
    """What a scrub looks at. `state`: the plan is kept there, unless this is a dry run; or the scrub that is there and
    is not finished is gone on with.

    Raises `OptionError`, `JobError` if that one was asked for something else, and what `plan_read` raises.
    """
    if state is None:
        if choice.since_last:
            raise OptionError("since=last needs a state: the directory that says what the last scrubs have seen")
        with connected(options) as here:
            return Work(options, here.run(plan_of(here.client, options, choice)))
    kept, asked = State(state), _asked(options, choice)
    before = kept.seen()
    scrub = kept.unfinished(asked)
    if scrub is not None:
        return Work(options, scrub.plan(), scrub, before, scrub.done(), scrub.about()["run_id"])
    with connected(options) as here:
        plan = here.run(plan_of(here.client, options, choice, before))
    if dry_run:
        return Work(options, plan)
    scrub = kept.begin(asked, plan)
    return Work(options, plan, scrub, before, run_id=scrub.about()["run_id"])


def _asked(options: ReadOptions, choice: Choice) -> dict[str, Any]:
    """What decides what a scrub looks at."""
    entries = [options.entries_from, options.entries_to, repr(options.where.entries)]
    ledgers = {"uri": options.uri, "ledgers": str(options.selection), "where": repr(options.where.ledgers)}
    return {**ledgers, "entries": entries, "open_ledgers": options.open_ledgers, **choice.asked()}


def scrub(
    spark: SparkSession,
    options: ReadOptions,
    choice: Choice = EVERYTHING,
    *,
    state: str | None = None,
    work: Work | None = None,
    on_progress: OnProgress | None = None,
) -> ScrubReport:
    """Scrub the ledgers that the options select, or what was planned of them (`work`). Raises as `plan_scrub`."""
    mine = work or plan_scrub(options, choice, state)
    counter = Counter(spark)
    plan = mine.plan
    with watched(counter, plan.total_copies, plan.total_bytes, on_progress):
        unlisted = _find_unlisted(spark, mine)
        units = [(number, unit, _of_unit(unlisted, unit)) for number, unit in enumerate(plan.units)]
        rows = materialize(on_units(spark, units, _in_tasks(mine, counter), options, SCHEMA))
        report = _report(mine, rows)
    if mine.kept is not None:
        mine.kept.finish(report.as_dict(), _clean(mine, rows))
    return report


def _in_tasks(work: Work, counter: Counter) -> Callable[[Session, _Unit], Iterator[Row]]:
    """What a task does with a unit: the rows that were kept, or what it finds."""
    options, run_id, seed, kept = work.options, work.run_id, work.plan.seed, work.kept

    def look(here: Session, pieces: Sequence[Piece], unlisted: Unlisted) -> Iterator[Row]:
        rate = RateLimit(here.client.context.runtime, options.max_bytes_per_second)
        for piece in pieces:
            missing = piece.within(unlisted)
            for first, last in piece.runs(seed, missing):
                for part in piece.steps(first, last, CHECK_BYTES, CHECK_ENTRIES):
                    rows = here.run(_check(here.client, options, part, missing, run_id))
                    here.run(rate.take(max((row[8] or 0 for row in rows), default=0)))  # bookies are read side by side
                    yield from rows

    def rows_of(here: Session, unit: _Unit) -> Iterator[Row]:
        number, pieces, unlisted = unit
        found = kept.rows(number) if kept is not None else None
        if found is None:
            found = look(here, pieces, unlisted)
            if kept is not None:
                found = kept.keep(number, found, KEPT)
        for row in found:
            if row[6] == "ok":
                counter.add(row[7], row[8])
            yield row

    return rows_of


def _find_unlisted(spark: SparkSession, work: Work) -> Unlisted:
    """What bookies should have of each ledger and do not list; of ledgers of units that are not done."""
    options = work.options
    left = {piece.ledger_id for n, unit in enumerate(work.plan.units) if n not in work.done for piece in unit}
    ledgers = [(one.ledger_id, one.last) for one in work.plan.ledgers if one.ledger_id in left]
    units = [ledgers[start : start + LEDGERS_PER_LIST] for start in range(0, len(ledgers), LEDGERS_PER_LIST)]

    def ask(here: Session, unit: list[tuple[int, int]]) -> Iterator[tuple[int, str, int, int]]:
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

    unlisted: Unlisted = {}
    for row in on_units(spark, units, ask, options, UNLISTED).collect():
        unlisted.setdefault(row["ledger_id"], []).append((row["bookie"], row["first"], row["last"]))
    return unlisted


def _of_unit(unlisted: Unlisted, unit: Sequence[Piece]) -> Unlisted:
    """What concerns a unit."""
    mine: Unlisted = {}
    for piece in unit:
        if found := piece.within(unlisted):
            mine[piece.ledger_id] = [*mine.get(piece.ledger_id, ()), *found]
    return mine


def _clean(work: Work, rows: DataFrame) -> Seen:
    """What is known to be whole after this scrub, and those before it."""
    bad = [row[0] for row in rows.where(F.col("status") != "ok").select("ledger_id").distinct().collect()]
    assert work.kept is not None
    return clean_after(work.kept.about()["asked"], work.before, work.plan.ledgers, bad)


async def _check(
    bk: BookKeeper, options: ReadOptions, part: EntryRange, unlisted: list[tuple[str, int, int]], run_id: str
) -> list[Row]:
    """Rows about a range of entries."""
    try:
        metadata = await bk.get_ledger_metadata(part.ledger_id)
    except NoSuchLedgerOnMetadataError:
        return [(run_id, part.ledger_id, part.first, part.first, part.last, None, "deleted", part.entries, None, None)]
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
    return rows


def _of_copies(problems: Iterable[Problem]) -> Iterator[_Found]:
    for problem in problems:
        yield _Found(problem.entry_id, str(problem.bookie), problem.status.value, problem.detail)


def _of_entries(check: RangeCheck, metadata: LedgerMetadata) -> Iterator[_Found]:
    wanted = metadata.write_quorum
    unsure = (CopyStatus.UNREACHABLE, CopyStatus.UNREADABLE)
    unknown = {problem.entry_id for problem in check.problems if problem.status in unsure}
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


def _report(work: Work, rows: DataFrame) -> ScrubReport:
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
        work.run_id,
        len(work.plan.ledgers),
        work.plan.entries,
        copies,
        size,
        dict(sorted(statuses.items())),
        dict(sorted(bookies.items())),
        problems,
        rows,
    )
