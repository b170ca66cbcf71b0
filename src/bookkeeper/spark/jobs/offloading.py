"""The job: completed segments of streams become Parquet files, and may leave the cluster then (spec streams §18).

Theory of operation

- The driver lists the segments that are complete, old enough, and not in a stream's index yet. Each is a task, which
  makes its file (`segment_file`) and then writes the index (`streams.retention.offloaded`). From then on Spark finds
  the rows in both places and reads one of them. Who is killed on the way has lost what is in no index: begin again.
- With `delete` the segments at the old end of each stream that are in its index, and whose files are there and have the
  footer that was written, are truncated and deleted. What a subscriber has not read stays: readers that are not Spark's
  do not know of the files.
- Nothing is written or deleted unless `apply` says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from ...errors import IncorrectParameterError
from ...runtime.api import Runtime
from ...runtime.real import RealRuntime
from ...streams.dlsn import DLSN, LOWER_BOUND
from ...streams.formats.keyed import Codec
from ...streams.formats.segment import SegmentMetadata, Truncation
from ...streams.namespace import Namespace
from ...streams.reading.cursor import numbered
from ...streams.retention.offloaded import Offloaded
from ..archive.segment_file import COLUMNS, archive, check, file_name
from ..bounds import ALL
from ..errors import plain_errors
from ..files import open_files
from ..planning import AT_ONCE, cut, snapshot_of
from ..reading import RangeReader, Tally
from ..session import Connected, namespace_session
from ..streaming.following import Facts
from ..streaming.records import RecordBatches
from ..streaming.stream_options import StreamOptions
from .running import Counter, OnProgress, watched


@dataclass(frozen=True)
class OffloadJob:
    """What is to be done."""

    options: StreamOptions
    """Which streams, and how they are read."""
    archive: str
    """A directory, or an address such as `s3://bucket/path`, that every executor can write to."""
    older_than: float = 0.0
    """Seconds since a segment was completed."""
    keep: int = 0
    """Newest completed segments of each stream that stay where they are."""
    delete: bool = False
    """Truncate and delete what is in the archive."""
    at_once: int | None = None
    """Tasks at most; None: one for each segment."""

    def __post_init__(self) -> None:
        if self.older_than < 0 or self.keep < 0:
            raise IncorrectParameterError("older_than is seconds, and keep a number of segments: 0 or more")
        if self.at_once is not None and self.at_once < 1:
            raise IncorrectParameterError("at_once is a number of tasks: 1 or more")

    def session(self) -> Any:
        """A namespace of this process."""
        reads = self.options.reads
        return namespace_session(reads.uri, reads.configuration(), reads.metadata_timeout)

    @property
    def location(self) -> str:
        """Of the archive, as executors and readers open it."""
        return self.archive if "://" in self.archive else open_files(self.archive)[1]


@dataclass(frozen=True)
class Unit:
    """A segment that is to be offloaded."""

    stream: str
    life: int
    segment: SegmentMetadata
    entries: int
    bytes: int
    """Payload of the ledger."""
    keyed: bool

    def identity(self, namespace: str) -> str:
        """Which segment it is, among all that ever were."""
        return f"{namespace} {self.stream}.{self.life} segment {self.segment.number} ledger {self.segment.ledger_id}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stream": self.stream,
            "segment": self.segment.number,
            "ledger_id": self.segment.ledger_id,
            "records": self.segment.records,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class OffloadReport:
    """What was done, or with `applied` false would be."""

    applied: bool
    archive: str
    streams: int
    """That were looked at."""
    planned: list[dict[str, Any]]
    """Segments that are to be offloaded."""
    offloaded: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[dict[str, Any]] = field(default_factory=list)
    """Segments whose ledgers are gone. Not applied: that would be truncated, as far as they are in the archive now."""
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        return sum(each["rows"] for each in self.offloaded)

    @property
    def bytes(self) -> int:
        """Of payload, as it was planned."""
        return sum(each["bytes"] for each in self.planned)

    @property
    def file_bytes(self) -> int:
        return sum(each["file_bytes"] for each in self.offloaded)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.__dict__, "rows": self.rows, "bytes": self.bytes, "file_bytes": self.file_bytes}


def offload(
    spark: SparkSession | None, job: OffloadJob, *, apply: bool = False, on_progress: OnProgress | None = None
) -> OffloadReport:
    """Do it; without `apply` only say what would be done, which needs no Spark.

    Raises `ArchiveError` if the archive has something else where a file is to be, or what was written is not what was
    read; `StreamNotFoundError`; what reading raises.
    """
    began = time.monotonic()
    with plain_errors(), job.session() as here:
        names, units = here.run(_plan(here.client, job, RealRuntime()))
    report = OffloadReport(apply, job.location, len(names), [unit.as_dict() for unit in units])
    if apply and units:
        assert spark is not None
        report.offloaded.extend(_offloaded(spark, job, units, on_progress))
    if job.delete:
        with plain_errors(), job.session() as here:
            for name in names:
                report.deleted.extend(here.run(_delete(here.client, name, apply=apply)))
    return replace(report, seconds=time.monotonic() - began)


# --- planning ---


async def _plan(namespace: Namespace, job: OffloadJob, runtime: Runtime) -> tuple[list[str], list[Unit]]:
    options = job.options
    names = list(options.logs)
    if options.pattern is not None:
        names = [name async for name in namespace.list(recursive=True) if options.reads_stream(name)]
    units: list[Unit] = []
    for name in names:
        units += await _units(namespace, job, name, runtime.wall_ms())
    return names, units


async def _units(namespace: Namespace, job: OffloadJob, name: str, now_ms: int) -> list[Unit]:
    index = namespace.offloads(name)
    done, life = await index.load(), await index.life()
    segments = (await namespace.info(name)).segments
    due = wanted(segments, done.keys(), now_ms - int(job.older_than * 1000), job.keep)
    keyed = bool(due) and await namespace.codec(name) is Codec.KV1
    units = []
    for start in range(0, len(due), AT_ONCE):
        some = due[start : start + AT_ONCE]
        ledgers = await asyncio.gather(*(namespace.client.get_ledger_metadata(each.ledger_id) for each in some))
        for segment, ledger in zip(some, ledgers, strict=True):
            entries = ledger.last_entry_id + 1
            units.append(Unit(name, life, numbered(segments, segment), entries, ledger.length, keyed))
    return units


def wanted(
    segments: Sequence[SegmentMetadata], done: Iterable[int], completed_before: int, keep: int
) -> list[SegmentMetadata]:
    """The segments to be offloaded: complete, old enough, not truncated, not in the index. Pure."""
    there = set(done)
    complete = [segment for segment in segments if segment.completed and segment.number > 0]
    return [
        segment
        for segment in complete[: len(complete) - keep]
        if segment.number not in there
        and segment.completed_ms <= completed_before
        and segment.truncation is not Truncation.TRUNCATED
    ]


# --- files ---


def _offloaded(
    spark: SparkSession, job: OffloadJob, units: Sequence[Unit], on_progress: OnProgress | None
) -> list[dict[str, Any]]:
    """Make the files on Spark, and write the indexes."""
    counter = Counter(spark)
    location = job.location

    def run(mine: Iterable[Unit]) -> Iterator[dict[str, Any]]:
        with plain_errors(), job.session() as here:
            for unit in mine:
                copy = _offload_one(here, job, unit, f"{location}/{file_name(unit.stream, *_of(unit))}")
                counter.add(copy.rows, unit.bytes)
                yield {**unit.as_dict(), "rows": copy.rows, "uri": copy.uri, "file_bytes": copy.file_bytes}

    rows, size = sum(unit.segment.records for unit in units), sum(unit.bytes for unit in units)
    with watched(counter, rows, size, on_progress):
        parts = spark.sparkContext.parallelize(units, min(len(units), job.at_once or len(units)))
        return parts.mapPartitions(run).collect()


def _of(unit: Unit) -> tuple[int, int]:
    return unit.segment.number, unit.segment.ledger_id


def _offload_one(here: Connected[Namespace], job: OffloadJob, unit: Unit, uri: str) -> Offloaded:
    """In a task: the file, then the record in the index."""
    namespace, segment, reads = here.client, unit.segment, job.options.reads
    bk, tally = namespace.client, Tally()

    async def looked_up() -> Any:
        return await snapshot_of(bk, await bk.get_ledger_metadata(segment.ledger_id), reads)

    first = (segment.first.entry, segment.first.slot)
    facts = Facts(
        unit.stream, segment.number, segment.enveloped, segment.first_txid, segment.sequence_id, first, keyed=unit.keyed
    )
    ranges = cut(here.run(looked_up()), ALL.within(segment.first.entry, unit.entries - 1))
    maker = RecordBatches(
        replace(job.options.with_columns(COLUMNS), txid_as_timestamp=True), {segment.ledger_id: facts}
    )
    batches = maker.batches(here.stream(RangeReader(bk, ranges, reads, tally).pieces()))
    files, path = open_files(uri)
    rows = segment.records if segment.truncation is Truncation.ACTIVE else -1
    made = archive(files, path, unit.identity(namespace.path), maker.schema, batches, rows)
    tally.report()
    copy = Offloaded(segment, segment.sequence_id, unit.entries, unit.bytes, made.rows, uri, made.file_bytes, made.sums)
    here.run(namespace.offloads(unit.stream).add(copy))
    return copy


# --- the end of ledgers ---


async def _delete(namespace: Namespace, name: str, *, apply: bool) -> list[dict[str, Any]]:
    """Truncate and delete what is in the archive, from the old end on."""
    index = await namespace.offloads(name).load()
    segments = (await namespace.info(name)).segments
    before = archived_before(segments, index, await _unread(namespace, name))
    gone = [each for each in segments if each.completed and DLSN(each.number, 0, 0) < before and each.number in index]
    for segment in gone:
        copy = index[segment.number]
        files, path = open_files(copy.uri)
        check(files, path, copy.rows, copy.sums)
    if apply and gone:
        retained = await namespace.truncate(name, before, delete=True)
        gone = list(retained.deleted)
    return [{"stream": name, "segment": segment.number, "ledger_id": segment.ledger_id} for segment in gone]


def archived_before(segments: Sequence[SegmentMetadata], index: Any, unread: DLSN | None) -> DLSN:
    """The position before which all of a stream is in the archive, and read by its subscribers. Pure.

    - `index`: what is in the archive, by number.
    - `unread`: the first position that a subscriber has still to read; None: there are no subscribers.
    """
    before = LOWER_BOUND
    for segment in segments:
        copy = index.get(segment.number)
        if not segment.completed or copy is None or copy.segment.ledger_id != segment.ledger_id:
            break
        if unread is not None and unread < DLSN(segment.number + 1, 0, 0):
            break
        before = DLSN(segment.number + 1, 0, 0)
    return before


async def _unread(namespace: Namespace, name: str) -> DLSN | None:
    """A subscriber that has not said where it is has still to read everything."""
    positions = (await namespace.subscriptions(name).list()).values()
    return min((position or LOWER_BOUND for position in positions), default=None)
