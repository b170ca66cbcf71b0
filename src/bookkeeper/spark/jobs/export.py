"""Export: ledgers as Parquet files, partitioned by ledger, with a manifest.

    OUTPUT/ledger_id=5/entries-000000000000000000-000000000000131071.parquet
    OUTPUT/ledger_id=5/...
    OUTPUT/_manifest.json

Theory of operation

- A task writes its ranges of entries to a file with a temporary name, which Spark ignores, and on the way sums entry
  ids and payloads. It reads the file back, compares the sums, and gives the file its name. So a file with its name is
  whole and was read once; tasks that are killed or repeated leave temporary files, which the driver removes in the end.
- File names follow from the plan. With `resume` a file that exists and whose sums (kept in its footer) are right when
  read back is not made again.
- The driver adds up: every planned entry must be in exactly one file, and for a closed ledger that is exported whole
  the payload bytes must be those that its metadata say. Only then the manifest is written: an export without a manifest
  is not finished.
- Nothing is overwritten: an output that holds a manifest, or files that are not of this plan, is refused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ..errors import ExportError, OptionError
from ..options import ReadOptions
from ..planning import EntryRange, Plan, plan_read
from ..reading import Piece, RangeReader, Tally
from ..rows import BatchMaker
from ..session import Session
from .running import Counter, OnProgress, connected, on_units, watched

MANIFEST = "_manifest.json"
FORMAT = 1
"""Version of the manifest."""

ROW_GROUP_BYTES = 64 << 20
TEMPORARY = ".parquet.tmp"
COLUMNS = ("entry_id", "payload", "length", "last_confirmed")
SUMS = b"bookkeeper.sums"
"""Key of a file's sums in its footer."""

SCHEMA = StructType(
    [
        StructField("ledger_id", LongType()),
        StructField("path", StringType()),
        StructField("first_entry", LongType()),
        StructField("last_entry", LongType()),
        StructField("rows", LongType()),
        StructField("payload_bytes", LongType()),
        StructField("file_bytes", LongType()),
        StructField("sums", StringType()),
        StructField("damaged_copies", LongType()),
        StructField("lost_entries", LongType()),
    ]
)

Row = tuple[int, str, int, int, int, int, int, str, int, int]


@dataclass(frozen=True)
class ExportReport:
    """What was written."""

    run_id: str
    output: str
    ledgers: int
    files: int
    rows: int
    bytes: int
    """Of payload."""
    file_bytes: int
    damaged_copies: int
    """Copies with a wrong digest that were met and read from other replicas."""
    lost_entries: int
    """Left out, with `failOnDataLoss=false`."""
    manifest: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(self.__dict__)


class Sums:
    """Checksums of entries in their order: CRC-32C over the entry ids (int64, little-endian) and over the payloads."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._ids = 0
        self._payloads = 0

    def add(self, entry_ids: np.ndarray[Any, Any], payload: bytes) -> None:
        self.rows += len(entry_ids)
        self.bytes += len(payload)
        self._ids = google_crc32c.extend(self._ids, entry_ids.astype("<i8").tobytes())
        self._payloads = google_crc32c.extend(self._payloads, payload)

    def __str__(self) -> str:
        return f"{self.rows}/{self.bytes}/ids:{self._ids:08x}/payloads:{self._payloads:08x}"


def plan_export(options: ReadOptions) -> Plan:
    """What an export would write. Raises as `plan_read`."""
    with connected(options) as here:
        return here.run(plan_read(here.client, options))


def export(
    spark: SparkSession,
    options: ReadOptions,
    output: str,
    *,
    resume: bool = False,
    compression: str = "zstd",
    plan: Plan | None = None,
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Write the ledgers that the options select to `output`, a directory or an address such as `s3://bucket/path`,
    which every executor must be able to write to.

    Raises `ExportError` when the output holds something else, or what was written is not what was read.
    """
    plan = plan or plan_export(options)
    files, root = open_output(output)
    _check_output(files, root, plan, resume)
    location = str(output) if "://" in str(output) else root
    counter = Counter(spark)
    columns = COLUMNS if not options.columns_given else tuple(c for c in options.columns if c != "ledger_id")
    _check_columns(columns)
    options = options.with_columns(columns)

    def work(here: Session, ranges: tuple[EntryRange, ...]) -> Iterator[Row]:
        target, base = open_output(location)
        for group in _files(ranges):
            row = _write(here, options, target, base, group, compression, resume)
            counter.add(row[4], row[5])
            yield row

    run_id = str(uuid.uuid4())
    with watched(counter, plan.entries, plan.bytes, on_progress):
        rows = [tuple(row) for row in on_units(spark, plan.partitions, work, options, SCHEMA).collect()]
    rows.sort(key=lambda row: (row[0], row[2]))
    _check_complete(plan, rows)
    _remove_leftovers(files, root)
    report = ExportReport(
        run_id,
        location,
        len(plan.snapshots),
        len(rows),
        sum(row[4] for row in rows),
        sum(row[5] for row in rows),
        sum(row[6] for row in rows),
        sum(row[8] for row in rows),
        sum(row[9] for row in rows),
        f"{location.rstrip('/')}/{MANIFEST}",
    )
    _write_manifest(files, root, report, options, plan, rows)
    return report


