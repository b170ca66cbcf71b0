"""Where scrubs keep how far they are, so that one that died goes on, and the next one knows what is new.

    STATE/00000003/plan.json           what was asked for; the run's id
    STATE/00000003/ledgers.parquet     which ledgers, how far
    STATE/00000003/units.parquet       which entries each unit reads
    STATE/00000003/rows/000017.parquet what unit 17 found: it is done
    STATE/00000003/clean.parquet       all ledgers that were found whole, by this scrub or those before it
    STATE/00000003/report.json         the report: the scrub is finished

Theory of operation

- A JSON file is written under another name first, and last of what belongs to it: a plan without `plan.json` and a
  scrub without `report.json` are not there. So are the rows of a unit.
- A unit's rows are read again as they were written. Where two drivers go on with the same scrub, both write the same.
- `clean.parquet` of the newest finished scrub counts, and no older directory is needed. A ledger leaves it when
  something is found in it, and counts as new again. A scrub of everything begins it anew: what was deleted is
  forgotten.
- A scrub of a sample of entries makes no ledger old: it has not seen them whole.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ...bounds import ALL
from ...errors import JobError, OptionError
from ...files import open_files
from .plan import NOTHING_SEEN, Looked, Piece, ScrubPlan, Seen

FORMAT = 1
TEMPORARY = ".tmp"

ROWS_AT_ONCE = 10_000
"""That a task holds before it writes them."""

LEDGERS = pa.schema([(name, pa.int64()) for name in Looked._fields])
UNITS = pa.schema([("unit", pa.int64()), *((name, pa.int64()) for name in Piece._fields)])


class State:
    """The scrubs of one state. Raises `OptionError` for a place that is none.

    `rows_too`: the place may hold the rows of one scrub instead.
    """

    def __init__(self, place: str, *, rows_too: bool = False) -> None:
        self.files, self.root = open_files(place)
        self.location = place if "://" in place else self.root
        try:
            found = self.files.get_file_info(fs.FileSelector(self.root, allow_not_found=True))
        except NotADirectoryError:
            raise OptionError(f"state={place!r} is a file: give a directory of its own") from None
        names = [info.path.rpartition("/")[2] for info in found if info.type is fs.FileType.Directory]
        self._numbers = sorted(int(name) for name in names if re.fullmatch(r"\d{8}", name))
        if not self._numbers and not rows_too and any(info.type is fs.FileType.File for info in found):
            raise OptionError(f"state={place!r} holds other files: give a directory of its own")

    def _scrub(self, number: int) -> Scrub:
        return Scrub(self.files, f"{self.root}/{number:08d}")

    def seen(self) -> Seen:
        """What the scrubs that are finished have found whole."""
        scrubs = map(self._scrub, reversed(self._numbers))
        return next((scrub.clean() for scrub in scrubs if scrub.finished), NOTHING_SEEN)

    def newest(self) -> Scrub | None:
        """The last one that finished; None: there never was a scrub here. Raises `JobError` if none has finished."""
        scrubs = list(map(self._scrub, reversed(self._numbers)))
        finished = next((scrub for scrub in scrubs if scrub.finished), None)
        if scrubs and finished is None:
            raise JobError(f"{self.root}: no scrub has finished there: give the command again that began it")
        return finished

    def unfinished(self, asked: Mapping[str, Any]) -> Scrub | None:
        """The scrub to go on with. Raises `JobError` if it was asked for something else."""
        scrub = self._scrub(self._numbers[-1]) if self._numbers else None
        if scrub is None or scrub.finished or not scrub.planned:
            return None
        about = scrub.about()
        if about.get("format") != FORMAT:
            raise JobError(f"{scrub.root} has format {about.get('format')}; this program knows {FORMAT}")
        if about["asked"] != dict(asked):
            raise JobError(
                f"{scrub.root}: the scrub that began at {about['started']} was asked for other things"
                f" ({_told(about['asked'], asked)}) and is not finished: give them again to finish it, or remove it"
            )
        return scrub

    def begin(self, asked: Mapping[str, Any], plan: ScrubPlan) -> Scrub:
        """The next scrub: its plan is written."""
        last = self._numbers[-1] if self._numbers else -1
        number = last if last >= 0 and not self._scrub(last).planned else last + 1
        scrub = self._scrub(number)
        scrub.write_plan(asked, plan)
        self._numbers = sorted({*self._numbers, number})
        return scrub


def clean_after(asked: Mapping[str, Any], before: Seen, ledgers: Sequence[Looked], bad: Sequence[int]) -> Seen:
    """What is known to be whole after a scrub of these ledgers, which found something in the `bad` ones."""
    all_entries = "sample_entries" not in asked and asked["entries"] == [0, None, repr(ALL)]
    everything = asked["ledgers"] == "all" and asked["where"] == repr(ALL) and not asked.keys() & {"sample", "since"}
    kept = NOTHING_SEEN if everything and all_entries else before
    return kept.then(Seen.of(ledgers) if all_entries else NOTHING_SEEN, np.array(bad, np.int64))


def _told(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What is different, as it was before."""
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"{name}={before[name]}" if name in before else f"no {name}" for name in names)


