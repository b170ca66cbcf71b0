"""The database storage on damaged files: what it finds, what it builds anew, and where it refuses to start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.errors import CorruptStorageError
from tests.support.storage import add, check, entry, opened, record


async def test_a_damaged_log_is_reported_never_taken_for_absence(tmp_path: Path) -> None:
    """BI-5, BI-10, BI-16, BI-22, FX-14."""
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(5))
    path = tmp_path / "d0" / "current" / "0.log"
    good = path.read_bytes()
    one = len(record(entry(1, 0)))
    for place in range(0x400, 0x400 + one):
        damaged = bytearray(good)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        async with opened(tmp_path) as storage:
            try:
                found = await storage.read_entry(1, 0)
            except CorruptStorageError:
                assert place < 0x414
            else:  # the entry's own digest tells its reader
                assert found[:16] == entry(1, 0)[:16]
                assert place == 0x403 or place >= 0x414
            assert await storage.read_entry(1, 4) == entry(1, 4)


async def test_a_missing_log_is_reported(tmp_path: Path) -> None:
    """BI-16, FX-14."""
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(5))
    (tmp_path / "d0" / "current" / "0.log").unlink()
    async with opened(tmp_path) as storage:
        with pytest.raises(CorruptStorageError, match="gone"):
            await storage.read_entry(1, 0)
        with pytest.raises(CorruptStorageError):
            await storage.read_run(1, 0, 10, 1000)


def damage_log(index: Path) -> None:
    """Flip a bit in the write-ahead log, in the middle of what was synced."""
    (wal,) = index.glob("*.log")
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 8
    wal.write_bytes(data)


async def killed(path: Path, image: Path) -> Path:
    """The directory of a storage that was killed after two flushes and an unflushed add."""
    async with opened(path) as storage:
        await add(storage, 1, range(50))
        await add(storage, 2, range(50))
        await storage.flush()
        storage.add_entry(1, 7, entry(1, 7, version=1))
        await add(storage, 3, range(5), 5000)
        storage.delete_ledger(2)
        storage.set_fenced(1)
        await storage.flush()
        await add(storage, 1, range(50, 60))
        shutil.copytree(path, image)
    return image / "d0" / "current"


async def test_a_damaged_location_index_is_built_anew_from_the_logs(tmp_path: Path) -> None:
    """BI-22, FX-50, DF-9."""
    current = await killed(tmp_path / "a", tmp_path / "b")
    damage_log(current / "locations")
    for _ in range(2):
        async with opened(tmp_path / "b") as storage:
            assert storage.ledgers() == [1, 3]
            assert storage.is_fenced(1)
            for entry_id in range(50):
                assert await storage.read_entry(1, entry_id) == entry(1, entry_id, version=int(entry_id == 7))
            await check(storage, 3, 5, 5000)
            assert list(await storage.list_entries(1)) == list(range(50))
            await storage.flush()
    assert (current / "locations.damaged").is_dir()
    assert not (current / "locations.ready").exists()


async def test_a_new_index_takes_its_place_also_after_a_crash_between_the_steps(tmp_path: Path) -> None:
    """FX-46."""
    current = await killed(tmp_path / "a", tmp_path / "b")
    (current / "locations").rename(current / "locations.ready")
    async with opened(tmp_path / "b") as storage:
        assert list(await storage.list_entries(1)) == list(range(50))
    (current / "locations").rename(current / "locations.ready")
    (current / "locations").mkdir()
    async with opened(tmp_path / "b") as storage:
        assert list(await storage.list_entries(1)) == list(range(50))


async def test_no_index_is_built_from_a_sealed_log_that_cannot_be_read_to_its_end(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as storage:
        await add(storage, 1, range(50))
    current = await killed(tmp_path / "a", tmp_path / "b")
    damage_log(current / "locations")
    log_file = current / "0.log"
    data = bytearray(log_file.read_bytes())
    data[fmt.HEADER_SIZE] = 0x7F  # the size of the first record
    log_file.write_bytes(data)
    for _ in range(2):
        with pytest.raises(CorruptStorageError, match=r"cannot be built anew: remove this bookie's data and cookie"):
            async with opened(tmp_path / "b"):
                pass


async def test_a_damaged_ledger_index_refuses_the_start_and_says_what_to_do(tmp_path: Path) -> None:
    """BI-22, FX-50."""
    current = await killed(tmp_path / "a", tmp_path / "b")
    damage_log(current / "ledgers")
    with pytest.raises(CorruptStorageError, match=r"ledgers/.*damaged at byte .*remove this bookie's data and cookie"):
        async with opened(tmp_path / "b"):
            pass