def open_output(output: str) -> tuple[fs.FileSystem, str]:
    """The file system of an output and the path in it. Raises `OptionError` for an address that is none."""
    if "://" not in output:
        return fs.LocalFileSystem(), str(Path(output).absolute())
    try:
        files, path = fs.FileSystem.from_uri(output)
    except (pa.ArrowInvalid, OSError) as error:
        raise OptionError(f"cannot write to {output}: {error}") from error
    return files, path


def _check_columns(columns: Iterable[str]) -> None:
    for needed in ("entry_id", "payload"):
        if needed not in columns:
            raise OptionError(f"an export without the column {needed} could not be read back and compared")


# --- a file --------------------------------------------------------------------------------------


def _files(ranges: Iterable[EntryRange]) -> Iterator[list[EntryRange]]:
    """Ranges that go into one file: neighbours of one ledger."""
    for _, group in groupby(ranges, lambda piece: piece.ledger_id):
        yield list(group)


def _path(ranges: list[EntryRange]) -> str:
    return f"ledger_id={ranges[0].ledger_id}/entries-{ranges[0].first:018d}-{ranges[-1].last:018d}.parquet"


def _write(
    here: Session,
    options: ReadOptions,
    files: fs.FileSystem,
    root: str,
    ranges: list[EntryRange],
    compression: str,
    resume: bool,
) -> Row:
    """Make one file, or find it made. Raises `ExportError` when it does not read back as written."""
    name = _path(ranges)
    path = f"{root}/{name}"
    head = (ranges[0].ledger_id, name, ranges[0].first, ranges[-1].last)
    if resume and (known := _known_sums(files, path)) is not None:
        again = _read_back(files, path)
        if str(again) == known:
            return (*head, again.rows, again.bytes, files.get_file_info(path).size, known, 0, 0)
    files.create_dir(path.rpartition("/")[0], recursive=True)
    temporary = f"{root}/ledger_id={head[0]}/.{uuid.uuid4()}{TEMPORARY}"
    sums = Sums()
    tally = Tally()
    try:
        _write_rows(here, options, files, temporary, ranges, compression, sums, tally)
        again = _read_back(files, temporary)
        if str(again) != str(sums):
            raise ExportError(f"{name}: read back {again} and not {sums}, as was written")
        if files.get_file_info(path).type != fs.FileType.NotFound:
            files.delete_file(path)  # of an attempt that was repeated: the same entries
        files.move(temporary, path)
    except BaseException:
        with suppress(OSError):
            files.delete_file(temporary)
        raise
    tally.report()
    size = files.get_file_info(path).size
    return (*head, sums.rows, sums.bytes, size, str(sums), len(tally.damaged), len(tally.lost))


