"""Garbage collection: which logs are deleted, what is moved, and above all what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.file_names import log_name
from bookkeeper.bookie.storage.compaction import finish_compactions, measure
from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.bookie.storage.entry_log.writer import EntryLogWriter, last_log_id
from bookkeeper.bookie.storage.garbage import GarbageCollector
from bookkeeper.bookie.storage.index.locations import LocationIndex
from bookkeeper.runtime.disk.files import RealFiles
from bookkeeper.runtime.real import RealRuntime
from tests.support.storage import KEY, StorageMachine, add, configuration, entry, located, opened, record

from .test_ledger_collector import ClockRuntime

LOGS = 20_000
"""Size of a log in these tests."""


# --- logs ---


def logs(directory: Path) -> list[int]:
    return sorted(int(path.stem, 16) for path in (directory / "d0" / "current").glob("*.log"))


def collector(storage: DbLedgerStorage, directory: Path, **settings: Any) -> GarbageCollector:
    settings = {"compactionRate": 0, "minorCompactionInterval": 3600, **settings}
    return GarbageCollector(storage._runtime, configuration(directory, **settings), storage.directories, None)


async def collect(storage: DbLedgerStorage, directory: Path, **settings: Any) -> None:
    """A forced pass."""
    garbage = collector(storage, directory, **settings)
    garbage.force()
    try:
        await garbage.collect()
    finally:
        await garbage.close()


async def check(storage: DbLedgerStorage, ledger_id: int, ids: range, size: int = 100) -> None:
    assert list(await storage.list_entries(ledger_id)) == list(ids)
    for entry_id in ids:
        assert await storage.read_entry(ledger_id, entry_id) == entry(ledger_id, entry_id, size)


async def fill(storage: DbLedgerStorage, ledgers: range, count: int = 100) -> None:
    for ledger_id in ledgers:
        await add(storage, ledger_id, range(count), size=100)
    await storage.flush()


async def test_a_pass_flushes_only_what_it_needs(tmp_path: Path) -> None:
    """Nothing, as long as no ledger was deleted: what was added since the last flush is in no closed log."""
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(5))
        await add(storage, 6, range(10), size=100)
        (directory,) = storage.directories
        assert directory.dirty
        assert not directory.has_deleted
        await collect(storage, tmp_path)
        assert directory.dirty
        storage.delete_ledger(1)
        assert directory.has_deleted
        await collect(storage, tmp_path)
        assert not directory.dirty
        assert not directory.has_deleted
        await check(storage, 6, range(10))


async def test_logs_of_deleted_ledgers_are_deleted(tmp_path: Path) -> None:
    """LV-8."""
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(5))
        before = logs(tmp_path)
        assert len(before) > 3
        await collect(storage, tmp_path)
        assert logs(tmp_path) == before
        for ledger_id in (0, 1, 2):
            storage.delete_ledger(ledger_id)
        await collect(storage, tmp_path, majorCompactionThreshold=0, minorCompactionThreshold=0)
        assert len(logs(tmp_path)) < len(before)
        for ledger_id in (3, 4):
            await check(storage, ledger_id, range(100))
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        for ledger_id in (3, 4):
            await check(storage, ledger_id, range(100))


async def test_a_log_that_this_process_wrote_is_deleted_without_being_read(tmp_path: Path) -> None:
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(2), 300)
        written = logs(tmp_path)[:-1]
        for log_id in written:  # nothing on the disk tells any more what was in the logs
            (tmp_path / "d0" / "current" / log_name(log_id)).write_bytes(b"damaged")
        garbage = collector(storage, tmp_path, majorCompactionThreshold=0, minorCompactionThreshold=0)
        await garbage.collect()
        assert logs(tmp_path)[:-1] == written
        storage.delete_ledger(0)
        await garbage.collect()
        await garbage.close()
        assert written[0] not in logs(tmp_path)
        assert written[-1] in logs(tmp_path)


async def test_a_log_of_an_earlier_process_is_not_deleted_unread(tmp_path: Path) -> None:
    """BI-13, FX-39."""
    path = await one_log(tmp_path)
    path.write_bytes(b"damaged")
    async with opened(tmp_path) as storage:
        for ledger_id in (0, 1):
            storage.delete_ledger(ledger_id)
        await collect(storage, tmp_path)
        assert path.exists()


async def test_compaction_moves_what_lives_and_deletes_the_log(tmp_path: Path) -> None:
    """BI-13."""
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        for part in range(10):  # every log has a part of every ledger
            for ledger_id in range(5):
                await add(storage, ledger_id, range(part * 10, part * 10 + 10), size=100)
            await storage.flush()
        before = logs(tmp_path)
        for ledger_id in (0, 1, 2, 3):
            storage.delete_ledger(ledger_id)
        await collect(storage, tmp_path, majorCompactionThreshold=0.5)
        assert not set(before[:-1]) & set(logs(tmp_path))
        await check(storage, 4, range(100))
        await storage.flush()
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await check(storage, 4, range(100))
        assert await storage.last_entry(4) == entry(4, 99, 100)


async def test_older_copies_of_rewritten_entries_are_not_moved(tmp_path: Path) -> None:
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(1), 300)
        storage.set_master_key(0, KEY)
        for entry_id in range(300):
            storage.add_entry(0, entry_id, entry(0, entry_id, 50, version=1))
        await storage.flush()
        await collect(storage, tmp_path, majorCompactionThreshold=0.99, useTargetEntryLogSizeForGc=True)
        for entry_id in range(300):
            assert await storage.read_entry(0, entry_id) == entry(0, entry_id, 50, version=1)


async def test_a_read_that_began_before_a_log_was_deleted_finds_the_entry(tmp_path: Path) -> None:
    """BI-25, FX-56."""
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(3))
        directory = storage.directories[0]
        [first, *_] = logs(tmp_path)
        looked_up = directory._locations.get(0, 0)
        assert fmt.log_of(looked_up) == first
        stale = iter([looked_up])
        directory._locations.get = lambda *key: (
            next(stale, None)
            or LocationIndex.get(  # type: ignore[method-assign]
                directory._locations, *key
            )
        )
        mover = directory.mover(first)
        while batch := mover.next_batch():
            await directory.rewrite(batch)
        await directory.remove_log(first, directory.index_generation)
        assert await storage.read_entry(0, 0) == entry(0, 0, 100)


async def test_compaction_stops_for_a_suspension_and_the_rate(tmp_path: Path) -> None:
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(4))
        before = logs(tmp_path)
        for ledger_id in (0, 1):
            storage.delete_ledger(ledger_id)
        garbage = collector(storage, tmp_path, majorCompactionThreshold=0.99)
        garbage.suspend(minor=True, major=True)
        garbage.force()
        await garbage.collect()
        await garbage.close()
        assert before[-2] in logs(tmp_path)
        await check(storage, 3, range(100))


# --- doubt keeps a log ---


async def one_log(tmp_path: Path) -> Path:
    """A directory with a closed log of ledgers 0 and 1; returns the log's path."""
    async with opened(tmp_path) as storage:
        await fill(storage, range(2), 10)
    return tmp_path / "d0" / "current" / "0.log"


