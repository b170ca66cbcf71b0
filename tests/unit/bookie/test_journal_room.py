"""The memory of a journal is bounded: who appends waits for room."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.bookie.journal.format import fence_record
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.errors import FatalBookieError
from tests.support.journals import LEDGER, Answers, JournalMachine, append, started
from tests.support.waiting import until


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
