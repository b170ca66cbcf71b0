from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.bookie.file_names import log_name
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.bookie.storage.entry_log.reader import LogRecord, LogScan, read_records
from bookkeeper.bookie.storage.entry_log.writer import (
    REMEMBERED_LOGS,
    WRITE_BYTES,
    EntryLogWriter,
    check_log_names,
    last_log_id,
    list_logs,
)
from bookkeeper.errors import CorruptStorageError
from bookkeeper.runtime import File
from bookkeeper.runtime.api import Buffer
from bookkeeper.runtime.disk.files import RealFile, RealFiles
from tests.support.storage import entry, record

FILES = RealFiles()

E0 = bytes.fromhex(
    "0000000000000007 0000000000000000 ffffffffffffffff 0000000000000005 9e3e717b 68656c6c6f".replace(" ", "")
)
E1 = bytes.fromhex(
    "0000000000000007 0000000000000001 0000000000000000 000000000000000b 3cf91e2d 776f726c6421".replace(" ", "")
)


def scan(path: Path, log_id: int = 0) -> tuple[LogScan, list[LogRecord]]:
    found = LogScan(FILES.open(str(path)), log_id)
    return found, list(found.records())


def write_log(path: Path, data: bytes, header: bytes | None = None) -> Path:
    path.write_bytes((fmt.new_header() if header is None else header) + data)
    return path


# --- writing ---


class _Told(RealFile):
    """A file that notes what the disk was told to begin with."""

    def __init__(self, path: str, mode: str, begun: list[tuple[int, int, int]]) -> None:
        super().__init__(path, mode)
        self._begun = begun

    def start_writeback(self, size: int, offset: int) -> None:
        self._begun.append((offset, size, self.size()))
        super().start_writeback(size, offset)


class _Telling(RealFiles):
    def __init__(self) -> None:
        self.begun: list[tuple[int, int, int]] = []

    def open(self, path: str, mode: str = "r") -> File:
        return _Told(path, mode, self.begun)