async def test_a_log_with_a_damaged_record_and_live_entries_behind_it_is_kept(tmp_path: Path) -> None:
    """LV-8, BI-13, JH-5, SEC-38."""
    path = await one_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[0x400:0x404] = b"\x7f\xff\xff\xff"  # the first record claims the rest of the log
    path.write_bytes(data)
    async with opened(tmp_path) as storage:
        storage.delete_ledger(0)
        await collect(storage, tmp_path, majorCompactionThreshold=0.99)
        assert path.exists()
        await check(storage, 1, range(10))


async def test_a_ledgers_map_that_lies_deletes_nothing(tmp_path: Path) -> None:
    """BI-13, FX-39."""
    path = await one_log(tmp_path)
    data = bytearray(path.read_bytes())
    place = int.from_bytes(data[8:16], "big") + 24
    for i in range(2):
        data[place + 16 * i : place + 16 * i + 8] = (77 + i).to_bytes(8, "big")  # other ledgers, right sizes
    path.write_bytes(data)
    async with opened(tmp_path) as storage:
        await collect(storage, tmp_path, majorCompactionThreshold=0, minorCompactionThreshold=0)
        assert path.exists()
        await collect(storage, tmp_path)  # compacts it: what lives is moved first
        for ledger_id in (0, 1):
            await check(storage, ledger_id, range(10))


