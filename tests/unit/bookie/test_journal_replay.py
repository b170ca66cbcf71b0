"""Replaying a directory of journals (spec bookie-storage §4.2, §4.3; safety BI-8, BI-9)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bookkeeper.bookie.journal.format import JournalRecord, SealHeader, encode_header, entry_prefix, sealed_padding
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.last_mark import LogMark
from bookkeeper.errors import CorruptStorageError
from bookkeeper.simulation.world.disk import Inode
from tests.support import java_journal
from tests.support.disk import put
from tests.support.java_journal import entry
from tests.support.journals import DIRECTORY, LEDGER, LEDGER_DIRECTORIES, JournalMachine, append, started
from tests.support.waiting import until


def ours(journal_id: int, previous: tuple[int, int], batches: list[list[int]], *, synced: bool = False) -> bytes:
    """A file as ours with entries of 100 bytes; `synced`: each seal says that the batches before were synced."""
    data = encode_header(6, SealHeader(journal_id, *previous))
    for batch in batches:
        body = b"".join(entry_prefix(100) + entry(LEDGER, entry_id, 100) for entry_id in batch)
        known = len(data) if synced else 512
        data += body + sealed_padding([body], journal_id, len(data), len(batch), known, 512)
    return data


def java(*batches: list[int], version: int = 6) -> bytes:
    return java_journal.write([[entry(LEDGER, entry_id, 100) for entry_id in batch] for batch in batches], version)


def torn(data: bytes) -> bytes:
    """The last batch has lost its first sector."""
    start = len(data) - 512
    return data[:start] + bytes(512)


class Box(JournalMachine):
    def journal(self, journal_id: int, data: bytes, *, allocate: int = 4096) -> None:
        put(self.disk, f"{DIRECTORY}/{journal_id:x}.txn", data + bytes(allocate))

    def mark(self, journal_id: int, offset: int) -> None:
        put(self.disk, f"{LEDGER_DIRECTORIES[0]}/lastMark", LogMark(journal_id, offset).encode())

    def replayed(self) -> tuple[list[int], LogMark]:
        async def program(journal: Journal) -> tuple[list[int], LogMark]:
            records: list[JournalRecord] = []
            await journal.replay(records.append)
            return [record.entry_id for record in records], journal.mark()

        if self.machine.incarnation is not None:
            self.machine.kill()
        result = self.run(program)
        assert result is not None
        return result


def test_files_are_read_in_the_order_of_their_ids_from_the_mark_on() -> None:
    with Box() as box:
        box.journal(0xFF, java([0, 1]))
        box.journal(0x100, java([2], [3]))
        box.journal(0x101, java([4]))
        assert box.replayed() == ([0, 1, 2, 3, 4], LogMark(0x101, 1024))
        box.mark(0x100, 1024)
        assert box.replayed() == ([3, 4], LogMark(0x101, 1024))
        box.mark(0x101, 0)
        assert box.replayed() == ([4], LogMark(0x101, 1024))


def test_an_empty_directory_replays_nothing() -> None:
    with Box() as box:
        assert box.replayed() == ([], LogMark(0, 0))


@pytest.mark.parametrize("mark", [(5, 512), (5, 0), (9, 512)])
def test_the_marked_journal_must_be_there(mark: tuple[int, int]) -> None:
    """R4, BI-7."""
    with Box() as box:
        box.journal(6, java([0]))
        box.mark(*mark)
        with pytest.raises(CorruptStorageError, match="is missing"):
            box.replayed()


def test_a_name_that_is_not_hexadecimal_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """SEC-37."""
    with Box() as box:
        put(box.disk, f"{DIRECTORY}/backup-1.txn", b"BKLG")
        box.journal(6, java([1]))
        assert box.replayed() == ([1], LogMark(6, 1024))
    assert "backup-1.txn is not the name of a journal" in caplog.text


@pytest.mark.parametrize("kind", ["ours", "java"])
def test_a_mark_without_a_checksum_that_ends_no_batch_is_not_followed(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With any bit flipped, the start is refused or all that is needed is replayed; unless the mark has become the end
    of another batch, which cannot be told."""
    batches = [[0, 1], [2], [3]]
    with Box() as box:
        box.journal(5, ours(5, (0, 0), batches) if kind == "ours" else java(*batches))
        path = f"{LEDGER_DIRECTORIES[0]}/lastMark"
        whole = LogMark(5, 1024).encode()[:16]
        put(box.disk, path, whole)
        assert box.replayed()[0] == [2, 3], "a whole one is followed, as Java left it"
        for bit in range(128):
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            if bytes(data) == LogMark(5, 1536).encode()[:16]:
                continue
            put(box.disk, path, bytes(data))
            try:
                found, _ = box.replayed()
            except CorruptStorageError:
                continue
            assert found[-2:] == [2, 3], bit
    assert "is not the end of anything" in caplog.text