def test_the_disk_begins_with_what_is_written_at_once(tmp_path: Path) -> None:
    files = _Telling()
    writer = EntryLogWriter(files, str(tmp_path), 1 << 30)
    entries = [entry(1, i, WRITE_BYTES // 4) for i in range(10)]
    for each in entries:
        writer.append(1, [each])
    assert files.begun  # before any sync
    writer.sync()
    ends = [offset + size for offset, size, _ in files.begun]
    assert [fmt.HEADER_SIZE, *ends[:-1]] == [offset for offset, _, _ in files.begun]
    assert ends == [size for _, _, size in files.begun]  # it was written by then
    writer.close()
    assert [each.size for each in scan(tmp_path / "0.log")[1]] == [len(each) for each in entries]


def test_a_log_written_past_the_page_cache_is_the_same_to_the_byte(tmp_path: Path) -> None:
    entries = [entry(1, i, 100 + 1777 * i) for i in range(60)]
    logs = []
    for name, choices in {"through": [None], "past": [0], "in turn": [0, None], "by size": [50_000]}.items():
        directory = tmp_path / name
        directory.mkdir()
        writer = EntryLogWriter(FILES, str(directory), 1 << 30)
        for number, start in enumerate(range(0, len(entries), 7)):
            writer.past_cache_from = choices[number % len(choices)]
            writer.append(1, entries[start : start + 7])
            if start % 3 == 0:
                writer.sync()
        writer.close()
        logs.append((directory / "0.log").read_bytes())
    assert logs == logs[:1] * 4


def test_writes_of_large_entries_go_past_the_page_cache_and_others_do_not(tmp_path: Path) -> None:
    past: list[int] = []

    class Telling(RealFile):
        def write_through(self, pieces: Sequence[Buffer], offset: int) -> None:
            past.append(sum(map(len, pieces)))
            super().write_through(pieces, offset)

    class TellingFiles(RealFiles):
        def open(self, path: str, mode: str = "r") -> File:
            return Telling(path, mode)

    writer = EntryLogWriter(TellingFiles(), str(tmp_path), 1 << 30)
    writer.past_cache_from = 4096
    for ledger_id, size in ((1, 4096), (2, 4000), (3, 9000)):
        writer.append(ledger_id, [bytes(size)] * 50)
        writer.sync()
    writer.append_mixed([4, 5] * 25, [bytes(100), bytes(8300)] * 25)  # 4,200 on average
    writer.sync()
    assert past == [50 * 4100, 50 * 9004, 25 * 8408]
    mark = writer.mark()
    writer.append(6, [b"small"] * 500)
    writer.rewind(mark)
    writer.append(6, [bytes(5000)])  # what was taken back does not count
    writer.sync()
    assert past[3:] == [5004]
    writer.past_cache_from = None
    writer.append(6, [bytes(5000)])
    writer.close()
    assert len(past) == 4


def test_a_sealed_log_is_the_specified_one_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / "lastId").write_text("2\n")
    writer = EntryLogWriter(FILES, str(tmp_path), 1 << 30)
    locations = writer.append(7, [E0, E1])
    writer.close()
    assert [location.to_bytes(8, "big").hex() for location in locations] == ["0000000300000404", "0000000300000431"]
    data = (tmp_path / "3.log").read_bytes()
    assert len(data) == 1155
    assert data[:20].hex() == "424b4c4f00000001000000000000045b00000001"
    assert data[0x400:0x45B] == record(E0) + record(E1)
    assert data[0x45B:].hex() == "00000024fffffffffffffffffffffffffffffffe000000010000000000000007000000000000005b"
    assert (tmp_path / "lastId").read_text() == "3\n"


def test_the_first_log_of_an_empty_directory_is_0(tmp_path: Path) -> None:
    writer = EntryLogWriter(FILES, str(tmp_path), 1 << 30)
    assert list_logs(FILES, str(tmp_path)) == {}  # lazily
    assert writer.append(1, [entry(1, 0)])[0] == 0x404
    writer.close()


def test_a_log_rolls_before_it_would_exceed_its_limit(tmp_path: Path) -> None:
    one = len(record(entry(1, 0)))
    writer = EntryLogWriter(FILES, str(tmp_path), fmt.HEADER_SIZE + 3 * one)
    locations = writer.append(1, [entry(1, i) for i in range(8)])
    writer.close()
    assert [fmt.log_of(location) for location in locations] == [0, 0, 0, 1, 1, 1, 2, 2]
    for log_id, count in ((0, 3), (1, 3), (2, 2)):
        found, records = scan(tmp_path / f"{log_id}.log", log_id)
        assert found.ledgers_map() == {1: count * one}
        assert [r.location for r in records] == [x for x in locations if fmt.log_of(x) == log_id]


def test_an_entry_larger_than_a_log_gets_one_of_its_own(tmp_path: Path) -> None:
    writer = EntryLogWriter(FILES, str(tmp_path), fmt.HEADER_SIZE + 100)
    locations = writer.append(1, [entry(1, 0, 10), entry(1, 1, 5000), entry(1, 2, 10)])
    writer.close()
    assert [fmt.log_of(location) for location in locations] == [0, 1, 2]
    with FILES.open(str(tmp_path / "1.log")) as file:
        assert read_records(file, locations[1], 1, 1, 1, 100).raw == record(entry(1, 1, 5000))


@settings(max_examples=30)
@given(
    runs=st.lists(st.lists(st.sampled_from([0, 100, 3000, 5000, 20_000]), min_size=1, max_size=8), max_size=6),
    limit=st.sampled_from([40_000, 200_000, 1 << 30]),
)
def test_small_and_large_entries_are_where_their_locations_say(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[int]], limit: int
) -> None:
    directory = tmp_path_factory.mktemp("log")
    writer = EntryLogWriter(FILES, str(directory), limit)
    stored: dict[int, bytes] = {}
    for number, sizes in enumerate(runs):
        entries = [entry(number, i, size) for i, size in enumerate(sizes)]
        stored.update(zip(writer.append(number, entries), entries, strict=True))
        if number % 2:
            writer.sync()
    writer.close()
    found = {}
    for log_id in list_logs(FILES, str(directory)):
        log = (directory / log_name(log_id)).read_bytes()
        for location in stored:
            if location >> 32 == log_id:
                found[location] = log[location & 0xFFFFFFFF :][: len(stored[location])]
    assert found == stored


