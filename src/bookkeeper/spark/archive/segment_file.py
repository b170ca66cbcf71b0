"""One file of an archive: a completed segment of a stream as Parquet.

    ARCHIVE/<stream, percent-encoded>/<segment, 18 digits>-<ledger>.parquet

    stream, segment, ledger_id, entry_id, slot, txid, sequence_id, timestamp, payload, key, headers, event_time

The columns are those of a read of the stream (`streaming.records`); rows are in the stream's order, in row groups that
say which entries they have. The footer has what the file is of, and the checksums of its rows.

Theory of operation

- A task writes to a temporary name, which Spark ignores, and sums up the rows on the way. It reads the file back, and
  compares; the segment's record says how many rows there must be. Then the file gets its name, and only then the
  stream's index a record of it (`streams.names.offloaded`). So what the index names was read back and is whole.
- Who is killed on the way leaves a temporary file, or a file that the index does not name. The latter is taken as it is
  the next time, if it is of this very segment and reads back as its footer says.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ..errors import ArchiveError
from ..files import open_files
from .sums import RowSums

COLUMNS = (
    "stream", "segment", "ledger_id", "entry_id", "slot", "txid", "sequence_id", "timestamp", "payload", "key",
    "headers", "event_time",
)  # fmt: skip

ROW_GROUP_BYTES = 64 << 20
TEMPORARY = ".parquet.tmp"
SUMS, SEGMENT = b"bookkeeper.sums", b"bookkeeper.segment"
"""Keys in a file's footer: checksums, and what it is of."""


@dataclass(frozen=True)
class Archived:
    """A file that is whole."""

    rows: int
    sums: str
    file_bytes: int


def file_name(stream: str, number: int, ledger_id: int) -> str:
    """Below the archive."""
    return f"{quote(stream, safe='')}/{number:018d}-{ledger_id}.parquet"


def archive(
    files: fs.FileSystem, path: str, identity: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int
) -> Archived:
    """Make a file of a segment, or find it made.

    - `identity`: which stream and segment it is, in all its lives.
    - `rows`: how many there must be; negative: it is not known.

    Raises `ArchiveError` if there is another file of this name, or what is written is not what is to be.
    """
    found = _made(files, path, identity)
    if found is not None:
        return found
    files.create_dir(path.rpartition("/")[0], recursive=True)
    temporary = f"{path.rpartition('/')[0]}/.{uuid.uuid4()}{TEMPORARY}"
    try:
        sums = _write(files, temporary, identity, schema, batches)
        if 0 <= rows != sums.rows:
            raise ArchiveError(f"{path}: {sums.rows} records were read, and the segment's metadata say {rows}")
        again = read_back(files, temporary)
        if str(again) != str(sums):
            raise ArchiveError(f"{path}: read back {again} and not {sums}, as was written")
        files.move(temporary, path)
    except BaseException:
        with suppress(OSError):
            files.delete_file(temporary)
        raise
    return Archived(sums.rows, str(sums), files.get_file_info(path).size)


def _made(files: fs.FileSystem, path: str, identity: str) -> Archived | None:
    """What somebody made before; None: there is nothing that is whole."""
    try:
        with opened(files, path) as parquet:
            footer = parquet.metadata.metadata or {}
        if footer.get(SEGMENT, b"").decode() != identity:
            raise ArchiveError(f"{path} is there already, and not of {identity}: choose another archive")
        sums = read_back(files, path)
    except FileNotFoundError:
        return None
    except (pa.ArrowInvalid, OSError):
        return None  # it is damaged: it is made anew
    if str(sums) != footer.get(SUMS, b"").decode():
        return None
    return Archived(sums.rows, str(sums), files.get_file_info(path).size)


def check(files: fs.FileSystem, path: str, rows: int, sums: str) -> None:
    """Whether a file is still what it was, by its footer. Raises `ArchiveError`."""
    try:
        with opened(files, path) as parquet:
            footer, there = parquet.metadata.metadata or {}, parquet.metadata.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise ArchiveError(f"{path} cannot be read: {error}") from error
    if there != rows or footer.get(SUMS, b"").decode() != sums:
        raise ArchiveError(f"{path} is not the file that was written: it has {there} rows, and should have {rows}")


def read_back(files: fs.FileSystem, path: str) -> RowSums:
    """Sum up what a file holds."""
    sums = RowSums()
    with opened(files, path) as parquet:
        for batch in parquet.iter_batches():
            sums.add(batch)
    return sums


@contextmanager
def opened(files: fs.FileSystem, path: str) -> Iterator[pq.ParquetFile]:
    """A file whose pages are checked as they are read."""
    with files.open_input_file(path) as stream:
        yield pq.ParquetFile(stream, page_checksum_verification=True)


def first_from(uri: str, rows: int, txid: int) -> tuple[int, int] | None:
    """Entry and slot of the first record of a file with this transaction id or a higher one; None: there is none.

    Raises `ArchiveError`.
    """
    try:
        files, path = open_files(uri)
        with opened(files, path) as parquet:
            if parquet.metadata.num_rows != rows:
                raise ArchiveError(f"{uri} has {parquet.metadata.num_rows} rows, and was written with {rows}")
            for batch in parquet.iter_batches(columns=["entry_id", "slot", "txid"]):
                later = batch.filter(pc.greater_equal(batch.column("txid"), txid))
                if later.num_rows:
                    return later.column("entry_id")[0].as_py(), later.column("slot")[0].as_py()
    except (pa.ArrowInvalid, OSError) as error:
        raise ArchiveError(f"the segment that was offloaded to {uri} cannot be read: {error}") from error
    return None


def _write(
    files: fs.FileSystem, path: str, identity: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> RowSums:
    sums = RowSums()
    with (
        files.open_output_stream(path) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            sums.add(batch)
            waiting.append(batch)
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting, size = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
        writer.add_key_value_metadata({SUMS.decode(): str(sums), SEGMENT.decode(): identity})
    return sums