async def test_a_log_cut_off_in_front_of_live_entries_is_kept(tmp_path: Path) -> None:
    """BI-13, JH-5."""
    path = await one_log(tmp_path)
    one = len(record(entry(0, 0, 100)))
    data = bytearray(path.read_bytes()[: 0x400 + 10 * one])  # all of ledger 0, nothing of ledger 1
    data[8:20] = bytes(12)
    path.write_bytes(data)
    async with opened(tmp_path) as storage:
        storage.delete_ledger(0)
        await collect(storage, tmp_path)
        assert path.exists()  # the index says that there was more


async def test_a_file_that_is_no_log_is_kept(tmp_path: Path) -> None:
    """FX-39."""
    path = await one_log(tmp_path)
    (path.parent / "5.log").write_bytes(b"BKLE" + bytes(2000))
    async with opened(tmp_path) as storage:
        await collect(storage, tmp_path)
    assert (path.parent / "5.log").exists()


async def test_a_damaged_log_does_not_keep_others_from_being_collected(tmp_path: Path) -> None:
    """FX-40, LV-8."""
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(5))
    first, *others = logs(tmp_path)[:-1]
    path = tmp_path / "d0" / "current" / log_name(first)
    data = bytearray(path.read_bytes())
    data[0x400:0x404] = b"\x7f\xff\xff\xff"  # the first record claims 2 GB
    data[8:20] = bytes(12)  # and there is no map
    path.write_bytes(data)
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        for ledger_id in range(4):
            storage.delete_ledger(ledger_id)
        await collect(storage, tmp_path, majorCompactionThreshold=0.99)
        assert others
        assert not set(others) & set(logs(tmp_path))
        await check(storage, 4, range(100))


async def test_empty_logs_and_torn_logs_of_a_crash_are_cleared_away(tmp_path: Path) -> None:
    path = await one_log(tmp_path)
    (path.parent / "7.log").touch()
    (path.parent / "8.log").write_bytes(fmt.new_header() + record(entry(0, 3, 100)) + record(entry(0, 4, 100))[:-9])
    async with opened(tmp_path) as storage:
        await collect(storage, tmp_path, majorCompactionThreshold=0.99, minorCompactionThreshold=0.98)
        assert logs(tmp_path) == [0, 8]  # as many live bytes as there are, as far as is known
        storage.delete_ledger(0)
        await collect(storage, tmp_path)
        assert 8 not in logs(tmp_path)
        await check(storage, 1, range(10))


# --- measuring ---


def test_sizes_of_a_log_from_its_map_or_by_scan(tmp_path: Path) -> None:
    files = RealFiles()
    writer = EntryLogWriter(files, str(tmp_path), 1 << 30)
    writer.append(1, [entry(1, i) for i in range(3)])
    writer.append(2, [entry(2, 0)])
    writer.sync()
    one = len(record(entry(1, 0)))
    path = str(tmp_path / "0.log")
    assert measure(files, path, 0, lambda: None) == {1: 3 * one, 2: one}
    writer.close()
    assert measure(files, path, 0, lambda: None) == {1: 3 * one, 2: one}


# --- compactions that a Java bookie left behind ---