def test_a_restart_never_appends_to_an_existing_log(tmp_path: Path) -> None:
    """BI-15."""
    for expected in range(3):
        writer = EntryLogWriter(FILES, str(tmp_path), 1 << 30)
        assert fmt.log_of(writer.append(1, [entry(1, 0)])[0]) == expected
        writer.sync()
        writer.abandon()  # as a crash would


def test_ids_of_deleted_logs_are_not_used_again(tmp_path: Path) -> None:
    """BI-15, FX-47."""
    writer = EntryLogWriter(FILES, str(tmp_path), 1 << 30)
    writer.append(1, [entry(1, 0)])
    writer.close()
    (tmp_path / "0.log").unlink()
    assert last_log_id(FILES, str(tmp_path)) == 0


@pytest.mark.parametrize(
    ("names", "last_id", "expected"),
    [
        ([], None, -1),
        (["0.log", "1f.log"], None, 31),
        (["3.log"], "1f\n", 31),
        (["20.log"], "1f\n", 32),
        (["3.log"], "not hex\n", 3),
        (["3.log", "7.log.compacting"], None, 7),
        (["3.log", "8.log.2.compacted"], None, 8),
    ],
)
def test_the_last_id_is_the_greatest_of_all_traces(
    tmp_path: Path, names: list[str], last_id: str | None, expected: int
) -> None:
    """BI-15, FX-47."""
    for name in names:
        (tmp_path / name).touch()
    if last_id is not None:
        (tmp_path / "lastId").write_text(last_id)
    assert last_log_id(FILES, str(tmp_path)) == expected


def test_rewind_takes_back_what_was_appended_since_the_mark(tmp_path: Path) -> None:
    writer = EntryLogWriter(FILES, str(tmp_path), 1 << 30)
    writer.append(1, [entry(1, i) for i in range(5)])
    writer.sync()
    mark = writer.mark()
    writer.append(2, [entry(2, i, 100_000) for i in range(30)])  # some of it is written, some still in memory
    writer.rewind(mark)
    writer.append(1, [entry(1, 5)])
    writer.close()
    found, records = scan(tmp_path / "0.log")
    assert [(r.ledger_id, r.entry_id) for r in records] == [(1, i) for i in range(6)]
    assert not found.torn
    assert set(found.ledgers_map()) == {1}


def test_rewind_to_before_the_current_log_empties_it(tmp_path: Path) -> None:
    writer = EntryLogWriter(FILES, str(tmp_path), fmt.HEADER_SIZE + 200)
    mark = writer.mark()
    writer.append(1, [entry(1, i) for i in range(5)])
    current = writer.active_log
    writer.rewind(mark)
    writer.append(2, [entry(2, 0)])
    writer.close()
    found, records = scan(tmp_path / f"{current}.log")
    assert [(r.ledger_id, r.entry_id) for r in records] == [(2, 0)]
    assert not found.torn


def test_sizes_of_sealed_logs_are_handed_out_once(tmp_path: Path) -> None:
    one = len(record(entry(1, 0)))
    writer = EntryLogWriter(FILES, str(tmp_path), fmt.HEADER_SIZE + 3 * one)
    writer.append(1, [entry(1, 0), entry(1, 1)])
    writer.append(2, [entry(2, 0), entry(2, 1)])
    writer.sync()
    assert writer.take_sealed() == {0: {1: 2 * one, 2: one}}
    assert writer.take_sealed() == {}
    mark = writer.mark()
    writer.append(3, [entry(3, 0)])
    writer.rewind(mark)
    writer.close()
    assert writer.take_sealed() == {1: {2: one}}


def test_only_so_many_sealed_logs_are_remembered(tmp_path: Path) -> None:
    writer = EntryLogWriter(FILES, str(tmp_path), 1 << 30)
    for ledger_id in range(REMEMBERED_LOGS + 3):
        writer.append(ledger_id, [entry(ledger_id, 0)])
        writer.roll()
    assert list(writer.take_sealed()) == list(range(3, REMEMBERED_LOGS + 3))


