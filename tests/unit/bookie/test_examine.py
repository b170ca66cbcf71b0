"""Looking at entries where they lie: whatever bit of a record changes is found, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.bookie.storage import examine as module
from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.bookie.storage.examine import Damage
from bookkeeper.errors import CorruptStorageError
from tests.support.storage import StorageMachine, add, entry, opened

EVERYTHING = 1000
LOG = "/storage/d0/current/0.log"


def judge_of(ledger_id: int, size: int = 20) -> module.Judge:
    return lambda entry_id, data: None if data == entry(ledger_id, entry_id, size) else "other bytes"


async def damaged(storage: DbLedgerStorage, ledger_id: int) -> list[int]:
    found = await storage.examine(ledger_id, 0, EVERYTHING, judge_of(ledger_id))
    assert found.after is None
    return [item.entry_id for item in found.damage]


async def test_sound_entries_are_looked_at_once_each_part_by_part(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, [0, 1, 2, 5, 9])
        await add(storage, 2, range(3))
        await storage.flush()
        seen: list[int] = []

        def judge(entry_id: int, data: bytes) -> str | None:
            assert data == entry(1, entry_id)
            seen.append(entry_id)
            return None

        parts = []
        first: int | None = 0
        while first is not None:
            part = await storage.examine(1, first, 2, judge)
            assert not part.damage
            parts.append(part.entries)
            first = part.after
        assert seen == [0, 1, 2, 5, 9]
        assert parts == [2, 2, 1]


async def test_a_part_ends_when_much_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 100)
    monkeypatch.setattr(module, "READ_BYTES", 100)
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(4), size=30)
        await storage.flush()
        part = await storage.examine(1, 0, EVERYTHING, judge_of(1, 30))
        assert part == (2, 2, [])
        assert await storage.examine(1, 2, EVERYTHING, judge_of(1, 30)) == (2, None, [])
        assert await storage.examine(1, 4, EVERYTHING, judge_of(1, 30)) == (0, None, [])


async def test_what_is_not_on_the_disk_is_not_looked_at(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(3))
        assert (await storage.examine(1, 0, EVERYTHING, judge_of(1))).entries == 0
        await storage.flush()
        assert (await storage.examine(1, 0, EVERYTHING, judge_of(1))).entries == 3
        storage.delete_ledger(1)
        assert await storage.examine(1, 0, EVERYTHING, judge_of(1)) == (0, None, ())
        assert await storage.examine(7, 0, EVERYTHING, judge_of(7)) == (0, None, ())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_each_flipped_bit_is_found_in_its_entry(data: st.DataObject) -> None:
    """Size word, ids, payload: an entry is damaged if and only if a bit of its record changed. Reads hear of it, too,
    as far as they look."""
    counts = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    record = fmt.SIZE_WORD + len(entry(1, 0))
    flips = data.draw(st.sets(st.integers(0, record * sum(counts) - 1), max_size=3))
    with StorageMachine() as machine:

        async def write(storage: DbLedgerStorage) -> None:
            for ledger_id, count in enumerate(counts):
                await add(storage, ledger_id, range(count))
            await storage.flush()

        machine.run(write)
        for offset in flips:
            machine.disk.flip_bit(LOG, fmt.HEADER_SIZE + offset)
        places = [(ledger_id, entry_id) for ledger_id, count in enumerate(counts) for entry_id in range(count)]
        expected = {places[offset // record] for offset in flips}

        async def look(storage: DbLedgerStorage) -> None:
            found = {(ledger_id, i) for ledger_id in range(len(counts)) for i in await damaged(storage, ledger_id)}
            assert found == expected

        machine.run(look)


async def test_an_entry_that_is_being_written_again_is_not_called_damaged(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(3))
        await storage.flush()
        file = tmp_path / "d0" / "current" / "0.log"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        assert await damaged(storage, 1) == [2]
        storage.add_entry(1, 2, entry(1, 2))
        assert await damaged(storage, 1) == []
        await storage.flush()
        assert await damaged(storage, 1) == []


async def test_a_log_that_is_gone_and_an_entry_that_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(2))
        await storage.flush()
        locations = storage.directories[0]._locations
        (tmp_path / "d0" / "current" / "0.log").unlink()
        found = await storage.examine(1, 0, EVERYTHING, judge_of(1))
        assert found.damage == [Damage(0, "its entry log is gone"), Damage(1, "its entry log is gone")]
        monkeypatch.setattr(type(locations), "get", lambda *_: 77)  # as if compaction had moved them meanwhile
        assert await damaged(storage, 1) == []


async def test_a_read_that_meets_damage_tells_the_listener(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await add(storage, 1, range(3))
        await storage.flush()
        told: list[tuple[int, int]] = []
        storage.set_damage_listener(lambda *what: told.append(what))
        file = tmp_path / "d0" / "current" / "0.log"
        content = bytearray(file.read_bytes())
        content[fmt.HEADER_SIZE + fmt.SIZE_WORD + 7] ^= 1  # the ledger id of entry 0
        file.write_bytes(content)
        assert await storage.read_entry(1, 1) == entry(1, 1)
        assert told == []
        with pytest.raises(CorruptStorageError):
            await storage.read_entry(1, 0)
        with pytest.raises(CorruptStorageError):
            await storage.read_run(1, 0, 3, EVERYTHING)
        assert told == [(1, 0), (1, 0)]