def _write_rows(
    here: Session,
    options: ReadOptions,
    files: fs.FileSystem,
    path: str,
    ranges: list[EntryRange],
    compression: str,
    sums: Sums,
    tally: Tally,
) -> None:
    reader = RangeReader(here.client, ranges, options, tally)
    maker = BatchMaker(options)

    def summed(pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            run = piece.run
            sums.add(np.arange(run.first, run.last + 1), bytes(run.payload))
            yield piece

    with (
        files.open_output_stream(path) as stream,
        pq.ParquetWriter(stream, maker.schema, compression=compression, write_page_checksum=True) as writer,
    ):
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in maker.batches(summed(here.stream(reader.pieces()))):
            waiting.append(batch)
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting, size = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
        writer.add_key_value_metadata({SUMS.decode(): str(sums)})


def _known_sums(files: fs.FileSystem, path: str) -> str | None:
    """The sums in a file's footer; None if there is no such file, or it is none of ours."""
    try:
        with files.open_input_file(path) as stream:
            metadata = pq.ParquetFile(stream).metadata.metadata or {}
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    return metadata[SUMS].decode() if SUMS in metadata else None


def _read_back(files: fs.FileSystem, path: str) -> Sums:
    """Sum up what a file holds."""
    sums = Sums()
    with files.open_input_file(path) as stream:
        parquet = pq.ParquetFile(stream, page_checksum_verification=True)
        for batch in parquet.iter_batches():
            payload = batch.column(batch.schema.get_field_index("payload"))
            ids = batch.column(batch.schema.get_field_index("entry_id"))
            offsets = np.frombuffer(payload.buffers()[1], np.int32)[payload.offset : payload.offset + len(payload) + 1]
            data = payload.buffers()[2]
            content = b"" if data is None else memoryview(data)[int(offsets[0]) : int(offsets[-1])]
            sums.add(ids.to_numpy(zero_copy_only=False), bytes(content))
    return sums


# --- the whole -----------------------------------------------------------------------------------


def _check_output(files: fs.FileSystem, root: str, plan: Plan, resume: bool) -> None:
    """Raises `ExportError` if the output holds what this export must not touch."""
    found = files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
    names = {info.path.removeprefix(root).lstrip("/") for info in found if info.type is fs.FileType.File}
    if MANIFEST in names:
        raise ExportError(f"{root} holds a finished export: choose another output, or remove it")
    data = {name for name in names if not name.endswith(TEMPORARY) and not name.rpartition("/")[2].startswith(".")}
    if data and not resume:
        raise ExportError(f"{root} is not empty: choose another output, or go on with an export that stopped (resume)")
    planned = {_path(group) for ranges in plan.partitions for group in _files(ranges)}
    foreign = sorted(data - planned)
    if foreign:
        raise ExportError(
            f"{root} holds {foreign[0]}, which is not part of this export: the ledgers or the options differ"
        )


def _check_complete(plan: Plan, rows: list[Row]) -> None:
    """Every planned entry in exactly one file; bytes as the metadata say. Raises `ExportError`."""
    by_ledger: dict[int, list[Row]] = {}
    for row in rows:
        by_ledger.setdefault(row[0], []).append(row)
    planned: dict[int, int] = {}
    for piece in (piece for ranges in plan.partitions for piece in ranges):
        planned[piece.ledger_id] = planned.get(piece.ledger_id, 0) + piece.entries
    for snapshot in plan.snapshots:
        parts = by_ledger.get(snapshot.ledger_id, [])
        entries = sum(row[4] + row[9] for row in parts)
        wanted = planned.get(snapshot.ledger_id, 0)
        if entries != wanted:
            raise ExportError(f"ledger {snapshot.ledger_id}: {entries} entries came out of {wanted}")
        size = sum(row[5] for row in parts)
        whole = wanted == snapshot.last + 1 and not any(row[9] for row in parts)
        if whole and snapshot.metadata.closed and size != snapshot.bytes:
            raise ExportError(
                f"ledger {snapshot.ledger_id}: {size} payload bytes came out, and its metadata say {snapshot.bytes}"
            )


def _remove_leftovers(files: fs.FileSystem, root: str) -> None:
    for info in files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True)):
        if info.path.endswith(TEMPORARY):
            files.delete_file(info.path)


def _write_manifest(
    files: fs.FileSystem, root: str, report: ExportReport, options: ReadOptions, plan: Plan, rows: list[Row]
) -> None:
    names = [field.name for field in SCHEMA.fields]
    content = {
        "format": FORMAT,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": options.uri,
        "selection": str(options.selection),
        "columns": list(options.columns),
        **report.as_dict(),
        "ledgers": [
            {
                "ledger_id": snapshot.ledger_id,
                "state": snapshot.metadata.state.name,
                "last_entry": snapshot.last,
                "bytes": snapshot.bytes,
                "ctime": snapshot.metadata.ctime,
                "custom_metadata": {
                    key: value.decode(errors="replace") for key, value in snapshot.metadata.custom_metadata.items()
                },
            }
            for snapshot in plan.snapshots
        ],
        "files": [dict(zip(names, row, strict=True)) for row in rows],
    }
    files.create_dir(root, recursive=True)
    temporary = f"{root}/.{uuid.uuid4()}{TEMPORARY}"
    with files.open_output_stream(temporary) as stream:
        stream.write(json.dumps(content, indent=2).encode() + b"\n")
    files.move(temporary, f"{root}/{MANIFEST}")
