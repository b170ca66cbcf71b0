"""One file of an export: the ranges of a task as Parquet, read back before it gets its name.

    part-0000000000000000005-000000000000000000-0000000000000000007-000000000000131071.parquet

The name says the first and the last entry (ledger, entry), and follows from the plan. The rows have the ledger's id as
a column, so that many small ledgers share a file.

Theory of operation

- A task writes to a temporary name, which Spark ignores, and on the way sums ids and payloads. It reads the file back,
  compares the sums, and gives the file its name. So a file with its name is whole and was read once.
- The same name means the same entries: a file that is there and reads back as its footer says is left alone, whoever
  made it. There is no moment without it, and a task that was given up long ago changes nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ..errors import ExportError
from ..options import ReadOptions
from ..pieces import Piece
from ..planning import EntryRange
from ..reading import RangeReader, Tally
from ..rows import BatchMaker
from ..session import Session

ROW_GROUP_BYTES = 64 << 20
TEMPORARY = ".parquet.tmp"
PART = re.compile(r"part-\d{19}-\d{18,19}-\d{19}-\d{18,19}\.parquet")
SUMS = b"bookkeeper.sums"
"""Key of a file's sums in its footer."""


class Sums:
    """Checksums of entries in order: CRC-32C over ledger ids, over entry ids (int64, little-endian), over payloads."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.by_ledger: dict[int, tuple[int, int]] = {}
        """Entries and payload bytes of each ledger."""
        self._ledgers = self._ids = self._payloads = 0

    def add(self, ledger_id: int, entry_ids: npt.NDArray[np.int64], payload: bytes) -> None:
        """Entries of one ledger, their payloads one behind the other."""
        count = len(entry_ids)
        rows, size = self.by_ledger.get(ledger_id, (0, 0))
        self.by_ledger[ledger_id] = (rows + count, size + len(payload))
        self.rows += count
        self.bytes += len(payload)
        self._ledgers = google_crc32c.extend(self._ledgers, np.full(count, ledger_id, "<i8").tobytes())
        self._ids = google_crc32c.extend(self._ids, entry_ids.astype("<i8").tobytes())
        self._payloads = google_crc32c.extend(self._payloads, payload)

    def __str__(self) -> str:
        sums = f"ledgers:{self._ledgers:08x}/ids:{self._ids:08x}/payloads:{self._payloads:08x}"
        return f"{self.rows}/{self.bytes}/{sums}"


@dataclass(frozen=True)
class Part:
    """A file that is whole."""

    name: str
    sums: Sums
    file_bytes: int
    damaged: int
    """Copies with a wrong digest that were passed over on the way."""


def part_name(ranges: Sequence[EntryRange]) -> str:
    """The file of these ranges."""
    first, last = ranges[0], ranges[-1]
    return f"part-{first.ledger_id:019d}-{first.first:018d}-{last.ledger_id:019d}-{last.last:018d}.parquet"


def write_part(
    here: Session,
    options: ReadOptions,
    files: fs.FileSystem,
    root: str,
    ranges: Sequence[EntryRange],
    compression: str,
    resume: bool,
) -> Part:
    """Make a file, or with `resume` find it made. Raises `ExportError` when it does not read back as written."""
    name = part_name(ranges)
    path = f"{root}/{name}"
    wanted = sum(piece.entries for piece in ranges)
    found = whole(files, path) if resume else None
    if found is not None and (found.rows == wanted or not options.fail_on_data_loss):
        return Part(name, found, files.get_file_info(path).size, 0)
    files.create_dir(root, recursive=True)
    temporary = f"{root}/.{uuid.uuid4()}{TEMPORARY}"
    sums = Sums()
    tally = Tally()
    try:
        _write_rows(here, options, files, temporary, ranges, compression, sums, tally)
        again = read_back(files, temporary)
        if str(again) != str(sums):
            raise ExportError(f"{name}: read back {again} and not {sums}, as was written")
        found = whole(files, path)
        if found is not None and found.rows >= sums.rows:
            sums = found
            files.delete_file(temporary)
        else:
            files.move(temporary, path)
    except BaseException:
        with suppress(OSError):
            files.delete_file(temporary)
        raise
    tally.report()
    return Part(name, sums, files.get_file_info(path).size, len(tally.damaged))


def whole(files: fs.FileSystem, path: str) -> Sums | None:
    """The sums of a file that reads back as its footer says; None if there is none."""
    try:
        with files.open_input_file(path) as stream:
            metadata = pq.ParquetFile(stream).metadata.metadata or {}
        if SUMS not in metadata:
            return None
        found = read_back(files, path)
    except (FileNotFoundError, pa.ArrowInvalid, OSError):
        return None
    return found if str(found) == metadata[SUMS].decode() else None


def read_back(files: fs.FileSystem, path: str) -> Sums:
    """Sum up what a file holds."""
    sums = Sums()
    with files.open_input_file(path) as stream:
        parquet = pq.ParquetFile(stream, page_checksum_verification=True)
        for batch in parquet.iter_batches():
            _sum_up(batch, sums)
    return sums


def _sum_up(batch: pa.RecordBatch, sums: Sums) -> None:
    payload = batch.column(batch.schema.get_field_index("payload"))
    ledgers = batch.column(batch.schema.get_field_index("ledger_id")).to_numpy(zero_copy_only=False)
    ids = batch.column(batch.schema.get_field_index("entry_id")).to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(payload.buffers()[1], np.int32)[payload.offset : payload.offset + len(payload) + 1]
    data = payload.buffers()[2]
    content = memoryview(b"" if data is None else data)
    bounds = [0, *(np.flatnonzero(np.diff(ledgers)) + 1).tolist(), len(ids)]
    for start, end in pairwise(bounds):
        if start < end:
            piece = content[int(offsets[start]) : int(offsets[end])]
            sums.add(int(ledgers[start]), ids[start:end], bytes(piece))


def _write_rows(
    here: Session,
    options: ReadOptions,
    files: fs.FileSystem,
    path: str,
    ranges: Sequence[EntryRange],
    compression: str,
    sums: Sums,
    tally: Tally,
) -> None:
    reader = RangeReader(here.client, ranges, options, tally)
    maker = BatchMaker(options)

    def summed(pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            run = piece.run
            ids: npt.NDArray[Any] = np.arange(run.first, run.last + 1)
            sums.add(piece.metadata.ledger_id, ids, bytes(run.payload))
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
