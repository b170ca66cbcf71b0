"""The journal at work, on a simulated machine (spec bookie-storage §3, bookie-server §2.5, safety §3.2, §3.3)."""

from __future__ import annotations

import asyncio
import errno
import functools
from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.bookie.file_names import journal_name
from bookkeeper.bookie.journal.file import JournalFile
from bookkeeper.bookie.journal.format import FENCE, LEDGER_KEY, SealHeader, fence_record, ledger_key_record
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.last_mark import START, LogMark
from bookkeeper.bookie.journal.telling import DONE_AT_ONCE
from bookkeeper.errors import FatalBookieError
from bookkeeper.simulation.world.disk import Inode, SimulatedFiles
from tests.support import java_journal
from tests.support.disk import new_disk, put
from tests.support.journals import DIRECTORY, LEDGER, LEDGER_DIRECTORIES, JournalMachine, append, started
from tests.support.waiting import until


class Answers:
    """Which entries were acknowledged, in order."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def of(self, entry_id: int) -> Callable[[], None]:
        return lambda: self.ids.append(entry_id)


def syncs(box: JournalMachine) -> list[str]:
    """Makes the disk note the files it syncs, in order."""
    noted: list[str] = []
    original = box.disk.sync

    def sync(inode: Inode) -> None:
        noted.extend(name for name, held in box.disk.names.items() if held is inode)
        original(inode)

    box.disk.sync = sync  # type: ignore[method-assign]
    return noted


# --- appending -----------------------------------------------------------------------------------


def test_what_was_acknowledged_is_replayed_in_order() -> None:
    answers = Answers()

    async def write(journal: Journal) -> None:
        await started(journal)
        journal.append([ledger_key_record(LEDGER, b"k" * 20)], 44, 1, answers.of(-1))
        for entry_id in range(300):
            append(journal, entry_id, answers.of(entry_id))
            if entry_id % 7 == 0:
                await asyncio.sleep(0.0003)
        journal.append([fence_record(LEDGER)], 20, 1, answers.of(300))
        await until(lambda: len(answers.ids) == 302)

    with JournalMachine() as box:
        box.run(write)
        assert answers.ids == list(range(-1, 301))
        box.machine.power_off()
        records = box.run(started)
        assert records is not None
        assert [record.entry_id for record in records] == [LEDGER_KEY, *range(300), FENCE]
        assert records[5].body == java_journal.entry(LEDGER, 4, 100, 5)
        assert all(record.sealed for record in records)


def test_nothing_is_acknowledged_before_the_sync_that_covers_it() -> None:
    """Whatever moment the power fails at: all that was acknowledged is there. BI-1."""
    for moment in range(1, 40):
        answers = Answers()

        async def write(journal: Journal, answers: Answers = answers) -> None:
            await started(journal)
            for entry_id in range(50):
                append(journal, entry_id, answers.of(entry_id))
                await asyncio.sleep(0.0005)

        with JournalMachine(moment) as box:
            box.world.loop.call_later(moment * 0.001, box.machine.power_off)
            box.run(write)
            records = box.run(started)
            assert records is not None
            replayed = [record.entry_id for record in records]
            assert replayed == list(range(len(replayed)))
            assert answers.ids == list(range(len(answers.ids)))
            assert len(replayed) >= len(answers.ids)


def test_appends_of_one_turn_are_one_batch() -> None:
    """FX-57."""

    async def write(journal: Journal) -> tuple[int, int, int]:
        await started(journal)
        answers = Answers()
        for entry_id in range(100):
            append(journal, entry_id, answers.of(entry_id))
        await until(lambda: len(answers.ids) == 100)
        return journal.stats.batches, journal.stats.syncs, journal.stats.records

    with JournalMachine() as box:
        assert box.run(write) == (1, 1, 100)


def test_a_full_batch_does_not_wait_for_the_sync_of_the_one_before() -> None:
    order: list[str] = []

    async def write(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        for entry_id in range(6):
            append(journal, entry_id, answers.of(entry_id), 6000)
        await until(lambda: len(answers.ids) == 6)
        assert answers.ids == list(range(6))

    with JournalMachine(journalBufferedWritesThreshold=10000) as box:
        note = box.disk._note

        def listen(what: str) -> None:
            if what.startswith(("pwrite", "sync")) and DIRECTORY in what:
                order.append(what.split()[0])
            note(what)

        box.disk._note = listen
        box.run(write)
    written = order[2:]  # after those of the header
    assert written.count("pwrite") == 3
    assert written[-1] == "sync"


def test_a_journal_that_groups_nothing_writes_each_run_of_appends_at_once() -> None:
    async def write(journal: Journal) -> int:
        await started(journal)
        answers = Answers()
        for entry_id in range(10):
            append(journal, entry_id, answers.of(entry_id))
            await until(lambda: len(answers.ids) == entry_id + 1)  # noqa: B023
        return journal.stats.batches

    for settings in ({"journalFlushWhenQueueEmpty": True}, {"journalMaxGroupWaitMSec": 0}):
        with JournalMachine(**settings) as box:
            assert box.run(write) == 10


def test_under_load_batches_leave_no_more_often_than_half_the_group_wait() -> None:
    """FX-57: grouping."""

    async def write(journal: Journal) -> int:
        await started(journal)
        answers = Answers()
        for entry_id in range(4000):
            append(journal, entry_id, answers.of(entry_id))
            if entry_id % 40 == 0:
                await asyncio.sleep(0.0001)
        await until(lambda: len(answers.ids) == 4000)
        return journal.stats.batches

    with JournalMachine(journalMaxGroupWaitMSec=200, journalBufferedWritesThreshold=1 << 30) as box:
        batches = box.run(write)
        assert batches is not None
        assert batches <= 5  # 10 ms of load, and each record buys 10 us


# --- durability modes ----------------------------------------------------------------------------


def test_deferred_sync_is_acknowledged_when_written_and_forced_when_asked() -> None:
    async def write(journal: Journal) -> list[str]:
        await started(journal)
        synced = syncs(box)
        seen: list[str] = []
        append(journal, 0, lambda: seen.append(f"early {len(synced)}"), ack_before_sync=True)
        append(journal, 1, lambda: seen.append(f"late {len(synced)}"))
        await until(lambda: len(seen) == 2)
        append(journal, 2, lambda: seen.append("early"), ack_before_sync=True)
        journal.force(lambda: seen.append(f"force {len(synced)}"))
        await until(lambda: len(seen) == 4)
        return seen

    with JournalMachine() as box:
        assert box.run(write) == ["early 0", "late 1", "early", "force 2"]


def test_without_sync_of_data_a_force_still_syncs_and_so_does_the_interval() -> None:
    """Defect A10, gap G17."""

    async def write(journal: Journal) -> None:
        await started(journal)
        synced = syncs(box)
        answers = Answers()
        append(journal, 0, answers.of(0))
        await until(lambda: answers.ids == [0])
        mark = journal.mark()
        assert not synced
        journal.force(answers.of(-1))
        await until(lambda: answers.ids == [0, -1])
        assert len(synced) == 1
        assert journal.mark() > mark
        append(journal, 1, answers.of(1))
        await asyncio.sleep(0.5)
        assert answers.ids == [0, -1, 1]
        assert len(synced) == 1
        await asyncio.sleep(1.5)
        assert len(synced) == 2

    with JournalMachine(journalSyncData=False) as box:
        box.run(write)
        assert not box.fatal


def test_force_on_an_idle_journal_is_answered() -> None:
    async def write(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        journal.force(answers.of(1))
        journal.force(answers.of(2))
        await until(lambda: answers.ids == [1, 2])

    with JournalMachine() as box:
        box.run(write)


def test_version_4_is_written_without_padding() -> None:
    async def write(journal: Journal) -> None:
        await started(journal)
        assert not journal.journals_explicit_lac
        answers = Answers()
        append(journal, 0, answers.of(0))
        await until(lambda: answers.ids == [0])

    with JournalMachine(journalFormatVersionToWrite=4) as box:
        box.run(write)
        (name,) = box.journals()
        data = box.files.read_bytes(f"{DIRECTORY}/{name}")
        assert data.startswith(java_journal.write([[java_journal.entry(LEDGER, 0, 100, 1)]], 4))
        assert java_journal.read(data)[0] == [java_journal.entry(LEDGER, 0, 100, 1)]


# --- files ---------------------------------------------------------------------------------------


def test_the_first_id_is_the_time_and_later_ones_count_up() -> None:
    with JournalMachine() as box:
        for _ in range(3):
            box.run(started)
            box.machine.kill()
        first = int(box.journals()[0].split(".")[0], 16)
        assert first > 1_700_000_000_000
        assert box.journals() == [journal_name(first + i) for i in range(3)]


def test_ids_count_up_when_the_clock_went_back() -> None:
    """BI-15, DF-12."""
    with JournalMachine() as box:
        box.run(started)
        box.machine.kill()
        box.machine.wall_offset_ms = -1_000_000_000
        box.run(started)
        first, second = (int(name.split(".")[0], 16) for name in box.journals())
        assert second == first + 1


def test_the_first_id_is_beyond_the_mark_whatever_the_clock_says() -> None:
    """Journals below the mark would never be replayed."""
    with JournalMachine(skipReplayJournalInvalidRecord=True) as box:
        put(box.disk, f"{LEDGER_DIRECTORIES[0]}/lastMark", LogMark(1 << 60, 512).encode())
        box.run(started)
        assert box.journals() == [journal_name((1 << 60) + 1)]


@pytest.mark.parametrize("seed", range(10))
def test_a_journal_file_survives_power_loss_as_soon_as_something_in_it_is_acknowledged(seed: int) -> None:
    """JH-7, on a file system that keeps a name only after a sync of its directory."""

    async def write(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        append(journal, 0, answers.of(0))
        await until(lambda: answers.ids == [0])

    with JournalMachine(seed) as box:
        box.disk.created_and_synced = lambda path, inode: None  # type: ignore[method-assign]
        box.run(write)
        box.machine.power_off()
        records = box.run(started)
        assert records is not None
        assert [record.entry_id for record in records] == [0]


def test_rolling_syncs_the_old_file_before_anything_in_the_new_one_is_acknowledged() -> None:
    """JH-1, A13: acknowledgements on both sides of a roll come in order, each after the sync of its file.
    FX-59, gap G4."""
    log: list[tuple[str, Any]] = []

    async def write(journal: Journal) -> None:
        await started(journal)
        noted = syncs(box)
        for entry_id in range(40):
            append(journal, entry_id, lambda entry_id=entry_id: log.append((noted[-1], entry_id)), 100_000)
            if entry_id % 4 == 0:
                await asyncio.sleep(0.0002)
        await until(lambda: len(log) == 40)
        assert journal.stats.files > 2
        await journal.close()

    with JournalMachine() as box:
        box.run(write)
        assert [entry_id for _, entry_id in log] == list(range(40))
        names = [f"{DIRECTORY}/{name}" for name in box.journals()]
        assert [name for name, _ in log] == sorted((name for name, _ in log), key=names.index)
        for name in names:
            records, _ = java_journal.read(box.files.read_bytes(name))
            held = [int.from_bytes(record[8:16], "big") for record in records]
            first_acks = [entry_id for synced, entry_id in log if synced == name]
            assert set(first_acks) <= set(held)  # acknowledged by a sync of the file that has it
        box.machine.kill()
        replayed = box.run(started)
        assert replayed is not None
        assert [record.entry_id for record in replayed] == list(range(40))


def test_the_mark_is_the_end_of_what_is_synced_and_then_the_new_file() -> None:
    """FX-34."""

    async def write(journal: Journal) -> None:
        await started(journal)
        marks = [journal.mark()]
        assert marks[0].offset == 512
        answers = Answers()
        for entry_id in range(30):
            append(journal, entry_id, answers.of(entry_id), 100_000)
            await until(lambda: len(answers.ids) == entry_id + 1)  # noqa: B023
            marks.append(journal.mark())
        assert marks == sorted(set(marks))
        assert len({mark.journal_id for mark in marks}) > 2
        assert all(mark.offset % 512 == 0 for mark in marks)

    with JournalMachine() as box:
        box.run(write)


@pytest.mark.parametrize("seed", range(5))
def test_the_mark_is_never_beyond_what_is_durable(seed: int) -> None:
    """Also while the next batch has been written already. BI-6, FX-34."""
    checked: list[int] = []

    async def write(journal: Journal) -> None:
        await started(journal)

        def check() -> None:
            mark = journal.mark()
            inode = box.disk.names[f"{DIRECTORY}/{journal_name(mark.journal_id)}"]
            assert inode.durable[: mark.offset] == inode.seen[: mark.offset]
            checked.append(mark.offset)

        for entry_id in range(200):
            append(journal, entry_id, check, 3000)
            if entry_id % 9 == 0:
                await asyncio.sleep(0.0003)
        await until(lambda: len(checked) == 200)

    with JournalMachine(seed, journalBufferedWritesThreshold=10_000) as box:
        box.run(write)
        assert len(set(checked)) > 5


def test_without_sync_of_data_a_file_is_synced_before_the_next_one_is_made() -> None:
    async def write(journal: Journal) -> None:
        await started(journal)
        noted = syncs(box)
        answers = Answers()
        for entry_id in range(15):
            append(journal, entry_id, answers.of(entry_id), 100_000)
            await until(lambda: len(answers.ids) == entry_id + 1)  # noqa: B023
        await until(lambda: journal.stats.files == 2)
        assert noted == [f"{DIRECTORY}/{name}" for name in box.journals()]

    with JournalMachine(journalSyncData=False, journalPageCacheFlushIntervalMSec=1_000_000) as box:
        box.run(write)


# --- checkpoints ---------------------------------------------------------------------------------


def fill(count: int) -> Callable[[Journal], Any]:
    """A program that writes about one file for each of `count`."""

    async def program(journal: Journal) -> LogMark:
        await started(journal)
        answers = Answers()
        for entry_id in range(count * 11):
            append(journal, entry_id, answers.of(entry_id), 100_000)
            await until(lambda: len(answers.ids) == entry_id + 1)  # noqa: B023
        mark = journal.mark()
        await journal.retention.checkpoint_complete(mark, compact=True)
        return mark

    return program


@pytest.mark.parametrize("backups", [0, 2])
def test_old_journals_are_deleted_but_not_the_marked_one_nor_the_backups(backups: int) -> None:
    """BI-7, FX-31, FX-60."""
    with JournalMachine(journalMaxBackups=backups) as box:
        mark = box.run(fill(4))
        assert mark is not None
        ids = [int(name.split(".")[0], 16) for name in box.journals()]
        assert mark.journal_id in ids
        assert len([id_ for id_ in ids if id_ < mark.journal_id]) == backups
        assert box.persisted() == [mark, mark]


def test_without_compact_no_journal_is_deleted() -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        await journal.retention.checkpoint_complete(journal.mark(), compact=False)

    with JournalMachine(journalMaxBackups=0) as box:
        for _ in range(3):
            box.run(program)
            box.machine.kill()
        assert len(box.journals()) == 3


def test_a_mark_never_goes_back() -> None:
    """BI-7, FX-31."""

    async def program(journal: Journal) -> tuple[LogMark, LogMark]:
        await started(journal)
        old = journal.mark()
        answers = Answers()
        append(journal, 0, answers.of(0))
        await until(lambda: answers.ids == [0])
        new = journal.mark()
        await journal.retention.checkpoint_complete(new, compact=True)
        await journal.retention.checkpoint_complete(old, compact=True)
        return old, new

    with JournalMachine() as box:
        marks = box.run(program)
        assert marks is not None
        assert marks[0] < marks[1]
        assert box.persisted() == [marks[1], marks[1]]


def test_no_journal_is_deleted_while_a_ledger_directory_lacks_the_mark() -> None:
    """BI-19, JH-6, BI-7."""

    async def program(journal: Journal) -> int:
        await started(journal)
        del box.disk.directories[LEDGER_DIRECTORIES[1]]
        await journal.retention.checkpoint_complete(journal.mark(), compact=True)
        kept = len(box.journals())
        box.files.makedirs(LEDGER_DIRECTORIES[1])
        await journal.retention.checkpoint_complete(journal.mark(), compact=True)
        return kept

    with JournalMachine(journalMaxBackups=0) as box:
        for _ in range(2):
            box.run(started)
            box.machine.kill()
        assert box.run(program) == 3
        assert len(box.journals()) == 1
        assert box.persisted()[0] == box.persisted()[1] is not None


def test_a_mark_that_no_directory_takes_is_an_error_and_is_not_taken_as_written() -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        for directory in LEDGER_DIRECTORIES:
            del box.disk.directories[directory]
        with pytest.raises(OSError, match="any ledger directory"):
            await journal.retention.checkpoint_complete(journal.mark(), compact=True)
        for directory in LEDGER_DIRECTORIES:
            box.files.makedirs(directory)
        await journal.retention.checkpoint_complete(journal.mark(), compact=True)

    with JournalMachine() as box:
        box.run(program)
        assert None not in box.persisted()


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["fail_next_sync", "fail_next_write", "full"])
def test_after_a_failed_write_or_sync_nothing_is_acknowledged_any_more(fault: str) -> None:
    """BI-17, DF-6: also not by a later sync that succeeds."""
    answers = Answers()

    async def program(journal: Journal) -> None:
        await started(journal)
        append(journal, 0, answers.of(0))
        await until(lambda: answers.ids == [0])
        mark = journal.mark()
        setattr(box.disk.faults, fault, True)
        for entry_id in range(1, 20):
            append(journal, entry_id, answers.of(entry_id), 2_000_000)  # beyond what is allocated already
            await asyncio.sleep(0.001)
        box.disk.faults.full = False
        journal.force(answers.of(100))
        append(journal, 20, answers.of(20))
        await asyncio.sleep(1)
        assert journal.mark() == mark
        with pytest.raises(FatalBookieError):
            await journal.room.wait(1)
        await journal.close()

    with JournalMachine(journalBufferedWritesThreshold=20_000, journalPreAllocSizeMB=1) as box:
        box.run(program)
        assert answers.ids == [0]
        assert len(box.fatal) == 1
        cause = box.fatal[0].__cause__
        assert isinstance(cause, OSError)
        if fault == "full":
            assert cause.errno == errno.ENOSPC
            assert "no space left" in str(box.fatal[0])


@pytest.mark.parametrize("seed", range(10))
def test_a_sync_that_ends_well_after_another_batch_failed_acknowledges_nothing(seed: int) -> None:
    answered_before_failure: list[bool] = []

    async def program(journal: Journal) -> None:
        await started(journal)
        note = box.disk._note

        def fail_the_write_after_the_first(what: str) -> None:
            if what.startswith("sync") and DIRECTORY in what:
                box.disk.faults.fail_next_write = True
            note(what)

        box.disk._note = fail_the_write_after_the_first
        for entry_id in range(20):
            append(journal, entry_id, lambda: answered_before_failure.append(not box.fatal), 10_000)
        await asyncio.sleep(1)

    with JournalMachine(seed, journalBufferedWritesThreshold=20_000) as box:
        box.run(program)
        assert len(box.fatal) == 1
        assert all(answered_before_failure)


def test_those_that_have_not_been_told_when_the_journal_fails_are_not_told() -> None:
    told: list[int] = []

    async def program(journal: Journal) -> None:
        await started(journal)

        def tell(entry_id: int) -> None:
            told.append(entry_id)
            if entry_id == DONE_AT_ONCE - 1:
                journal._failed(OSError("another batch failed"))

        for entry_id in range(2 * DONE_AT_ONCE):
            append(journal, entry_id, functools.partial(tell, entry_id), 10)
        await until(lambda: len(told) >= DONE_AT_ONCE)
        for _ in range(5):
            await asyncio.sleep(0)

    with JournalMachine() as box:
        box.run(program)
    assert told == list(range(DONE_AT_ONCE))


def test_a_file_that_failed_once_fails_always() -> None:
    """DF-6: the second sync would succeed, and prove nothing."""
    for fault, call in (("fail_next_sync", "sync"), ("fail_next_write", "write")):
        disk = new_disk(DIRECTORY)
        seal = SealHeader(5, 0, 0)
        file = JournalFile(SimulatedFiles(disk), DIRECTORY, 6, seal, alignment=512, step=1 << 20, drop_cache=True)
        end = file.write([b"record"], 1)
        setattr(disk.faults, fault, True)
        with pytest.raises(OSError, match="simulated"):
            file.sync(end) if call == "sync" else file.write([b"record"], 1)
        with pytest.raises(FatalBookieError):
            file.sync(end)
        with pytest.raises(FatalBookieError):
            file.write([b"record"], 1)


def test_a_new_file_that_cannot_be_made_is_fatal() -> None:
    answers = Answers()

    async def program(journal: Journal) -> None:
        await started(journal)
        original = box.disk.sync_directory

        def fail(path: str) -> None:
            if path == DIRECTORY:
                raise OSError(errno.EIO, "no directory sync")
            original(path)

        box.disk.sync_directory = fail  # type: ignore[method-assign]
        for entry_id in range(30):
            append(journal, entry_id, answers.of(entry_id), 100_000)
            await asyncio.sleep(0.005)
        await asyncio.sleep(1)

    with JournalMachine() as box:
        box.run(program)
        assert len(box.fatal) == 1
        assert answers.ids == list(range(len(answers.ids)))
        assert 10 <= len(answers.ids) < 20


def test_a_file_that_cannot_be_made_leaves_nothing_behind_and_the_error_tells_where() -> None:
    async def program(journal: Journal) -> None:
        await journal.replay(lambda _: None)
        box.disk.faults.full = True
        with pytest.raises(OSError, match=rf"journal 0 in {DIRECTORY} has no space left: .* lower journalMaxBackups"):
            journal.start()

    with JournalMachine() as box:
        box.run(program)
        assert box.journals() == []


# --- room ----------------------------------------------------------------------------------------


def test_waiters_for_room_are_served_in_order_and_memory_stays_bounded() -> None:
    """BI-26, FX-61."""

    async def program(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        order: list[int] = []
        most = 0

        async def writer(entry_id: int) -> None:
            nonlocal most
            if not journal.room.has(300_004):
                await journal.room.wait(300_004)
            append(journal, entry_id, answers.of(entry_id), 300_000)
            order.append(entry_id)
            most = max(most, journal.room.bytes)

        await asyncio.gather(*(writer(entry_id) for entry_id in range(20)))
        await until(lambda: len(answers.ids) == 20)
        assert order == list(range(20))
        assert most <= 1 << 20
        assert journal.room.bytes == journal.room.records == 0

    with JournalMachine(journalMaxMemorySizeMb=1, journalMaxSizeMB=64) as box:
        assert box.config.journalMaxMemorySizeMb == 1
        box.run(program)


def test_the_number_of_waiting_records_is_bounded() -> None:
    """BI-26."""

    async def program(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        for entry_id in range(5):
            assert journal.room.has(104)
            append(journal, entry_id, answers.of(entry_id))
        assert not journal.room.has(104)
        await journal.room.wait(104)
        assert journal.room.records < 5

    with JournalMachine(journalQueueSize=5) as box:
        box.run(program)


def test_one_append_larger_than_the_limit_has_room_when_nothing_waits() -> None:
    async def program(journal: Journal) -> bool:
        await started(journal)
        return journal.room.has(5 << 20)

    with JournalMachine(journalMaxMemorySizeMb=1) as box:
        assert box.run(program)


def test_a_waiter_that_gives_up_or_does_not_append_does_not_block_the_others() -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        append(journal, 0, answers.of(0), 900_000)
        impatient = asyncio.ensure_future(journal.room.wait(900_000))
        undecided = asyncio.ensure_future(journal.room.wait(900_000))
        last = asyncio.ensure_future(journal.room.wait(900_000))
        await asyncio.sleep(0)
        impatient.cancel()
        await undecided
        await last
        assert journal.room.has(900_000)

    with JournalMachine(journalMaxMemorySizeMb=1) as box:
        box.run(program)


def test_waiters_that_do_not_fit_together_and_ask_again_all_get_their_turn() -> None:
    """FX-57: nobody waits for ever."""

    async def program(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        turns = 0

        async def connection(number: int) -> None:
            nonlocal turns
            for entry_id in range(number * 3, number * 3 + 3):
                while not journal.room.has(700_004):
                    await journal.room.wait(700_004)
                    turns += 1
                append(journal, entry_id, answers.of(entry_id), 700_000)

        await asyncio.gather(*(connection(number) for number in range(4)))
        await until(lambda: len(answers.ids) == 12)
        assert turns <= 12, "who is admitted has room"

    with JournalMachine(journalMaxMemorySizeMb=1, journalMaxSizeMB=64) as box:
        box.run(program)


def test_nobody_takes_the_room_of_a_waiter_that_was_admitted() -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        seen: list[bool] = []

        def written() -> None:
            assert journal.room.bytes == 0
            seen.append(journal.room.has(100))

        append(journal, 0, written, 900_000, ack_before_sync=True)
        await journal.room.wait(900_000)
        assert seen == [False], "somebody was there first"
        assert journal.room.has(900_000)
        await asyncio.sleep(0)
        assert journal.room.has(100), "its turn is over, and nobody else waits"

    with JournalMachine(journalMaxMemorySizeMb=1) as box:
        box.run(program)


@pytest.mark.parametrize("when", ["waiting", "admitted"])
def test_a_waiter_that_is_cancelled_hands_its_turn_on(when: str) -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        append(journal, 0, answers.of(0), 900_000)
        first, second = (asyncio.ensure_future(journal.room.wait(900_000)) for _ in range(2))
        await asyncio.sleep(0)
        if when == "admitted":
            await until(lambda: journal.room.bytes == 0)
        first.cancel()
        await second
        assert first.cancelled() or when == "admitted"

    with JournalMachine(journalMaxMemorySizeMb=1) as box:
        box.run(program)


def test_a_waiter_whose_room_was_taken_by_a_record_is_the_first_in_the_row_again() -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        order: list[str] = []

        async def wait(name: str, size: int) -> None:
            await journal.room.wait(size)
            order.append(name)

        append(journal, 0, answers.of(0), 900_000)
        waiting = [asyncio.ensure_future(wait(name, size)) for name, size in (("large", 1 << 20), ("small", 100))]
        await asyncio.sleep(0)
        await until(lambda: journal.room.bytes == 0)
        journal.append([fence_record(LEDGER)], 20, 1, lambda: None)
        await asyncio.gather(*waiting)
        assert order == ["large", "small"]

    with JournalMachine(journalMaxMemorySizeMb=1) as box:
        box.run(program)


def test_waiters_hear_of_the_end_of_the_journal() -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        append(journal, 0, lambda: None, 900_000)
        waiting = [asyncio.ensure_future(journal.room.wait(900_000)) for _ in range(3)]
        await asyncio.sleep(0)
        box.disk.faults.fail_next_write = True
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        for _ in range(2):  # who asks later hears the same
            with pytest.raises(FatalBookieError) as late:
                await journal.room.wait(1)
            outcomes.append(late.value)
        assert [type(outcome) for outcome in outcomes] == [FatalBookieError] * 5
        assert len({id(outcome) for outcome in outcomes}) == 5, "each has a traceback of its own"
        (fatal,) = box.fatal
        for outcome in outcomes:
            assert isinstance(outcome, FatalBookieError)
            assert str(outcome) == str(fatal)
            assert outcome.__cause__ is fatal.__cause__ is not None

    with JournalMachine(journalMaxMemorySizeMb=1) as box:
        box.run(program)


# --- the end -------------------------------------------------------------------------------------


def test_close_completes_what_was_appended() -> None:
    answers = Answers()

    async def program(journal: Journal) -> None:
        await started(journal)
        for entry_id in range(25):
            append(journal, entry_id, answers.of(entry_id), 100_000)
        closing = asyncio.ensure_future(journal.close())
        await asyncio.sleep(0)
        append(journal, 99, answers.of(99))
        await closing
        await journal.close()

    with JournalMachine() as box:
        box.run(program)
        assert answers.ids == list(range(25))
        box.machine.kill()
        records = box.run(started)
        assert records is not None
        assert [record.entry_id for record in records] == list(range(25))


def test_everybody_who_closes_a_journal_waits_for_the_same_end() -> None:
    async def program(journal: Journal) -> None:
        await started(journal)
        answers = Answers()
        append(journal, 0, answers.of(0), 900_000)
        first, second, third = (asyncio.ensure_future(journal.close()) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, third)
        assert answers.ids == [0]

    with JournalMachine() as box:
        box.run(program)


def test_close_before_start() -> None:
    async def program(journal: Journal) -> LogMark:
        await journal.close()
        return journal.mark()

    with JournalMachine() as box:
        assert box.run(program) == START