def test_unfinished_compactions_are_brought_to_their_end(tmp_path: Path) -> None:
    """Defect A5."""
    runtime = RealRuntime()
    source = EntryLogWriter(runtime.files, str(tmp_path), 1 << 30)
    locations = LocationIndex(runtime.open_key_value(str(tmp_path / "db"), {}))
    places = source.append(1, [entry(1, i) for i in range(3)])
    source.close()
    elsewhere = fmt.location_of(9, 0x404)
    places[2] = elsewhere  # written again since
    locations.write([], located((1, range(3), places)), lambda: None)
    (tmp_path / "a.log.0.compacted").write_bytes((tmp_path / "0.log").read_bytes())
    (tmp_path / "b.log.compacting").write_bytes(b"half")
    assert last_log_id(runtime.files, str(tmp_path)) == 11
    finish_compactions(runtime.files, str(tmp_path), locations, lambda: None)
    assert sorted(path.name for path in tmp_path.glob("*.log*")) == ["0.log", "a.log"]
    assert [fmt.log_of(locations.get(1, i)) for i in range(3)] == [10, 10, 9]
    finish_compactions(runtime.files, str(tmp_path), locations, lambda: None)


# --- crashes ---


def test_a_crash_at_any_step_of_a_compaction_loses_nothing() -> None:
    """BI-13, FX-37."""

    async def prepare(storage: DbLedgerStorage) -> None:
        for part in range(6):
            for ledger_id in range(3):
                storage.set_master_key(ledger_id, KEY)
                for entry_id in range(part * 10, part * 10 + 10):
                    storage.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, 50))
            await storage.flush()

    async def compact(storage: DbLedgerStorage) -> bool:
        storage.delete_ledger(0)
        storage.delete_ledger(1)
        settings = configuration(Path("/storage"), compactionRate=0, majorCompactionThreshold=0.9, logSizeLimit=4096)
        garbage = GarbageCollector(storage._runtime, settings, storage.directories, None)
        garbage.force()
        await garbage.collect()
        await garbage.close()
        return True

    async def verify(storage: DbLedgerStorage) -> None:
        await check(storage, 2, range(60), 50)
        storage.add_entry(2, 60, entry(2, 60, 50))
        await storage.flush()
        await check(storage, 2, range(61), 50)

    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        with StorageMachine(crash_at, logSizeLimit=4096) as machine:
            machine.run(prepare)
            machine.disk.faults.crash_after_calls = crash_at
            finished = bool(machine.run(compact))
            machine.disk.faults.crash_after_calls = None
            machine.run(verify)
    assert crash_at > 50


async def test_the_background_loop_collects_by_itself(tmp_path: Path) -> None:
    settings = configuration(tmp_path, gcWaitTime=10, logSizeLimit=LOGS)
    storage = DbLedgerStorage(RealRuntime(), settings)
    await storage.open()
    await fill(storage, range(5))
    for ledger_id in (0, 1):
        storage.delete_ledger(ledger_id)
    before = logs(tmp_path)
    storage.start()
    while logs(tmp_path)[0] == before[0]:
        await storage.flush()
    assert storage.garbage_collector is not None
    await storage.close()


# --- failures ---


