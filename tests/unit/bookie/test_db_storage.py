"""The database storage as the bookie sees it, on real files and a real RocksDB."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bookkeeper.bookie.file_names import log_name
from bookkeeper.bookie.storage import directory_jobs as jobs
from bookkeeper.bookie.storage.db_storage import DbLedgerStorage, directory_options, memory_budget
from bookkeeper.bookie.storage.write_cache import LedgerBuffer
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import (
    ConfigurationError,
    CorruptStorageError,
    LimboError,
    NoEntryError,
    NoLedgerError,
    UnauthorizedAccessError,
)
from bookkeeper.runtime import File
from bookkeeper.runtime.disk.files import RealFiles
from bookkeeper.runtime.real import RealRuntime
from tests.support import golden
from tests.support.storage import KEY, StorageMachine, add, check, configuration, entry, opened, record

# --- what Java wrote ---


@pytest.mark.parametrize("bookie", golden.BOOKIES)
async def test_every_entry_that_java_flushed_is_read(tmp_path: Path, bookie: str) -> None:
    root = golden.unpack(tmp_path) / bookie
    settings = ServerConfiguration(ledgerDirectories=[str(root / "ledgers")])
    storage = DbLedgerStorage(RealRuntime(), settings)
    await storage.open()
    flushed = [g for g in golden.ledgers() if g.flushed and g.entries]
    assert storage.ledgers() == sorted(g.ledger for g in flushed)
    for g in flushed:
        ids = await storage.list_entries(g.ledger)
        digest = hashlib.sha256()
        for entry_id in ids:
            data = await storage.read_entry(g.ledger, entry_id)
            assert data[:16] == g.ledger.to_bytes(8, "big") + entry_id.to_bytes(8, "big")
            assert data.endswith(golden.payload(entry_id, g.size))
            digest.update(data[len(data) - g.size :])
        if g.write_quorum == g.ensemble:
            assert list(ids) == list(range(g.entries))
            assert digest.hexdigest() == g.sha256
        else:
            assert len(ids) == g.entries * g.write_quorum // g.ensemble
        assert (await storage.last_entry(g.ledger))[8:16] == ids[-1].to_bytes(8, "big")
        assert storage.is_fenced(g.ledger) == (g.ledger == 8)  # recovered by another client
        assert len(storage.master_key(g.ledger) or b"") == 20
    await storage.close()


async def test_adding_to_a_directory_of_java_leaves_its_logs_alone(tmp_path: Path) -> None:
    """R12."""
    root = golden.unpack(tmp_path) / "b1"
    current = root / "ledgers" / "current"
    before = {path.name: path.read_bytes() for path in current.glob("*.log")}
    settings = ServerConfiguration(ledgerDirectories=[str(root / "ledgers")])
    for _ in range(2):
        storage = DbLedgerStorage(RealRuntime(), settings)
        await storage.open()
        await add(storage, 77, range(100))
        await storage.flush()
        await check(storage, 77, 100)
        assert len(await storage.list_entries(0)) == 50
        await storage.close()
    assert {name: (current / name).read_bytes() for name in before} == before
    assert log_name(4) not in before
    assert (current / log_name(4)).exists()


# --- adding and reading ---


@pytest.mark.parametrize("directories", [1, 3])
async def test_entries_are_read_from_memory_from_the_log_and_after_a_restart(tmp_path: Path, directories: int) -> None:
    async with opened(tmp_path, directories) as storage:
        for ledger_id in range(6):
            await add(storage, ledger_id, range(300))
            await check(storage, ledger_id, 300)
        await storage.flush()
        for ledger_id in range(6):
            await check(storage, ledger_id, 300)
            await add(storage, ledger_id, range(300, 310))
    async with opened(tmp_path, directories) as storage:
        assert storage.ledgers() == list(range(6))
        for ledger_id in range(6):
            await check(storage, ledger_id, 310)
            assert await storage.last_entry(ledger_id) == entry(ledger_id, 309)
            assert list(await storage.list_entries(ledger_id)) == list(range(310))


async def test_a_ledger_lives_in_the_directory_of_its_modulus(tmp_path: Path) -> None:
    """R3."""
    async with opened(tmp_path, 3) as storage:
        await add(storage, 4, range(10))
    assert [len(list((tmp_path / f"d{i}" / "current").glob("*.log"))) for i in range(3)] == [0, 1, 0]


async def test_absence_is_told_by_kind(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        for read in (storage.read_entry(1, 0), storage.read_run(1, 0, 1, 1), storage.last_entry(1)):
            with pytest.raises(NoLedgerError):
                await read
        with pytest.raises(NoLedgerError):
            await storage.list_entries(1)
        storage.set_master_key(1, KEY)
        for read in (
            storage.read_entry(1, 0),
            storage.read_run(1, 0, 1, 1),
            storage.last_entry(1),
            storage.read_entry(1, -1),
        ):
            with pytest.raises(NoEntryError):
                await read
        assert list(await storage.list_entries(1)) == []
        await add(storage, 1, range(3))
        await storage.flush()
        with pytest.raises(NoEntryError):
            await storage.read_entry(1, 3)
        assert await storage.entry_exists(1, 2)
        assert not await storage.entry_exists(1, 3)
        assert not await storage.entry_exists(2, 3)


async def test_absence_in_limbo_is_unknown(tmp_path: Path) -> None:
    """BI-5."""
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(3))
        await storage.flush()
        storage.set_limbo(1, True)
        assert await storage.read_entry(1, 2) == entry(1, 2)
        assert await storage.entry_exists(1, 2)
        assert await storage.read_run(1, 0, 10, 1000) == b"".join(record(entry(1, i)) for i in range(3))
        for read in (
            storage.read_entry(1, 3),
            storage.read_run(1, 3, 1, 1),
            storage.last_entry(1),
            storage.read_entry(1, -1),
        ):
            with pytest.raises(LimboError):
                await read
        with pytest.raises(LimboError):
            await storage.entry_exists(1, 3)
        with pytest.raises(LimboError):
            await storage.list_entries(1)
        storage.set_limbo(1, False)
        assert await storage.last_entry(1) == entry(1, 2)


async def test_the_last_entry_is_the_greatest_wherever_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(10))
        await storage.flush()
        await add(storage, 1, [4])  # a recovery writes an earlier entry again
        assert await storage.last_entry(1) == entry(1, 9)
        assert await storage.read_entry(1, -1) == entry(1, 9)
        await add(storage, 1, [12])
        assert await storage.last_entry(1) == entry(1, 12)


async def test_a_rewritten_entry_replaces_the_cached_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(10))
        await storage.flush()
        assert await storage.read_entry(1, 5) == entry(1, 5)  # brings 6 to 9 too
        storage.add_entry(1, 6, entry(1, 6, version=1))
        assert await storage.read_entry(1, 6) == entry(1, 6, version=1)
        await storage.flush()
        assert await storage.read_entry(1, 6) == entry(1, 6, version=1)


async def test_concurrent_reads_in_order_share_one_read_of_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(90))
        await storage.flush()
        found = await asyncio.gather(*(storage.read_entry(1, i) for i in range(90)))
        assert found == [entry(1, i) for i in range(90)]


# --- batch reads ---


async def test_a_run_is_put_together_from_all_places(tmp_path: Path) -> None:
    async with opened(tmp_path, logSizeLimit=4000) as storage:
        await add(storage, 1, range(100))
        await storage.flush()
        await add(storage, 1, range(100, 150))
        await storage.flush()
        await add(storage, 1, range(150, 200))
        expected = [record(entry(1, i)) for i in range(200)]
        for first in (0, 10, 99, 100, 149, 150, 199):
            assert await storage.read_run(1, first, 1000, 1 << 20) == b"".join(expected[first:])
        assert await storage.read_run(1, 120, 60, 1 << 20) == b"".join(expected[120:180])


@pytest.mark.parametrize("read_before", [False, True])
async def test_a_run_has_the_newest_version_of_each_entry(tmp_path: Path, read_before: bool) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(10))
        await storage.flush()
        if read_before:
            await storage.read_entry(1, 0)  # all are in the read cache
        for entry_id in (3, 7):
            storage.add_entry(1, entry_id, entry(1, entry_id, version=1))  # repaired
        expected = [record(entry(1, i, version=int(i in (3, 7)))) for i in range(10)]
        for _ in range(2):
            for first in range(10):
                assert await storage.read_run(1, first, 100, 1 << 20) == b"".join(expected[first:])
            await storage.flush()


class CountingFiles(RealFiles):
    """Counts the bytes that are read from entry logs."""

    def __init__(self) -> None:
        self.read = 0

    def open(self, path: str, mode: str = "r") -> File:
        file = super().open(path, mode)
        if path.endswith(".log"):
            pread = file.pread

            def counted(size: int, offset: int) -> bytes:
                data = pread(size, offset)
                self.read += len(data)
                return data

            file.pread = counted  # type: ignore[method-assign]
        return file


async def test_reads_of_scattered_entries_bring_little_for_nothing(tmp_path: Path) -> None:
    runtime = RealRuntime()
    runtime.files = files = CountingFiles()
    async with opened(tmp_path, runtime=runtime, dbStorage_writeCacheMaxSizeMb=64) as storage:
        for entry_id in range(100):
            await add(storage, 1, [entry_id])
            await add(storage, 2, [entry_id], 300_000)
            await storage.flush()
        files.read = 0
        found = await storage.read_run(1, 0, 100, 5 << 20)
        count = len(found) // len(record(entry(1, 0)))
        assert 10 <= count <= 64
        assert files.read <= (count + 1) * (16 << 10) + 1024
        assert len(await storage.read_run(1, count, 100, 5 << 20, 2)) <= 2 * len(record(entry(1, 0)))
        files.read = 0
        for entry_id in range(count, 100):  # one after the other is no better
            assert await storage.read_entry(1, entry_id) == entry(1, entry_id)
        assert files.read <= (100 - count) * (16 << 10)


async def test_a_reader_that_jumps_gets_its_entry_alone_and_one_that_goes_on_gets_more(tmp_path: Path) -> None:
    runtime = RealRuntime()
    runtime.files = files = CountingFiles()
    async with opened(tmp_path, runtime=runtime, dbStorage_writeCacheMaxSizeMb=64) as storage:
        await add(storage, 1, range(3000), 1000)
        await storage.flush()
        files.read = 0
        for entry_id in range(1000, 3000, 100):
            assert await storage.read_entry(1, entry_id) == entry(1, entry_id, 1000)
        assert files.read <= 20 * (4 << 10) + 1024
        files.read = 0
        for entry_id in (*range(50), *range(500, 900, 3)):  # in order, and as one of three bookies is asked
            assert await storage.read_entry(1, entry_id) == entry(1, entry_id, 1000)
            if entry_id % 10 == 0:  # another reader, which jumps, does not take that away
                assert await storage.read_entry(1, 2999 - entry_id) == entry(1, 2999 - entry_id, 1000)
        assert files.read <= 2 * 1100 * 450 + 20 * (4 << 10)


@pytest.mark.parametrize("ids", [range(200, 260), range(0, 180, 3), range(0, 3000, 59), [7], [5, 5, 2999, 5]])
async def test_some_entries_are_found_wherever_they_are(tmp_path: Path, ids: Sequence[int]) -> None:
    async with opened(tmp_path, dbStorage_writeCacheMaxSizeMb=64) as storage:
        await add(storage, 1, range(3000), 1000)
        await storage.flush()
        await add(storage, 1, range(0, 3000, 20), 30)  # newer versions, in memory
        wanted = [entry(1, entry_id, 30 if entry_id % 20 == 0 else 1000) for entry_id in ids]
        for _ in range(2):  # from the logs, then from the read cache
            assert await storage.read_some(1, list(ids), 1 << 20) == wanted
        assert (await storage.read_some(1, list(ids), 1))[0] == wanted[0]
        await storage.flush()
        assert await storage.read_some(1, list(ids), 1 << 20) == wanted


async def test_some_entries_end_where_there_is_no_room_for_more(tmp_path: Path) -> None:
    async with opened(tmp_path, dbStorage_writeCacheMaxSizeMb=64) as storage:
        await add(storage, 1, range(100), 100_000)
        await storage.flush()
        for ids in (range(60), range(0, 100, 30), range(99, 0, -7)):
            for _ in range(2):
                found = await storage.read_some(1, list(ids), 250_000)
                assert 1 <= len(found) <= 8
                assert found == [entry(1, entry_id, 100_000) for entry_id in list(ids)[: len(found)]]


async def test_of_some_entries_each_has_its_own_error(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, [*range(50), *range(60, 70)])
        await storage.flush()
        for ids in ([48, 49, 50, 61], [0, 500, 64, 55], [1 << 62, 3, 40]):
            found = await storage.read_some(1, ids, 1 << 20)
            assert [type(each) for each in found] == [bytes if i < 50 or 60 <= i < 70 else NoEntryError for i in ids]
        with pytest.raises(NoLedgerError):
            await storage.read_some(2, [0, 100], 1 << 20)
        storage.set_limbo(1, True)
        assert isinstance((await storage.read_some(1, [0, 500], 1 << 20))[1], LimboError)
        storage.delete_ledger(1)
        with pytest.raises(NoLedgerError):
            await storage.read_some(1, [0, 500], 1 << 20)


async def test_a_damaged_entry_far_from_others_is_told_of(tmp_path: Path) -> None:
    async with opened(tmp_path, dbStorage_writeCacheMaxSizeMb=64) as storage:
        await add(storage, 1, range(300), 1000)
        await storage.flush()
    (log,) = (tmp_path / "d0" / "current").glob("*.log")
    raw = bytearray(log.read_bytes())
    at = raw.index(record(entry(1, 150, 1000)))
    raw[at + 12 : at + 20] = (151).to_bytes(8, "big")
    log.write_bytes(raw)
    heard: list[tuple[int, int]] = []
    async with opened(tmp_path, dbStorage_writeCacheMaxSizeMb=64) as storage:
        storage.set_damage_listener(lambda *what: heard.append(what))
        found = await storage.read_some(1, [30, 150, 270], 1 << 20)
        assert [type(each) for each in found] == [bytes, CorruptStorageError, bytes]
        with pytest.raises(CorruptStorageError):
            await storage.read_entry(1, 150)
    assert heard == [(1, 150), (1, 150)]


async def test_a_long_run_is_read_to_its_end(tmp_path: Path) -> None:
    runtime = RealRuntime()
    runtime.files = files = CountingFiles()
    async with opened(tmp_path, runtime=runtime, dbStorage_writeCacheMaxSizeMb=64) as storage:
        await add(storage, 1, range(1500), 1000)
        await storage.flush()
        files.read = 0
        whole = b"".join(record(entry(1, i, 1000)) for i in range(1500))
        assert await storage.read_run(1, 0, 2000, 5 << 20) == whole
        assert files.read < 2 * len(whole)


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_run_keeps_its_limits(tmp_path: Path, flushed: bool) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, [*range(50), *range(60, 70)])
        if flushed:
            await storage.flush()
        one = record(entry(1, 0))
        for _ in range(2):  # from the log, then from the read cache
            assert len(await storage.read_run(1, 0, 7, 1 << 20)) == 7 * len(one)
            assert len(await storage.read_run(1, 0, 1000, 5 * len(one))) == 5 * len(one)
            assert len(await storage.read_run(1, 0, 1000, 5 * len(one) + 1)) == 5 * len(one)
            assert await storage.read_run(1, 0, 1000, 1) == one
            assert len(await storage.read_run(1, 40, 1000, 1 << 20)) == 10 * len(one)  # a gap follows
        with pytest.raises(NoEntryError):
            await storage.read_run(1, 50, 1000, 1 << 20)


# --- ledger attributes ---


async def test_attributes_are_durable_without_any_entry(tmp_path: Path) -> None:
    """I8: Java skips them when its write cache is empty (defect A1). BI-6, JH-3, FX-32, gap G3."""
    storage = DbLedgerStorage(RealRuntime(), configuration(tmp_path))
    await storage.open()
    storage.set_master_key(1, KEY)
    assert storage.set_fenced(1)
    storage.set_explicit_lac(1, b"lac")
    storage.set_master_key(2, b"")
    storage.set_limbo(2, True)
    await storage.flush()
    images = tmp_path / "image"  # what a crash would leave
    copy_tree(tmp_path / "d0", images / "d0")
    await storage.close()
    async with opened(images) as after:
        assert after.is_fenced(1)
        assert not after.set_fenced(1)
        assert after.explicit_lac(1) == b"lac"
        assert after.master_key(1) == KEY
        assert after.is_limbo(2)
        assert not after.is_limbo(1)
        assert after.master_key(3) is None


def copy_tree(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and path.name != "LOCK":
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


async def test_another_master_key_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        storage.set_master_key(1, KEY)
        with pytest.raises(UnauthorizedAccessError):
            storage.set_master_key(1, b"other")
        with pytest.raises(NoLedgerError):
            storage.set_fenced(9)


async def test_state_flags_are_durable_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, 2) as storage:
        assert await storage.state_flags() == 0
        await storage.set_state_flags(1)
    async with opened(tmp_path, 2) as storage:
        assert await storage.state_flags() == 1
        assert storage.ledgers() == []


# --- deletion ---


async def test_a_deleted_ledger_is_gone_at_once_and_after_a_restart(tmp_path: Path) -> None:
    """I9."""
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(10))
        await add(storage, 2, range(10))
        await storage.flush()
        await storage.read_entry(1, 0)
        storage.delete_ledger(1)
        assert storage.ledgers() == [2]
        assert storage.cached_entry(1, 0) is None
        with pytest.raises(NoLedgerError):
            await storage.read_entry(1, 0)
        await storage.flush()
        await check(storage, 2, 10)
    async with opened(tmp_path) as storage:
        assert storage.ledgers() == [2]
        assert not await storage.entry_exists(1, 0)


async def test_a_ledger_created_again_shows_only_its_new_entries(tmp_path: Path) -> None:
    """Defect A8."""
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(10))
        await storage.flush()
        storage.delete_ledger(1)
        await add(storage, 1, [3])
        assert list(await storage.list_entries(1)) == [3]
        assert await storage.last_entry(1) == entry(1, 3)
        assert not await storage.entry_exists(1, 2)
        with pytest.raises(NoEntryError):
            await storage.read_entry(1, 2)
        await storage.flush()
        assert list(await storage.list_entries(1)) == [3]
        assert await storage.read_entry(1, 3) == entry(1, 3)
    async with opened(tmp_path) as storage:
        assert list(await storage.list_entries(1)) == [3]


@pytest.mark.parametrize("steps", range(12))
def test_a_ledger_deleted_in_the_middle_of_a_flush_leaves_nothing(steps: int) -> None:
    """At whatever moment of the flush: what it wrote of the ledger is dropped, what is added again afterwards stays.
    FX-42, defect A8."""

    async def scene(storage: DbLedgerStorage) -> None:
        await add(storage, 2, range(20))
        await storage.flush()
        await add(storage, 1, range(10))
        await add(storage, 2, range(10))  # once more: the flush has to look them up
        flush = asyncio.ensure_future(storage.flush())
        await asyncio.sleep(steps * 0.0005)
        storage.delete_ledger(1)
        await add(storage, 1, [20])
        assert list(await storage.list_entries(1)) == [20]
        await flush
        assert list(await storage.list_entries(1)) == [20]
        storage.delete_ledger(1)
        await storage.flush()
        assert [ledger for ledger, _, _ in storage.directories[0]._locations.all()] == [2] * 20
        await add(storage, 1, [21])
        await storage.flush()
        assert list(await storage.list_entries(1)) == [21]

    with StorageMachine(steps) as machine:
        machine.run(scene)


def test_a_cache_that_fills_up_during_a_flush_is_flushed_too() -> None:
    """I6."""

    async def scene(storage: DbLedgerStorage) -> None:
        for round_ in range(30):
            flush = asyncio.ensure_future(storage.flush())
            await add(storage, 1, range(round_ * 100, round_ * 100 + 100), size=10_000)
            await flush
        await storage.flush()
        assert list(await storage.list_entries(1)) == list(range(3000))

    with StorageMachine(5, dbStorage_writeCacheMaxSizeMb=1) as machine:
        machine.run(scene)


# --- room ---


async def test_a_full_cache_is_flushed_and_adds_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path, dbStorage_writeCacheMaxSizeMb=1) as storage:
        await add(storage, 1, range(3000), size=1000)
        assert list((tmp_path / "d0" / "current").glob("*.log"))  # flushed on its own
        await check(storage, 1, 3000, size=1000)


async def test_waiting_for_room_ends_with_its_time(tmp_path: Path) -> None:
    async with opened(tmp_path, dbStorage_writeCacheMaxSizeMb=1) as storage:
        big = entry(1, 0, 600_000)
        storage.set_master_key(1, KEY)
        for entry_id in range(2):
            assert storage.has_room(1, len(big), 1)
            storage.add_entry(1, entry_id, big)
        assert not storage.has_room(1, len(big), 1)  # one cache full, the other being flushed
        assert not await storage.wait_for_room(1, len(big), 1, 0)
        assert await storage.wait_for_room(1, len(big), 1, 30)


# --- opening ---


async def test_a_directory_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """SEC-51."""
    async with opened(tmp_path):
        with pytest.raises(OSError, match="lock"):
            async with opened(tmp_path):
                pass


def test_every_ledger_directory_needs_an_index_directory(tmp_path: Path) -> None:
    settings = ServerConfiguration(ledgerDirectories=["/a", "/b"], indexDirectories=["/i"])
    with pytest.raises(ConfigurationError, match="indexDirectories"):
        DbLedgerStorage(RealRuntime(), settings)


async def test_closing_twice_is_fine(tmp_path: Path) -> None:
    storage = DbLedgerStorage(RealRuntime(), configuration(tmp_path))
    await storage.open()
    await storage.close()
    await storage.close()


def test_caches_are_shares_of_the_budget() -> None:
    settings = ServerConfiguration(directMemoryBudgetMb=1024)
    budget = memory_budget(RealRuntime(), settings)
    assert budget == 1 << 30
    options = directory_options(settings, budget, 2)
    assert options.write_cache == options.read_cache == 128 << 20
    assert options.locations["block_cache"] == budget // 20
    with pytest.raises(ConfigurationError, match="directMemoryBudgetMb"):
        directory_options(ServerConfiguration(directMemoryBudgetMb=100, dbStorage_writeCacheMaxSizeMb=99), 100 << 20, 1)


async def test_a_list_has_the_entries_of_all_places_once_and_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, [*range(0, 60, 2), 100, 90])
        await storage.flush()
        await add(storage, 1, [7, 3, 8, 9, 10, 200, 150, 100])
        expected = sorted({*range(0, 60, 2), 100, 90, 7, 3, 8, 9, 10, 200, 150})
        assert list(await storage.list_entries(1)) == expected
        await storage.flush()
        assert list(await storage.list_entries(1)) == expected
        await add(storage, 1, range(300, 310))
        lists = await asyncio.gather(*(storage.list_entries(1) for _ in range(5)))
        assert all(list(found) == [*expected, *range(300, 310)] for found in lists)


# --- the ends of the number range ---


async def test_the_greatest_entry_id_is_an_entry_id(tmp_path: Path) -> None:
    """SEC-11."""
    last = 2**63 - 1
    async with opened(tmp_path) as storage:
        await add(storage, 1, [0, last])
        for _ in range(2):
            assert await storage.last_entry(1) == entry(1, last)
            assert await storage.read_run(1, last, 10, 1000) == record(entry(1, last))
            assert list(await storage.list_entries(1)) == [0, last]
            await storage.flush()
    async with opened(tmp_path) as storage:
        assert await storage.last_entry(1) == entry(1, last)
        storage.delete_ledger(1)
        await storage.flush()
        await add(storage, 1, [3])
        await storage.flush()
        assert list(await storage.list_entries(1)) == [3]


async def test_lists_of_a_cache_soon_count_as_old(tmp_path: Path) -> None:
    """Else each collection looks through the whole cache that is being filled: the first one, those that follow, and
    where a ledger is begun later."""
    async with opened(tmp_path) as storage:
        caches = storage.directories[0].caches
        for ledger_id, swaps in ((1, False), (1, True), (2, False)):
            if swaps:
                caches.swap()
            await add(storage, ledger_id, range(10))
            run = caches.active.ledgers[ledger_id].run
            async with asyncio.timeout(10):
                while not any(one is run for one in gc.get_objects(generation=2)):
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("ledgers", [3, 1500])
async def test_what_was_flushed_is_freed_by_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledgers: int
) -> None:
    """Not by the loop, which a cache of thousands of ledgers would stop: nobody else holds a buffer any more."""
    seen: list[int] = []

    def release(buffers: list[tuple[int, LedgerBuffer]], give_way: Callable[[], None]) -> None:
        gc.collect()
        seen.extend(len(gc.get_referrers(pair)) + len(gc.get_referrers(pair[1])) for pair in buffers[:20])
        real_release(buffers, give_way)

    real_release = jobs.release
    monkeypatch.setattr(jobs, "release", release)
    async with opened(tmp_path) as storage:
        for ledger_id in range(ledgers):
            await add(storage, ledger_id, range(2))
        await storage.flush()
        await check(storage, ledgers - 1, 2)
    assert seen == [3] * min(ledgers, 20)  # the list and this test have the pair, the pair has the buffer


async def test_a_deleted_ledgers_entries_are_freed_by_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With those of the flush: a large one takes its time."""
    freed: dict[int, int] = {}

    def release(buffers: list[tuple[int, LedgerBuffer]], give_way: Callable[[], None]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        freed.update((ledger_id, len(buffer)) for ledger_id, buffer in buffers)
        real_release(buffers, give_way)

    real_release = jobs.release
    monkeypatch.setattr(jobs, "release", release)
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(100))
        await add(storage, 2, range(5))
        storage.delete_ledger(1)
        assert freed == {}
        await storage.flush()
        assert freed == {1: 100, 2: 5}
        storage.directories[0].caches.swap()
        await add(storage, 3, range(50))
        storage.delete_ledger(3)  # nothing else is to be written
        await storage.flush()
        assert freed[3] == 50