def test_strange_log_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.log").touch()
    check_log_names(FILES, str(tmp_path))
    (tmp_path / "saved.log").touch()
    with pytest.raises(CorruptStorageError, match=r"saved\.log"):
        check_log_names(FILES, str(tmp_path))


# --- reading by location ---


def test_a_read_brings_the_entries_that_follow(tmp_path: Path) -> None:
    path = write_log(tmp_path / "0.log", b"".join(record(entry(4, i)) for i in range(10)) + record(entry(5, 10)))
    with FILES.open(str(path)) as file:
        found = read_records(file, 0x404, 4, 0, 100, 1 << 20)
        assert found.raw == b"".join(record(entry(4, i)) for i in range(10))
        assert found.entries == 10
        assert read_records(file, 0x404, 4, 0, 3, 1 << 20).entries == 3
        one = len(record(entry(4, 0)))
        assert read_records(file, 0x404, 4, 0, 100, 2 * one + 5).entries == 2
        assert read_records(file, 0x404, 4, 0, 100, 5).entries == 1  # at least the first


def test_a_gap_in_the_ids_ends_the_run(tmp_path: Path) -> None:
    path = write_log(tmp_path / "0.log", b"".join(record(entry(4, i)) for i in (0, 1, 3, 4)))
    with FILES.open(str(path)) as file:
        assert read_records(file, 0x404, 4, 0, 100, 1 << 20).entries == 2


def test_a_torn_record_behind_ends_the_run(tmp_path: Path) -> None:
    data = record(entry(4, 0)) + record(entry(4, 1))[:-1]
    path = write_log(tmp_path / "0.log", data)
    with FILES.open(str(path)) as file:
        assert read_records(file, 0x404, 4, 0, 100, 1 << 20).entries == 1


@pytest.mark.parametrize(
    ("location", "ledger_id", "entry_id"),
    [
        (0x404, 4, 1),  # other entry there
        (0x404, 5, 0),  # other ledger there
        (0x405, 4, 0),  # between records
        (0x4, 4, 0),  # in the header
        (0x404 + 1000, 4, 0),  # behind the end
        (0x404 + 24 + 36, 4, 1),  # cut off
    ],
)
def test_a_location_that_does_not_hold_the_entry_is_corrupt(
    tmp_path: Path, location: int, ledger_id: int, entry_id: int
) -> None:
    """BI-10."""
    path = write_log(tmp_path / "0.log", record(entry(4, 0)) + record(entry(4, 1))[:-1])
    with FILES.open(str(path)) as file, pytest.raises(CorruptStorageError):
        read_records(file, location, ledger_id, entry_id, 10, 1 << 20)


def test_an_impossible_size_is_corrupt_and_allocates_nothing(tmp_path: Path) -> None:
    """SEC-38, FX-40."""
    path = write_log(tmp_path / "0.log", b"\x7f\xff\xff\xff" + entry(4, 0))
    with FILES.open(str(path)) as file, pytest.raises(CorruptStorageError, match="impossible size"):
        read_records(file, 0x404, 4, 0, 10, 1 << 20)


@settings(max_examples=60)
@given(st.data())
def test_a_flipped_byte_gives_the_stored_bytes_or_corrupt(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """BI-22, DF-9."""
    entries = [entry(4, i, 5 + i) for i in range(4)]
    raw = bytearray(b"".join(map(record, entries)))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    path = write_log(tmp_path_factory.mktemp("log") / "0.log", bytes(raw))
    offset = 0
    for i, good in enumerate(entries):
        with FILES.open(str(path)) as file:
            try:
                found = read_records(file, 0x404 + offset, 4, i, 1, 1 << 20).raw
            except CorruptStorageError:
                assert offset <= place < offset + 20
            else:
                damaged = bytes(raw[offset : offset + 4 + len(good)])
                assert found == damaged or offset <= place < offset + 4  # payload is the digest's matter
        offset += 4 + len(good)


# --- scanning ---


def test_scan_of_an_unsealed_log_ends_at_the_files_end(tmp_path: Path) -> None:
    found, records = scan(write_log(tmp_path / "0.log", record(E0) + record(E1)))
    assert records == [LogRecord(0x404, 7, 0, 41), LogRecord(0x431, 7, 1, 42)]
    assert not found.torn
    assert not found.sealed


def test_scan_gives_each_records_bytes(tmp_path: Path) -> None:
    entries = [entry(1, i, 300_000) for i in range(8)]
    path = write_log(tmp_path / "0.log", b"".join(map(record, entries)))
    with FILES.open(str(path)) as file:
        found = LogScan(file, 0)
        assert [found.entry(r) for r in found.records()] == entries


def test_an_empty_file_scans_as_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "0.log").touch()
    found, records = scan(tmp_path / "0.log")
    assert records == []
    assert not found.torn


