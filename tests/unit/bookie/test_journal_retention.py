"""Marks of a journal, and which of its files are deleted (spec bookie-storage §3, safety §3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.last_mark import LogMark
from tests.support.journals import LEDGER_DIRECTORIES, Answers, JournalMachine, append, started
from tests.support.waiting import until


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
