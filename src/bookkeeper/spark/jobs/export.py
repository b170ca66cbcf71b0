"""Export: ledgers as Parquet files with a manifest, which later exports can add to.

    OUTPUT/part-....parquet      see `export_file`
    OUTPUT/_manifest/...         see `export_manifest`

Theory of operation

- A task makes one file of its ranges of entries, which may be of many ledgers.
- The driver adds up: every planned entry must be in exactly one file, and of a closed ledger that is exported whole the
  payload bytes must be those that its metadata say. Only then the manifest is written: an export without its manifest
  is not finished, and tasks that are killed or repeated leave temporary files, which the driver removes in the end.
- With `append` an output that holds a finished export gets what it lacks: ledgers that are new, and of those that were
  open what was appended since. That is the next generation of the manifest.
- Nothing that a manifest names is ever touched. With files that no manifest names, of an export that stopped, `resume`
  goes on; otherwise the output is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from ..errors import ExportError, OptionError
from ..files import open_files
from ..options import ReadOptions
from ..planning import EntryRange, Plan, plan_read
from ..session import Session
from .export_check import added_up
from .export_file import PART, TEMPORARY, part_name, write_part
from .export_manifest import DIRECTORY, OLD_MANIFEST, Exported, Manifest
from .running import Counter, OnProgress, connected, on_units, watched

COLUMNS = ("ledger_id", "entry_id", "payload", "length", "last_confirmed")

SCHEMA = StructType(
    [
        StructField("path", StringType()),
        StructField("payload_bytes", LongType()),
        StructField("file_bytes", LongType()),
        StructField("sums", StringType()),
        StructField("damaged_copies", LongType()),
        StructField("ledgers", ArrayType(LongType())),
        StructField("ledger_rows", ArrayType(LongType())),
        StructField("ledger_bytes", ArrayType(LongType())),
    ]
)


@dataclass(frozen=True)
class ExportReport:
    """What was written by this run."""

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
    """Empty if there was nothing to append."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(self.__dict__)


class Output:
    """Where an export goes: what it holds already, and what may be written."""

    def __init__(self, output: str) -> None:
        """Raises `OptionError` for an address that is none, `ExportError` for one that another version wrote."""
        self.files, self.root = open_files(output)
        self.location = output if "://" in output else self.root
        """What executors open."""
        self.manifest = Manifest(self.files, self.root)
        found = _listed(self.files, self.root)
        self._names = {info.path.removeprefix(self.root).lstrip("/") for info in found if info.type is fs.FileType.File}

    def exported(self, options: ReadOptions, append: bool) -> dict[int, Exported]:
        """What finished exports left here. Raises `ExportError` if this one must not come on top of them."""
        if OLD_MANIFEST in self._names:
            raise ExportError(f"{self.root} holds an export of an older layout: choose another output, or remove it")
        if not self.manifest.generations:
            return {}
        if not append:
            raise ExportError(
                f"{self.root} holds a finished export: add to it (append), choose another output, or remove it"
            )
        before, now = self.manifest.summary(), _shape(options)
        for what in now:
            if before.get(what) != now[what]:
                raise ExportError(f"{self.root} was exported with {what}={before.get(what)!r}, and not {now[what]!r}")
        return self.manifest.ledgers()

    def check(self, plan: Plan, append: bool, resume: bool) -> None:
        """Raises `ExportError` if there are files that no manifest names, and that this export does not go on with."""
        left = {
            name
            for name in self._names - set(self.manifest.paths())
            if not name.startswith(f"{DIRECTORY}/") and not name.rpartition("/")[2].startswith((".", "_"))
        }
        if not left:
            return
        if not resume:
            raise ExportError(
                f"{self.root} is not empty: choose another output, or go on with an export that stopped (resume)"
            )
        foreign = sorted(left - {part_name(ranges) for ranges in plan.partitions})
        if append:  # ledgers have grown since: what the export that stopped had planned is planned differently now
            for name in [name for name in foreign if PART.fullmatch(name)]:
                self.files.delete_file(f"{self.root}/{name}")
                foreign.remove(name)
        if foreign:
            raise ExportError(
                f"{self.root} holds {foreign[0]}, which is not part of this export: the ledgers or the options differ"
            )

    def tidy(self) -> None:
        """Remove what tasks left that were killed or repeated."""
        for info in self.files.get_file_info(fs.FileSelector(self.root, allow_not_found=True)):
            if info.path.endswith(TEMPORARY):
                self.files.delete_file(info.path)


def _shape(options: ReadOptions) -> dict[str, Any]:
    """What must be the same in all generations, or an appended ledger would not be what its rows seem to be."""
    entries = [options.entries_from, options.entries_to, repr(options.where.entries)]
    return {"columns": list(_columns(options)), "entries": entries}


