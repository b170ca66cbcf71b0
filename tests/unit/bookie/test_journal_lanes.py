"""Who writes and syncs a batch: the write lane, or the loop and the system without a thread."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bookkeeper.bookie.journal.file import CACHE_BEHIND, SMALL, JournalFile
from bookkeeper.bookie.journal.gathering import Batch
from bookkeeper.bookie.journal.lanes import REST_SECONDS, Lanes
from bookkeeper.bookie.journal.last_mark import START
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import BackgroundSync, File
from bookkeeper.runtime.stalls import STALL_SECONDS
from bookkeeper.simulation.world.world import SimulatedRuntime, World
from tests.support.journals import DIRECTORY


class Background(BackgroundSync):
    """Syncs when the test says so."""

    def __init__(self) -> None:
        self.file: File | None = None
        self.done: Callable[[OSError | None], None] | None = None
        self.refuses = False
        self.closed = False

    def start(self, file: File, done: Callable[[OSError | None], None]) -> bool:
        assert self.done is None, "one at a time"
        if self.refuses:
            return False
        self.file, self.done = file, done
        return True

    def sync(self, error: OSError | None = None) -> None:
        assert self.file is not None
        assert self.done is not None
        if error is None:
            self.file.fdatasync()
        done, self.done = self.done, None
        done(error)

    async def close(self) -> None:
        self.closed = True


class Case:
    def __init__(self, runtime: SimulatedRuntime, background: Background | None, **settings: Any) -> None:
        self.background = background
        runtime.background_sync = lambda: background  # type: ignore[method-assign]
        runtime.files.makedirs(DIRECTORY)
        self.runtime = runtime
        self.disk = runtime.incarnation.machine.disk
        self.lanes = Lanes(runtime, ServerConfiguration(**settings), 0, DIRECTORY)
        self.file: JournalFile = self.lanes.create(5, START)
        self.told: list[tuple[int | None, BaseException | None]] = []

    def write(self, size: int = 100) -> None:
        batch = Batch(sync=True)
        batch.pieces, batch.size, batch.count = [bytes(size)] if size else [], size, int(size > 0)
        self.lanes.write_and_sync(self.file, batch, lambda _, end, error: self.told.append((end, error)))

    async def outcome(self) -> tuple[int | None, BaseException | None]:
        for _ in range(1000):
            if self.told:
                return self.told.pop()
            await asyncio.sleep(0.001)
        raise AssertionError("nothing was told")


def run(program: Callable[[Case], Coroutine[Any, Any, None]], **settings: Any) -> None:
    with World(0) as world:
        machine = world.machine("bookie")

        async def main() -> None:
            runtime = machine.start()
            incarnation = machine.incarnation
            assert incarnation is not None

            async def body() -> None:
                case = Case(runtime, Background(), **settings)
                await program(case)
                await case.lanes.close()
                assert case.background is None or case.background.closed

            await world.spawn_on(incarnation, body(), "lanes")

        world.run(main())


def test_a_small_batch_is_written_at_once_and_synced_in_the_background() -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        for _ in range(3):
            before = case.file.end
            case.write()
            assert case.file.end > before, "written by the loop"
            await asyncio.sleep(0.1)
            assert case.told == [], "not synced yet"
            assert case.file.synced == before
            case.background.sync()
            assert case.told.pop() == (case.file.end, None)
            assert case.file.synced == case.file.end

    run(program)


@pytest.mark.parametrize("size", [0, SMALL + 1])
def test_the_lane_has_the_others(size: int) -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        before = case.file.end
        case.write(size)
        assert case.file.end == before
        assert case.background.done is None
        end, error = await case.outcome()
        assert error is None
        assert end == case.file.end == case.file.synced

    run(program)


def test_what_needs_more_space_than_is_allocated_is_the_lanes() -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        by_loop = by_lane = 0
        while case.file.end < 3 << 20:
            case.write(SMALL)
            if case.background.done is None:
                by_lane += 1
            else:
                by_loop += 1
                case.background.sync()
            assert (await case.outcome())[1] is None
        assert by_loop > 2 * by_lane > 0

    run(program, journalPreAllocSizeMB=1)


def test_the_lane_drops_what_is_behind_from_the_page_cache() -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        by_lane = 0
        while case.file.end < 4 * CACHE_BEHIND:
            case.write(SMALL)
            if case.background.done is None:
                by_lane += 1
            else:
                case.background.sync()
            assert (await case.outcome())[1] is None
        assert 1 <= by_lane <= 4
        assert case.file.synced - case.file._dropped <= 2 * CACHE_BEHIND + 2 * SMALL

    run(program, journalPreAllocSizeMB=64)


def test_what_the_system_refuses_to_sync_is_the_lanes() -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        case.background.refuses = True
        before = case.file.end
        case.write()
        assert case.file.end > before
        assert await case.outcome() == (case.file.end, None)
        assert case.file.synced == case.file.end

    run(program)


def test_without_syncs_in_the_background_the_lane_has_all() -> None:
    async def program(case: Case) -> None:
        case.lanes._background = case.background = None
        before = case.file.end
        case.write()
        assert case.file.end == before
        assert await case.outcome() == (case.file.end, None)

    run(program)


def test_a_failed_sync_in_the_background_is_told_and_is_the_files_end() -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        case.write()
        before = case.file.synced
        case.background.sync(OSError(errno.EIO, "broken"))
        end, error = case.told.pop()
        assert end is None
        assert isinstance(error, OSError)
        assert case.file.synced == before
        case.write()
        assert "failed before" in str((await case.outcome())[1])

    run(program)


def test_a_failed_write_on_the_loop_is_told_later() -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        case.disk.faults.fail_next_write = True
        case.write()
        assert case.told == [], "not before the call has returned"
        end, error = await case.outcome()
        assert end is None
        assert isinstance(error, OSError)
        assert case.background.done is None

    run(program)


def test_after_a_write_that_took_long_the_lane_writes_for_a_while() -> None:
    async def program(case: Case) -> None:
        assert case.background is not None
        late = 0.0
        now = case.runtime.now
        case.runtime.now = lambda: now() + late  # type: ignore[method-assign]
        write = case.file.write

        def slow(pieces: Any, count: int) -> int:
            nonlocal late
            late += STALL_SECONDS
            return write(pieces, count)

        case.file.write = slow  # type: ignore[method-assign]
        case.write()
        case.background.sync()
        assert (await case.outcome())[1] is None
        case.file.write = write  # type: ignore[method-assign]
        case.write()
        assert case.background.done is None
        assert (await case.outcome())[1] is None
        late += REST_SECONDS
        case.write()
        assert case.background.done is not None
        case.background.sync()
        assert (await case.outcome())[1] is None

    run(program)
