"""Checkpoints: order, failures, who asks for them (spec bookie-storage §8; safety BI-6, BI-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from bookkeeper.bookie.checkpoint import Checkpointer
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.last_mark import LogMark
from bookkeeper.bookie.storage.api import LedgerStorage
from bookkeeper.errors import FatalBookieError, NoWritableLedgerDirError
from bookkeeper.simulation.world.world import World


class FakeJournal:
    """Notes what it is told, with the story so far."""

    def __init__(self, index: int, story: list[str]) -> None:
        self.index = index
        self.position = 1
        self.story = story
        self.failure: Exception | None = None
        self.retention = self  # what is asked of it is here, too

    def mark(self) -> LogMark:
        self.story.append(f"mark {self.index}@{self.position}")
        return LogMark(1, self.position)

    async def checkpoint_complete(self, mark: LogMark, compact: bool) -> None:
        if self.failure is not None:
            raise self.failure
        self.story.append(f"complete {self.index}@{mark.offset}{' compact' if compact else ''}")


class FakeStorage:
    def __init__(self, story: list[str]) -> None:
        self.story = story
        self.failure: Exception | None = None
        self.flushing = 0

    async def flush(self) -> None:
        self.flushing += 1
        assert self.flushing == 1, "two flushes at a time"
        self.story.append("flush begins")
        await asyncio.sleep(0.1)
        self.flushing -= 1
        if self.failure is not None:
            raise self.failure
        self.story.append("flush ends")


class Case:
    def __init__(self, world: World, interval: float) -> None:
        self.story: list[str] = []
        self.journals = [FakeJournal(index, self.story) for index in range(2)]
        self.storage = FakeStorage(self.story)
        self.full = 0
        self.fatal: list[BaseException] = []
        self.checkpointer = Checkpointer(
            world.machine("bookie").start(),
            interval,
            cast(list[Journal], self.journals),
            cast(LedgerStorage, self.storage),
            on_disks_full=self._disks_full,
            on_fatal=self.fatal.append,
        )

    def _disks_full(self) -> None:
        self.full += 1


def run(body: Callable[[Case], Coroutine[Any, Any, None]], interval: float = 10.0) -> Case:
    async def main() -> Case:
        case = Case(world, interval)
        await body(case)
        await case.checkpointer.close()
        return case

    with World(3) as world:
        return world.run(main())


ONE = ["mark 0@1", "mark 1@1", "flush begins", "flush ends", "complete 0@1", "complete 1@1"]


def test_marks_are_taken_before_the_flush_and_completed_after_it() -> None:
    """I3, BI-6, BI-11, FX-33."""

    async def body(case: Case) -> None:
        flushing = asyncio.ensure_future(case.checkpointer.flush())
        await asyncio.sleep(0.05)
        for journal in case.journals:
            journal.position = 2
        await flushing

    assert run(body).story == ONE


def test_the_timer_and_requests_make_checkpoints_that_delete_journals() -> None:
    """FX-60."""

    async def body(case: Case) -> None:
        case.checkpointer.start()
        await asyncio.sleep(9)
        assert case.story == []
        await asyncio.sleep(2)
        assert case.story == [*ONE[:4], "complete 0@1 compact", "complete 1@1 compact"]
        for _ in range(3):
            case.checkpointer.request()
        await asyncio.sleep(1)
        assert case.story.count("flush ends") == 2
        await asyncio.sleep(9.5)
        assert case.story.count("flush ends") == 3

    run(body)


def test_checkpoints_do_not_overlap() -> None:
    async def body(case: Case) -> None:
        case.checkpointer.start()
        case.checkpointer.request()
        await asyncio.gather(*(case.checkpointer.flush() for _ in range(3)))
        await asyncio.sleep(1)
        assert case.story.count("flush ends") == 4

    run(body)


def test_a_failed_flush_moves_no_mark_and_is_told_to_who_asked() -> None:
    """BI-12, FX-36."""

    async def body(case: Case) -> None:
        case.storage.failure = OSError("the disk")
        with pytest.raises(OSError, match="the disk"):
            await case.checkpointer.flush()

    case = run(body)
    assert not any(line.startswith("complete") for line in case.story)
    assert case.fatal == []


def test_a_failed_flush_in_the_background_is_fatal() -> None:
    """BI-17, FX-35."""

    async def body(case: Case) -> None:
        case.storage.failure = FatalBookieError("the disk")
        case.checkpointer.start()
        case.checkpointer.request()
        await asyncio.sleep(30)

    case = run(body)
    assert case.story.count("flush begins") == 1
    assert not any(line.startswith("complete") for line in case.story)
    assert [str(error) for error in case.fatal] == ["the disk"]


@pytest.mark.parametrize("failure", [NoWritableLedgerDirError("all full"), OSError("no space")])
def test_full_disks_are_reported_and_tried_again(failure: Exception) -> None:
    async def body(case: Case) -> None:
        case.storage.failure = failure
        case.checkpointer.start()
        case.checkpointer.request()
        await asyncio.sleep(1)
        assert case.full == 1
        case.storage.failure = None
        await asyncio.sleep(10)
        assert case.story.count("flush ends") == 1

    case = run(body)
    assert case.fatal == []


def test_a_mark_that_cannot_be_written_does_not_keep_other_journals_from_theirs() -> None:
    async def body(case: Case) -> None:
        case.journals[0].failure = OSError("full")
        await case.checkpointer.flush()

    case = run(body)
    assert case.story[-1] == "complete 1@1"
    assert case.full == 1
    assert case.fatal == []


def test_close_in_the_middle_of_a_checkpoint_lets_it_finish() -> None:
    async def body(case: Case) -> None:
        case.checkpointer.start()
        case.checkpointer.request()
        await asyncio.sleep(0.05)
        await case.checkpointer.close()
        await asyncio.sleep(1)

    assert run(body).story == [*ONE[:4], "complete 0@1 compact", "complete 1@1 compact"]
