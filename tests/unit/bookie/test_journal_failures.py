"""A journal whose disk fails acknowledges nothing more (spec bookie-server §2.5, safety §3.3)."""

from __future__ import annotations

import asyncio
import errno
import functools

import pytest

from bookkeeper.bookie.journal.file import JournalFile
from bookkeeper.bookie.journal.format import SealHeader
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.telling import DONE_AT_ONCE
from bookkeeper.errors import FatalBookieError
from bookkeeper.simulation.world.disk import SimulatedFiles
from tests.support.disk import new_disk
from tests.support.journals import DIRECTORY, Answers, JournalMachine, append, started
from tests.support.waiting import until


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