class Ledgers:
    """Stands for a ledger collector: counts its passes, and fails the first with what it is given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.passes = 0
        self.second = asyncio.Event()

    async def collect(self) -> None:
        self.passes += 1
        if self.passes == 2:
            self.second.set()
        if self.error is not None:
            error, self.error = self.error, None
            raise error


async def test_no_exception_ends_garbage_collection(tmp_path: Path) -> None:
    """LV-8."""
    async with opened(tmp_path) as storage:
        ledgers = Ledgers(KeyError("a fault of a driver"))
        garbage = GarbageCollector(
            RealRuntime(),
            configuration(tmp_path, gcWaitTime=3_600_000),
            storage.directories,
            ledgers,  # type: ignore[arg-type]
        )
        garbage.start()
        garbage.force()
        while garbage.forced:
            await asyncio.sleep(0)
        garbage.force()
        async with asyncio.timeout(30):
            await ledgers.second.wait()
        await garbage.close()


async def test_ledgers_are_collected_while_a_compaction_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(10))
        for ledger_id in range(0, 10, 2):
            storage.delete_ledger(ledger_id)
        runtime = ClockRuntime()
        ledgers = Ledgers()
        settings = configuration(tmp_path, compactionRate=0, majorCompactionThreshold=0.99, gcWaitTime=1000)
        garbage = GarbageCollector(runtime, settings, storage.directories, ledgers)  # type: ignore[arg-type]
        directory = storage.directories[0]
        mover = directory.mover

        def slow_mover(log_id: int) -> Any:
            runtime.ahead += 2
            return mover(log_id)

        directory.mover = slow_mover  # type: ignore[method-assign]
        garbage.force()
        await garbage.collect()
        await garbage.close()
        assert ledgers.passes > 3
        for ledger_id in range(1, 10, 2):
            await check(storage, ledger_id, range(100))


async def test_what_logs_hold_is_remembered_up_to_a_limit_and_read_again_beyond_it(tmp_path: Path) -> None:
    async with opened(tmp_path, logSizeLimit=LOGS) as storage:
        await fill(storage, range(20))
        garbage = collector(
            storage,
            tmp_path,
            gcEntryLogMetadataCacheMaxLedgers=4,
            minorCompactionThreshold=0,
            majorCompactionThreshold=0,
        )
        for _ in range(2):
            await garbage.collect()
            uses = garbage._uses[0]
            assert len(uses) > 10
            assert sum(len(use.ledgers or ()) for use in uses.values()) <= 4
            assert all(use.living == use.total > 0 for use in uses.values())
        before = logs(tmp_path)
        for ledger_id in range(10):
            storage.delete_ledger(ledger_id)
        await garbage.collect()
        await garbage.close()
        assert len(logs(tmp_path)) < len(before) - 5


def test_a_full_disk_is_freed_of_the_logs_of_deleted_ledgers() -> None:
    async def scene(storage: DbLedgerStorage) -> None:
        for ledger_id in range(4):
            storage.set_master_key(ledger_id, KEY)
            for entry_id in range(100):
                storage.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, 100))
            await storage.flush()
        before = await storage.directories[0].closed_logs()
        machine.disk.faults.full = True
        storage.add_entry(3, 100, entry(3, 100, 100))
        storage.delete_ledger(0)
        storage.delete_ledger(1)
        storage.directories[0]._reserve.release()
        machine.disk.given_back = 0  # somebody else took it
        with pytest.raises(OSError, match="No space"):
            await storage.flush()
        garbage = collector(storage, Path("/storage"), majorCompactionThreshold=0, minorCompactionThreshold=0)
        with pytest.raises(OSError, match="No space"):  # what was freed is less than is reserved for the index
            await garbage.collect()
        await garbage.close()
        after = await storage.directories[0].closed_logs()
        assert len(after) < len(before) - 4
        machine.disk.faults.full = False
        await storage.flush()
        await check(storage, 2, range(100))
        await check(storage, 3, range(101))

    with StorageMachine(5, logSizeLimit=4096) as machine:
        machine.run(scene)


def test_no_log_is_deleted_on_the_word_of_index_changes_that_were_lost() -> None:
    """The moves of a compaction find no space: they are seen, but were never durable. BI-13, FX-37."""

    async def scene(storage: DbLedgerStorage) -> None:
        storage.set_master_key(1, KEY)
        for entry_id in range(100):
            storage.add_entry(1, entry_id, entry(1, entry_id, 100))
            if entry_id % 10 == 9:
                await storage.flush()
        store: Any = storage.directories[0]._locations._store
        sync = store._sync

        def no_space() -> None:
            store._no_space = True
            raise OSError(errno.ENOSPC, "No space left on device")

        store._sync = no_space
        garbage = collector(storage, Path("/storage"))
        directory = storage.directories[0]
        for log_id in await directory.closed_logs():
            with pytest.raises(OSError, match="No space"):
                await garbage._compact(0, directory, log_id)
        store._sync = sync
        for log_id in await directory.closed_logs():
            with contextlib.suppress(OSError):
                await garbage._prove_and_delete(0, directory, log_id)
        await garbage.close()
        await check(storage, 1, range(100))

    with StorageMachine(7, logSizeLimit=4096) as machine:
        machine.run(scene, close=False)
        machine.machine.power_off()
        machine.run(lambda storage: check(storage, 1, range(100)))
