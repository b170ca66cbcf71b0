"""The RocksDB store: what a crash, damage and a full disk do to it, and that its calls leave the interpreter free."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import CorruptStorageError
from bookkeeper.runtime.disk.files import RealFiles
from bookkeeper.runtime.rocks import RocksStore
from bookkeeper.runtime.rocks_wal import FILE_NAME
from tests.support.waiting import wait_until


def opened(path: Path, **choices: Any) -> RocksStore:
    return RocksStore(str(path), choices, RealFiles())


def put(store: RocksStore, numbers: range, *, sync: bool = True) -> None:
    batch = store.batch()
    for number in numbers:
        batch.put(b"%08d" % number, b"%d" % number)
    store.write(batch, sync=sync)


def numbers(store: RocksStore) -> list[int]:
    return [int(value) for _, value in store.iterate(b"", b"~")]


def crashed(path: Path, image: Path, *, size: int = 10, unsynced: bool = False) -> Path:
    """What a power loss may leave of a store with three synced batches; its write-ahead log."""
    store = opened(path)
    for number in range(3):
        put(store, range(number * size, number * size + size))
    if unsynced:
        put(store, range(1000, 3000), sync=False)
        store._db.flush_wal(False)  # type: ignore[union-attr]
    image.mkdir()
    for file in path.iterdir():
        (image / file.name).write_bytes(file.read_bytes())
    store.close()
    (wal,) = image.glob("*.log")
    return wal


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


# --- damage and torn ends ---


def test_every_flipped_bit_in_what_was_synced_is_found(tmp_path: Path) -> None:
    """BI-22, DF-9."""
    wal = crashed(tmp_path / "db", tmp_path / "image")
    whole = wal.read_bytes()
    for bit in range(0, len(whole) * 8, 13):
        flip(wal, bit)
        with pytest.raises(CorruptStorageError, match="damaged at byte"):
            opened(tmp_path / "image")
        wal.write_bytes(whole)
    assert numbers(opened(tmp_path / "image")) == list(range(30))


@pytest.mark.parametrize("tail", [b"", b"\0" * 5000, b"torn", b"\xff" * 40000])
def test_what_was_not_synced_may_be_torn_in_any_way(tmp_path: Path, tail: bytes) -> None:
    wal = crashed(tmp_path / "db", tmp_path / "image")
    wal.write_bytes(wal.read_bytes() + tail)
    assert numbers(opened(tmp_path / "image")) == list(range(30))


def test_damage_behind_what_was_synced_takes_only_what_follows_it(tmp_path: Path) -> None:
    wal = crashed(tmp_path / "db", tmp_path / "image", unsynced=True)
    flip(wal, wal.stat().st_size * 8 - 30_000)
    found = numbers(opened(tmp_path / "image"))
    assert found[:30] == list(range(30))


def test_a_log_that_is_shorter_than_what_was_synced_is_damaged(tmp_path: Path) -> None:
    wal = crashed(tmp_path / "db", tmp_path / "image")
    wal.write_bytes(wal.read_bytes()[:-1])
    with pytest.raises(CorruptStorageError):
        opened(tmp_path / "image")


def test_large_logs_of_many_blocks_are_checked_to_their_end(tmp_path: Path) -> None:
    wal = crashed(tmp_path / "db", tmp_path / "image", size=3000)
    assert wal.stat().st_size > 3 * 32768
    assert len(numbers(opened(tmp_path / "image"))) == 9000


def test_a_torn_note_leaves_the_one_before_it(tmp_path: Path) -> None:
    wal = crashed(tmp_path / "db", tmp_path / "image")
    notes = tmp_path / "image" / FILE_NAME
    data = notes.read_bytes()
    newest = max(range(2), key=lambda slot: data[slot * 512 + 4 : slot * 512 + 12])
    notes.write_bytes(data[: newest * 512] + b"torn" + data[newest * 512 + 4 :])
    flip(wal, 100)
    with pytest.raises(CorruptStorageError):  # the first batch was synced by that note too
        opened(tmp_path / "image")


def test_logs_of_another_writer_may_have_a_torn_end_but_no_damage(tmp_path: Path) -> None:
    wal = crashed(tmp_path / "db", tmp_path / "image")
    (tmp_path / "image" / FILE_NAME).unlink()
    whole = wal.read_bytes()
    flip(wal, 500)
    with pytest.raises(CorruptStorageError):
        opened(tmp_path / "image")
    wal.write_bytes(whole[:-3])
    assert numbers(opened(tmp_path / "image")) == list(range(20))


def test_a_store_that_was_closed_needs_no_log(tmp_path: Path) -> None:
    for start in range(0, 50, 10):
        store = opened(tmp_path)
        put(store, range(start, start + 10), sync=False)
        assert numbers(store) == list(range(start + 10))
        store.close()
        store.close()


# --- the interpreter lock ---


class Watched:
    """A database that tells what it is asked."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self.calls: list[tuple[str, Any]] = []
        self.fail: Callable[[str], None] = lambda _: None

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments[0] if arguments else None))
            self.fail(name)
            return getattr(self._db, name)(*arguments)

        return call