def plan_export(options: ReadOptions, output: str = "", *, append: bool = False) -> Plan:
    """What an export would write. Raises as `plan_read`, and `ExportError`."""
    exported = Output(output).exported(options, append) if output else {}
    with connected(options) as here:
        return here.run(plan_read(here.client, options, _already(exported)))


def _already(exported: Mapping[int, Exported]) -> dict[int, int | None]:
    return {ledger_id: None if found.closed else found.last_entry for ledger_id, found in exported.items()}


def export(
    spark: SparkSession,
    options: ReadOptions,
    output: str,
    *,
    resume: bool = False,
    append: bool = False,
    compression: str = "zstd",
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Write the ledgers that the options select to `output`, a directory or an address such as `s3://bucket/path`,
    which every executor must be able to write to.

    `append`: add what a finished export does not hold yet. `resume`: go on with one that stopped. Raises `ExportError`
    when the output holds something else, or what was written is not what was read.
    """
    columns = _columns(options)
    here = Output(output)
    exported = here.exported(options, append)
    with connected(options) as session:
        plan = session.run(plan_read(session.client, options, _already(exported)))
    here.check(plan, append, resume)
    run_id = str(uuid.uuid4())
    rows = _written(spark, options.with_columns(columns), plan, here.location, compression, resume, on_progress)
    ledgers = added_up(plan, rows, exported, options.fail_on_data_loss)
    here.tidy()
    files = _files(plan, rows)
    totals = _totals(ledgers, files)
    manifest = ""
    if ledgers or not here.manifest.generations:
        manifest = here.manifest.add({**_about(run_id, options), **totals}, ledgers, files)
    return ExportReport(run_id, here.location, manifest=manifest, **totals)


def _written(
    spark: SparkSession,
    options: ReadOptions,
    plan: Plan,
    location: str,
    compression: str,
    resume: bool,
    on_progress: OnProgress | None,
) -> list[Any]:
    """Write the files of a plan on Spark. Returns a row of `SCHEMA` for each."""
    counter = Counter(spark)

    def work(worker: Session, ranges: tuple[EntryRange, ...]) -> Iterator[tuple[Any, ...]]:
        files, root = open_files(location)
        part = write_part(worker, options, files, root, ranges, compression, resume)
        counter.add(part.sums.rows, part.sums.bytes)
        ledgers = part.sums.by_ledger
        counts = ([rows for rows, _ in ledgers.values()], [size for _, size in ledgers.values()])
        yield (part.name, part.sums.bytes, part.file_bytes, str(part.sums), part.damaged, list(ledgers), *counts)

    with watched(counter, plan.entries, plan.bytes, on_progress):
        return on_units(spark, plan.partitions, work, options, SCHEMA).collect()


def _files(plan: Plan, rows: Iterable[Any]) -> list[dict[str, Any]]:
    """The files for the manifest, by name."""
    planned = {part_name(ranges): sum(piece.entries for piece in ranges) for ranges in plan.partitions}
    return [
        {
            "path": row.path,
            "rows": sum(row.ledger_rows),
            "payload_bytes": row.payload_bytes,
            "file_bytes": row.file_bytes,
            "sums": row.sums,
            "damaged_copies": row.damaged_copies,
            "lost_entries": planned[row.path] - sum(row.ledger_rows),
        }
        for row in sorted(rows, key=lambda row: str(row.path))
    ]


def _totals(ledgers: Sequence[Any], files: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Of this run, as manifest and report have them."""

    def total(of: str) -> int:
        return sum(int(file[of]) for file in files)

    return {
        "ledgers": len(ledgers),
        "files": len(files),
        "rows": total("rows"),
        "bytes": total("payload_bytes"),
        "file_bytes": total("file_bytes"),
        "damaged_copies": total("damaged_copies"),
        "lost_entries": total("lost_entries"),
    }


def _about(run_id: str, options: ReadOptions) -> dict[str, Any]:
    """What the manifest says of a run beside its totals."""
    return {
        "run_id": run_id,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": options.uri,
        "selection": str(options.selection),
        **_shape(options),
    }


def exported_paths(output: str) -> list[str]:
    """The files of all finished exports to an output: what to give to `spark.read.parquet` while one is under way."""
    here = Output(output)
    return [f"{here.location.rstrip('/')}/{name}" for name in here.manifest.paths()]


def _listed(files: fs.FileSystem, root: str) -> list[fs.FileInfo]:
    """All that is there. Raises `ExportError` for what is no directory."""
    try:
        return list(files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True)))
    except NotADirectoryError:
        raise ExportError(f"{root} is a file: choose another output") from None


def _columns(options: ReadOptions) -> tuple[str, ...]:
    columns = options.columns if options.columns_given else COLUMNS
    for needed in ("entry_id", "payload"):
        if needed not in columns:
            raise OptionError(f"an export without the column {needed} could not be read back and compared")
    return columns if "ledger_id" in columns else ("ledger_id", *columns)
