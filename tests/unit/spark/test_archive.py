"""What is offloaded, what may be deleted then, and which rows of a file are read (spec streams §18)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyarrow import fs

from bookkeeper.spark.archive.ranges import ArchivedRange
from bookkeeper.spark.archive.segment_file import COLUMNS, archive, check, first_from
from bookkeeper.spark.errors import ArchiveError
from bookkeeper.spark.jobs.offloading import archived_before, wanted
from bookkeeper.spark.streaming.archived_rows import ArchiveReader
from bookkeeper.spark.streaming.records import TYPES
from bookkeeper.spark.streaming.stream_options import StreamOptions
from bookkeeper.streams.dlsn import DLSN, LOWER_BOUND
from bookkeeper.streams.formats.segment import SegmentMetadata
from bookkeeper.streams.retention.offloaded import Offloaded

SCHEMA = pa.schema([pa.field(name, TYPES[name][1]) for name in COLUMNS])


def segment(number: int, **more: int | bool) -> SegmentMetadata:
    plain = SegmentMetadata(
        ledger_id=10 * number, first_txid=0, number=number, completed=True, records=3, completed_ms=1000 * number
    )
    return replace(plain, **more)


def copy(of: SegmentMetadata) -> Offloaded:
    return Offloaded(of, sequence_id=0, entries=1, bytes=1, rows=3, uri="", file_bytes=1, sums="")


def test_what_is_complete_and_old_enough_is_offloaded() -> None:
    segments = [segment(1).truncate(None), *map(segment, (2, 3, 4, 5)), segment(6, completed=False)]
    assert [each.number for each in wanted(segments, (), 10_000, 0)] == [2, 3, 4, 5]
    assert [each.number for each in wanted(segments, (3,), 10_000, 1)] == [2, 4]
    assert [each.number for each in wanted(segments, (), 3000, 0)] == [2, 3]
    assert wanted(segments, (), 10_000, 9) == []


@given(st.sets(st.integers(1, 6)), st.none() | st.integers(1, 8), st.integers(0, 6))
def test_nothing_is_deleted_but_what_is_in_the_archive_and_read(
    archived: set[int], unread: int | None, complete: int
) -> None:
    segments = [segment(number, completed=number <= complete) for number in range(1, 7)]
    index = {number: copy(segments[number - 1]) for number in archived}
    before = archived_before(segments, index, None if unread is None else DLSN(unread, 0, 0))
    gone = [each.number for each in segments if DLSN(each.number, 0, 0) < before]
    assert set(gone) <= archived
    assert all(number <= complete and (unread is None or number < unread) for number in gone)
    next_one = len(gone) + 1
    assert next_one not in archived or next_one > complete or next_one == unread, "and no less than that"


def test_a_copy_of_another_ledger_does_not_count() -> None:
    index = {1: copy(segment(1, ledger_id=99))}
    assert archived_before([segment(1)], index, None) == LOWER_BOUND


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 5), st.none() | st.integers(0, 5), st.integers(0, 10**6))
def test_parts_of_a_range_have_its_entries_once(
    first: int, more: int, slot: int, stop: int | None, wanted_bytes: int
) -> None:
    whole = ArchivedRange("uri", 7, first, first + more, slot, stop, 1000)
    parts = whole.parts(wanted_bytes + 1)
    assert [entry for part in parts for entry in range(part.first, part.last + 1)] == [*range(first, first + more + 1)]
    assert parts[0].first_slot == slot
    assert parts[-1].stop_slot == stop
    assert all(part.first_slot == 0 for part in parts[1:])
    assert all(part.stop_slot is None for part in parts[:-1])


def batch(places: list[tuple[int, int]]) -> pa.RecordBatch:
    """Records at entry and slot; the payload says where."""
    rows = [
        {"stream": "s", "segment": 1, "ledger_id": 7, "entry_id": entry, "slot": slot, "txid": 100 * entry + slot,
         "sequence_id": number, "payload": f"{entry}.{slot}".encode()}
        for number, (entry, slot) in enumerate(places)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist([{**dict.fromkeys(COLUMNS), **row} for row in rows], SCHEMA)


PLACES = [(entry, slot) for entry in range(6) for slot in range(3)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("archive") / "s" / "1.parquet")
    archive(fs.LocalFileSystem(), path, "this", SCHEMA, [batch(PLACES[:7]), batch(PLACES[7:])], len(PLACES))
    return path


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3), st.none() | st.integers(0, 3))
def test_the_rows_of_a_range(file: str, first: int, last: int, slot: int, stop: int | None) -> None:
    options = StreamOptions.parse({"uri": "zk://x/y", "stream": "s", "columns": "payload,dlsn"}, streaming=False)
    piece = ArchivedRange(file, len(PLACES), first, last, slot, stop)
    found = [row for rows in ArchiveReader(options).batches([piece]) for row in rows.to_pylist()]
    expected = [
        place
        for place in PLACES
        if (first, slot) <= place and (place < (last, stop) if stop is not None else place[0] <= last)
    ]
    assert [row["payload"].decode() for row in found] == [f"{entry}.{at}" for entry, at in expected]
    assert [row["dlsn"] for row in found] == [str(DLSN(1, *place)) for place in expected]


@given(st.integers(-1, 700))
def test_the_first_record_from_a_transaction_id_on(file: str, txid: int) -> None:
    expected = next((place for place in PLACES if 100 * place[0] + place[1] >= txid), None)
    assert first_from(file, len(PLACES), txid) == expected


def test_a_file_must_be_what_was_written(file: str, tmp_path: Path) -> None:
    files = fs.LocalFileSystem()
    again = archive(files, file, "this", SCHEMA, [], 0)
    assert again.rows == len(PLACES), "it is whole: nothing is read for it again"
    check(files, file, again.rows, again.sums)
    with pytest.raises(ArchiveError, match="not the file"):
        check(files, file, again.rows, "other sums")
    with pytest.raises(ArchiveError, match="choose another archive"):
        archive(files, file, "that", SCHEMA, [], 0)
    with pytest.raises(ArchiveError, match="3 records were read, and the segment's metadata say 4"):
        archive(files, str(tmp_path / "x.parquet"), "x", SCHEMA, [batch(PLACES[:3])], 4)
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    with pytest.raises(ArchiveError, match="has 18 rows, and was written with 17"):
        list(ArchiveReader(_options()).batches([ArchivedRange(file, 17, 0, 9)]))


def _options() -> StreamOptions:
    return StreamOptions.parse({"uri": "zk://x/y", "stream": "s"}, streaming=False)