class Scrub:
    """One scrub. At the driver and in tasks."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._files = files
        self.root = root
        self.name = root.rpartition("/")[2]

    @property
    def planned(self) -> bool:
        return self._has("plan.json")

    @property
    def finished(self) -> bool:
        return self._has("report.json")

    def about(self) -> dict[str, Any]:
        """What was asked for, and the id of the run."""
        with self._files.open_input_stream(f"{self.root}/plan.json") as stream:
            content: dict[str, Any] = json.loads(stream.read())
        return content

    def write_plan(self, asked: Mapping[str, Any], plan: ScrubPlan) -> None:
        """Raises `OSError`."""
        self._files.create_dir(f"{self.root}/rows", recursive=True)
        self._write("ledgers.parquet", pa.table(_columns(plan.ledgers, LEDGERS), LEDGERS))
        units = [(number, *piece) for number, unit in enumerate(plan.units) for piece in unit]
        self._write("units.parquet", pa.table(_columns(units, UNITS), UNITS))
        self._write_json(
            "plan.json",
            {
                "format": FORMAT,
                "run_id": str(uuid.uuid4()),
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "asked": dict(asked),
                "seed": plan.seed,
                "units": len(plan.units),
            },
        )

    def plan(self) -> ScrubPlan:
        """As it was written."""
        about = self.about()
        units: list[list[Piece]] = [[] for _ in range(about["units"])]
        for number, *piece in _rows(self._read("units.parquet")):
            units[number].append(Piece(*piece))
        ledgers = tuple(Looked(*row) for row in _rows(self._read("ledgers.parquet")))
        return ScrubPlan(ledgers, tuple(map(tuple, units)), about["seed"])

    def done(self) -> frozenset[int]:
        """Units whose rows are there."""
        found = self._files.get_file_info(fs.FileSelector(f"{self.root}/rows", allow_not_found=True))
        names = [info.path.rpartition("/")[2] for info in found]
        return frozenset(int(name[:-8]) for name in names if re.fullmatch(r"\d+\.parquet", name))

    def rows(self, unit: int) -> Iterator[tuple[Any, ...]] | None:
        """What a unit found; None: it is not done."""
        if not self._has(f"rows/{unit:06d}.parquet"):
            return None
        return _rows(self._read(f"rows/{unit:06d}.parquet"))

    def keep(self, unit: int, rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[tuple[Any, ...]]:
        """The rows as they come. When they were all taken, the unit is done."""
        temporary = f"{self.root}/rows/.{uuid.uuid4()}{TEMPORARY}"
        with self._files.open_output_stream(temporary) as stream, pq.ParquetWriter(stream, schema) as writer:
            coming = iter(rows)
            while some := list(islice(coming, ROWS_AT_ONCE)):
                writer.write_table(pa.table(_columns(some, schema), schema))
                yield from some
        self._files.move(temporary, f"{self.root}/rows/{unit:06d}.parquet")

    def finish(self, report: Mapping[str, Any], clean: Seen) -> None:
        """The scrub is over. What tasks left that were killed is removed."""
        for info in self._files.get_file_info(fs.FileSelector(f"{self.root}/rows")):
            if info.path.endswith(TEMPORARY):
                self._files.delete_file(info.path)
        columns = [pa.array(column) for column in (clean.ids, clean.last, clean.bookies)]
        self._write("clean.parquet", pa.table(columns, LEDGERS))
        self._write_json("report.json", report)

    def clean(self) -> Seen:
        """What was found whole, up to this scrub."""
        columns = (column.to_numpy() for column in self._read("clean.parquet").columns)
        return Seen(*(column.astype(np.int64) for column in columns))

    def _has(self, name: str) -> bool:
        return bool(self._files.get_file_info(f"{self.root}/{name}").type is fs.FileType.File)

    def _read(self, name: str) -> pa.Table:
        with self._files.open_input_file(f"{self.root}/{name}") as stream:
            return pq.read_table(stream)

    def _write(self, name: str, table: pa.Table) -> None:
        with self._files.open_output_stream(f"{self.root}/{name}") as stream:
            pq.write_table(table, stream)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        temporary = f"{self.root}/.{uuid.uuid4()}{TEMPORARY}"
        with self._files.open_output_stream(temporary) as stream:
            stream.write(json.dumps(content, indent=2).encode() + b"\n")
        self._files.move(temporary, f"{self.root}/{name}")


def _columns(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> list[pa.Array]:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