def watch(store: RocksStore) -> Watched:
    watched = Watched(store._db)
    store._db = watched  # type: ignore[assignment]
    return watched


def test_lookups_are_those_of_lists_which_let_the_interpreter_go(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, range(10))
    watched = watch(store)
    assert store.get(b"00000003") == b"3"
    assert store.get(b"00000011") is None
    assert store.get_many([b"00000003", b"x"]) == [b"3", None]
    assert all(name == "get" and isinstance(argument, list) for name, argument in watched.calls)


def test_a_write_goes_to_memory_and_the_sync_to_the_disk(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (wal,) = tmp_path.glob("*.log")
    for start in range(0, 5000, 500):
        put(store, range(start, start + 500), sync=False)
        assert wal.stat().st_size == 0
    store.write(store.batch(), sync=True)
    assert wal.stat().st_size > 5000 * 10


def test_a_memory_table_is_handed_over_before_a_write_finds_it_full(tmp_path: Path) -> None:
    store = opened(tmp_path, write_buffer=4 << 20)
    watched = watch(store)
    for start in range(0, 300_000, 500):
        put(store, range(start, start + 500), sync=False)
    flushes = [name for name, _ in watched.calls].count("flush")
    assert 2 <= flushes <= 6
    assert not list(tmp_path.glob("*.log"))[flushes + 1 :]
    store.write(store.batch(), sync=True)
    assert len(numbers(store)) == 300_000


def test_tables_are_merged_when_there_are_as_many_as_is_said(tmp_path: Path) -> None:
    """`dbStorage_rocksDB_numFilesInLevel0`."""

    def fill(name: str, level0_files: int) -> RocksStore:
        store = opened(tmp_path / name, level0_files=level0_files)
        for start in range(8):
            put(store, range(start, 100, 8))
            store._db.flush()  # type: ignore[union-attr]
        return store

    def in_level0(store: RocksStore) -> int:
        return sum(file["level"] == 0 for file in store._db.live_files())  # type: ignore[union-attr]

    many = fill("many", 9)
    assert in_level0(many) == 8
    few = fill("few", 2)
    wait_until(lambda: in_level0(few) < 2, "tables are merged", 60)
    assert numbers(many) == numbers(few) == [*range(100)]
    many.close()
    few.close()


# --- no space ---


def no_space(name: str) -> None:
    if name == "flush_wal":
        raise Exception("IO error: No space left on device: While appending to file")


def test_after_a_write_without_space_the_next_one_finds_what_was_synced(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, range(10))
    watched = watch(store)
    watched.fail = no_space
    with pytest.raises(OSError, match="No space") as failure:
        put(store, range(10, 20))
    assert failure.value.errno == errno.ENOSPC
    assert store.get(b"00000003") == b"3"
    put(store, range(20, 30))
    expected = [*range(10), *range(20, 30)]  # the others may be there or not
    assert [number for number in numbers(store) if not 10 <= number < 20] == expected
    store.close()
    assert [number for number in numbers(opened(tmp_path)) if not 10 <= number < 20] == expected


def test_a_store_that_found_no_space_can_be_closed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, range(10))
    watch(store).fail = no_space
    with pytest.raises(OSError, match="No space"):
        put(store, range(10, 20))
    store.close()
    assert numbers(opened(tmp_path))[:10] == list(range(10))


def test_opening_leaves_nothing_in_the_folder_for_temporary_files_and_needs_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for name in ("one", "two"):
        store = opened(tmp_path / name)
        assert not [*temporary.iterdir()]
        put(store, range(3))
        assert numbers(store) == [0, 1, 2]
        store.close()