def test_a_checksum_spares_looking_whether_a_mark_ends_a_batch() -> None:
    with Box() as box:
        data = bytearray(ours(5, (0, 0), [[0], [1], [2]]))
        data[512:516] = b"\xff" * 4  # damage in what the mark has left behind
        box.journal(5, bytes(data))
        box.mark(5, 1024)
        assert box.replayed()[0] == [1, 2]


def test_the_mark_that_java_leaves_behind_the_end_of_its_data_is_understood() -> None:
    """After Java's replay the mark names the zeros that stopped it; it then writes the next file."""
    with Box() as box:
        box.journal(5, java([0]))
        box.journal(6, java([1]))
        box.mark(5, 1028)
        assert box.replayed() == ([1], LogMark(6, 1024))


def test_every_version_may_come_before_ours() -> None:
    with Box() as box:
        for version in range(1, 7):
            box.journal(version, java([version * 10], [version * 10 + 1], version=version))
        box.journal(7, ours(7, (6, 1536), [[70], [71]]))
        assert box.replayed()[0] == [version * 10 + i for version in range(1, 8) for i in range(2)]


# --- torn tails and the chain --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ours", "java"])
def test_a_torn_tail_is_left_out_at_this_start_and_at_later_ones(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It lies behind the end that the next file tells, wherever the mark is by then. BI-9, FX-45."""

    async def write(journal: Journal) -> None:
        await started(journal)
        done: list[int] = []
        append(journal, 100, lambda: done.append(1))
        await until(lambda: bool(done))

    with Box() as box:
        whole = java([0], [1, 2, 3, 4, 5, 6]) if kind == "java" else ours(5, (0, 0), [[0], [1, 2, 3, 4, 5, 6]])
        box.journal(5, torn(whole))
        assert box.replayed() == ([0], LogMark(5, 1024))
        box.machine.kill()
        box.run(write)
        for _ in range(2):
            assert box.replayed()[0] == [0, 100]
        box.mark(5, 1024)
        assert box.replayed()[0] == [100]


def test_a_file_that_lost_its_end_after_it_was_rolled_is_refused() -> None:
    """BI-9."""
    with Box() as box:
        box.journal(5, torn(ours(5, (0, 0), [[0], [1]])))
        box.journal(6, ours(6, (5, 1536), [[2]]))
        with pytest.raises(CorruptStorageError, match="next journal says"):
            box.replayed()


def test_a_java_file_with_a_torn_record_that_is_not_the_last_is_refused() -> None:
    with Box() as box:
        box.journal(5, java([0]) + b"\x00\x00\x10\x00garbage")
        box.journal(6, java([1]))
        with pytest.raises(CorruptStorageError, match="not the last journal"):
            box.replayed()


def test_a_torn_file_of_ours_before_one_of_java_is_judged_by_its_own_seals() -> None:
    """Java has cut off the tail in its own way in between and says nothing about it."""
    with Box() as box:
        box.journal(5, torn(ours(5, (0, 0), [[0], [1]])))
        box.journal(6, java([2]))
        assert box.replayed()[0] == [0, 2]
        data = bytearray(ours(5, (0, 0), [[0], [1], [2]], synced=True))
        data[1024:1536] = bytes(512)
        box.journal(5, bytes(data))
        with pytest.raises(CorruptStorageError, match="later seal"):
            box.replayed()


def test_a_journal_missing_in_the_middle_is_refused() -> None:
    """BI-7."""
    with Box() as box:
        box.journal(5, ours(5, (0, 0), [[0]]))
        box.journal(7, ours(7, (6, 1024), [[2]]))
        with pytest.raises(CorruptStorageError, match="missing"):
            box.replayed()
        box.mark(7, 512)
        assert box.replayed()[0] == [2]


@pytest.mark.parametrize("blank", [b"", bytes(8192), *(ours(6, (5, 1024), [])[:size] for size in (2, 4, 9, 300))])
def test_a_file_whose_creation_was_cut_short_is_no_part_of_the_chain(blank: bytes) -> None:
    """BI-9, FX-45."""
    with Box() as box:
        box.journal(5, torn(ours(5, (0, 0), [[0], [1]])))
        box.journal(6, blank, allocate=0)
        assert box.replayed() == ([0], LogMark(5, 1024))
        box.machine.kill()
        box.run(started)
        assert [name.split(".")[0] for name in box.journals()] == ["5", "6", "7"]
        assert box.replayed()[0] == [0]


def test_a_marked_file_that_is_blank_is_refused() -> None:
    with Box() as box:
        box.journal(5, bytes(1024))
        box.mark(5, 512)
        with pytest.raises(CorruptStorageError, match="is empty"):
            box.replayed()


def test_a_file_without_a_record_may_lose_its_header_after_a_replay() -> None:
    """Its creation may have failed at the sync: what a replay reads then is in the page cache only."""
    with Box() as box:
        box.journal(5, ours(5, (0, 0), [[0]]))
        box.journal(6, ours(6, (5, 1024), []))
        entries, mark = box.replayed()
        assert (entries, mark.journal_id) == ([0], 6)
        box.mark(*mark)
        box.journal(6, b"", allocate=0)  # power went
        assert box.replayed() == ([], LogMark(6, 0))


def test_a_file_with_zeros_for_a_header_is_refused() -> None:
    with Box() as box:
        box.journal(5, bytes(512) + ours(5, (0, 0), [[0]])[512:])
        with pytest.raises(CorruptStorageError, match="begins with zeros"):
            box.replayed()


@pytest.mark.parametrize("where", [9, 16, 30, 44, 100])
def test_a_damaged_header_is_refused(where: int) -> None:
    """BI-22."""
    with Box() as box:
        data = bytearray(ours(5, (0, 0), [[0]]))
        data[where] ^= 0x10
        box.journal(5, bytes(data))
        with pytest.raises(CorruptStorageError, match="header"):
            box.replayed()


# --- skipReplayJournalInvalidRecord --------------------------------------------------------------


def test_with_the_setting_the_rest_of_a_damaged_file_is_given_up_loudly(caplog: pytest.LogCaptureFixture) -> None:
    """JH-14."""
    with Box(skipReplayJournalInvalidRecord=True) as box:
        data = bytearray(ours(5, (0, 0), [[0], [1], [2]], synced=True))
        data[1024:1536] = bytes(512)
        box.journal(5, bytes(data))
        box.journal(6, ours(6, (5, 2048), [[3]]))
        box.journal(7, b"BKLG\x00\x00\x00\x09" + bytes(1000) + b"!")
        box.journal(9, ours(9, (8, 1024), [[4]]))
        with caplog.at_level(logging.ERROR):
            assert box.replayed()[0] == [0, 3, 4]
        assert len(caplog.records) == 3
        assert all("skipReplayJournalInvalidRecord" in record.message for record in caplog.records)


# --- applying ------------------------------------------------------------------------------------


def test_an_apply_that_returns_something_is_waited_for() -> None:
    async def program(journal: Journal) -> list[int]:
        seen: list[int] = []

        async def apply(record: JournalRecord) -> None:
            before = len(seen)
            await asyncio.sleep(0.01)
            assert len(seen) == before
            seen.append(record.entry_id)

        await journal.replay(apply)
        return seen

    with Box() as box:
        box.journal(5, java([0, 1, 2], [3]))
        assert box.run(program) == [0, 1, 2, 3]


def test_an_error_of_the_storage_ends_the_start_whatever_the_settings() -> None:
    async def program(journal: Journal) -> None:
        def apply(_: JournalRecord) -> None:
            raise CorruptStorageError("the storage")

        with pytest.raises(CorruptStorageError, match="the storage"):
            await journal.replay(apply)

    with Box(skipReplayJournalInvalidRecord=True) as box:
        box.journal(5, java([0]))
        box.run(program)
        assert box.machine.incarnation is not None


def test_a_read_error_ends_the_start() -> None:
    """BI-9, DF-8."""
    with Box() as box:
        box.journal(5, java([0]))
        box.disk.faults.fail_reads_of = ".txn"
        with pytest.raises(OSError, match="simulated read"):
            box.replayed()


def test_files_are_closed_by_name_only() -> None:
    """Replay changes nothing on disk: the same again gives the same (BI-8)."""
    with Box() as box:
        box.journal(5, torn(ours(5, (0, 0), [[0], [1]])))
        before = {name: bytes(inode.seen) for name, inode in box.disk.names.items()}
        first = box.replayed()
        assert box.replayed() == first
        assert {name: bytes(inode.seen) for name, inode in box.disk.names.items()} == before
        assert all(isinstance(inode, Inode) for inode in box.disk.names.values())


@pytest.mark.parametrize("failed_sync", [True, False])
def test_what_a_replay_saw_is_on_the_disk_before_the_next_file_tells_of_it(failed_sync: bool) -> None:
    """The page cache had more than the disk, and the mark could not be written: a loss of power takes nothing then."""

    async def cut_short(journal: Journal) -> None:
        await started(journal)
        acknowledged: list[int] = []
        append(journal, 0, lambda: acknowledged.append(0))
        await until(lambda: acknowledged == [0])
        if failed_sync:
            box.disk.faults.fail_next_sync = True
        else:
            box.disk._note = killed_by_a_sync
        append(journal, 1, lambda: acknowledged.append(1))
        await until(lambda: bool(box.fatal))

    async def built_upon(journal: Journal) -> list[int]:
        records = await started(journal)  # and no checkpoint
        acknowledged: list[int] = []
        append(journal, 2, lambda: acknowledged.append(2))
        await until(lambda: acknowledged == [2])
        return [record.entry_id for record in records]

    def killed_by_a_sync(what: str) -> None:
        if what.startswith("sync"):
            box.disk._note = note
            box.machine.kill()

    with JournalMachine() as box:
        note = box.disk._note
        box.run(cut_short)
        box.machine.kill()
        assert box.run(built_upon) == [0, 1]
        box.machine.power_off()
        assert box.run(replayed_by) == [0, 1, 2]


async def replayed_by(journal: Journal) -> list[int]:
    return [record.entry_id for record in await started(journal)]
