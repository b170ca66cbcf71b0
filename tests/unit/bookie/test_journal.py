"""The journal at work, on a simulated machine (spec bookie-storage §3, bookie-server §2.5, safety §3.2, §3.3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper.bookie.file_names import journal_name
from bookkeeper.bookie.journal.format import FENCE, LEDGER_KEY, fence_record, ledger_key_record
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.last_mark import START, LogMark
from bookkeeper.simulation.world.disk import Inode
from tests.support import java_journal
from tests.support.disk import put
from tests.support.journals import DIRECTORY, LEDGER, LEDGER_DIRECTORIES, Answers, JournalMachine, append, started
from tests.support.waiting import until


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
        return journal.stats.batches, journal.stats.sync.succeeded, journal.stats.records

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