@pytest.mark.parametrize("cut", [1, 4, 12, 19, 30, 41])
def test_a_cut_off_log_is_torn(tmp_path: Path, cut: int) -> None:
    found, records = scan(write_log(tmp_path / "0.log", record(E0) + record(E1)[:-cut]))
    assert [r.entry_id for r in records] == [0]
    assert found.torn


def test_a_length_that_jumps_past_the_end_is_torn(tmp_path: Path) -> None:
    """SEC-38, JH-5."""
    found, records = scan(write_log(tmp_path / "0.log", record(E0) + b"\x10\0\0\0" + record(E1)))
    assert len(records) == 1
    assert found.torn


def test_a_map_offset_behind_the_file_is_torn(tmp_path: Path) -> None:
    """SEC-38."""
    header = bytearray(fmt.new_header())
    header[8:20] = fmt.seal_fields(5000, 1)
    found, records = scan(write_log(tmp_path / "0.log", record(E0), bytes(header)))
    assert len(records) == 1
    assert found.torn
    with pytest.raises(CorruptStorageError):
        found.ledgers_map()


def direct_header(map_offset: int = 0, ledgers: int = 0) -> bytes:
    """The header block of Java's direct-I/O writer (spec bookie-storage §14.4)."""
    head = bytearray(fmt.new_header())
    head[8:20] = fmt.seal_fields(map_offset, ledgers)
    return (bytes(head) + bytes.fromhex("00000bfcffffffffffffffff")).ljust(4096, b"\0")


def padded(data: bytes) -> bytes:
    return data + b"\xf0" * (-len(data) % 4096)


def test_scan_steps_over_the_padding_of_direct_io_logs(tmp_path: Path) -> None:
    """R9."""
    first = padded(record(entry(1, 0)) + record(entry(1, 1)))
    second = padded(record(entry(2, 0, 4092 - 36 - 3)))  # three bytes of padding
    third = record(entry(3, 0))
    data = first + second + padded(third) + bytes(3 << 20)
    found, records = scan(write_log(tmp_path / "5.log", data, direct_header()), 5)
    assert [(r.ledger_id, r.entry_id) for r in records] == [(1, 0), (1, 1), (2, 0), (3, 0)]
    assert records[0].location == fmt.location_of(5, 4100)
    assert records[2].location == fmt.location_of(5, 4100 + 4096)
    assert not found.torn


def test_sealed_direct_io_log_with_zeros_behind_its_map(tmp_path: Path) -> None:
    records_part = padded(record(entry(1, 0)))
    ledgers_map = padded(fmt.encode_ledgers_map({1: 60}))
    header = direct_header(4096 + len(records_part), 1)
    path = write_log(tmp_path / "0.log", records_part + ledgers_map + bytes(1 << 20), header)
    with FILES.open(str(path)) as file:
        found = LogScan(file, 0)
        assert found.ledgers_map() == {1: 60}
        assert len(list(found.records())) == 1
        assert not found.torn


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_any_bytes_scan_without_an_exception(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """SEC-38."""
    _, records = scan(write_log(tmp_path_factory.mktemp("log") / "0.log", data))
    for r in records:
        assert r.size >= fmt.MIN_ENTRY_SIZE
        assert fmt.offset_of(r.location) + r.size <= fmt.HEADER_SIZE + len(data)
