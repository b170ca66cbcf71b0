"""Which flushes go past the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bookkeeper.bookie.storage.entry_log.page_cache import BYTES_PER_READ, LARGE_ENTRY, PageCacheChoice
from bookkeeper.runtime import File
from bookkeeper.runtime.api import Buffer
from bookkeeper.runtime.disk.files import RealFile, RealFiles
from bookkeeper.runtime.real import RealRuntime
from tests.support.storage import add, check, opened

SIZE = 64 << 20
READS = SIZE // BYTES_PER_READ


def flush(choice: PageCacheChoice, start: float, end: float, reads: int = 0) -> int | None:
    chosen = choice.for_flush(start, SIZE, reads)
    choice.flushed(end)
    return chosen


def test_a_flush_goes_past_it_when_the_one_before_took_longer_than_the_time_since() -> None:
    choice = PageCacheChoice("auto")
    assert flush(choice, 100.0, 103.0) is None  # nothing is known yet
    assert flush(choice, 105.9, 107.0) == LARGE_ENTRY
    assert flush(choice, 108.1, 108.2) is None
    assert flush(choice, 108.25, 110.0) == LARGE_ENTRY
    assert flush(choice, 110.0, 111.0) == LARGE_ENTRY


def test_reads_of_the_logs_keep_it_in_use() -> None:
    choice = PageCacheChoice("auto")
    flush(choice, 0.0, 3.0)
    assert flush(choice, 3.0, 6.0, reads=READS) == LARGE_ENTRY
    assert flush(choice, 6.0, 9.0, reads=READS + READS + 1) is None
    assert flush(choice, 9.0, 12.0, reads=READS + READS + 1) == LARGE_ENTRY  # they have ended


@pytest.mark.parametrize(("setting", "chosen"), [(True, 0), (False, None)])
def test_who_has_said_what_he_wants_gets_it(setting: bool, chosen: int | None) -> None:
    choice = PageCacheChoice(setting)
    for start, reads in ((0.0, 0), (3.0, 0), (6.0, 10 * READS), (60.0, 10 * READS)):
        assert flush(choice, start, start + 3.0, reads) == chosen
    assert choice.for_moves() == chosen


def test_compaction_leaves_the_choice_to_who_has_set_it() -> None:
    choice = PageCacheChoice("auto")
    flush(choice, 0.0, 3.0)
    flush(choice, 3.0, 6.0)
    assert choice.for_moves() is None


class SlowLogs(RealRuntime):
    """By its clock the sync of an entry log takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self.past = 0  # bytes written past the page cache
        self.synced = 0.0
        runtime = self

        class Log(RealFile):
            def write_through(self, pieces: Sequence[Buffer], offset: int) -> None:
                runtime.past += sum(map(len, pieces))
                super().write_through(pieces, offset)

            def fdatasync(self) -> None:
                super().fdatasync()
                runtime.synced += 1.0

        class Files(RealFiles):
            def open(self, path: str, mode: str = "r") -> File:
                return Log(path, mode) if path.endswith(".log") else super().open(path, mode)

        self.files = Files()

    def now(self) -> float:
        return super().now() + self.synced


async def test_a_directory_that_only_flushes_goes_past_it_until_somebody_reads_its_logs(tmp_path: Path) -> None:
    runtime = SlowLogs()
    async with opened(tmp_path, runtime=runtime, dbStorage_readAheadCacheBatchSize=0) as storage:

        async def flushed(ledger_id: int, size: int) -> int:
            """Bytes past the page cache."""
            before = runtime.past
            await add(storage, ledger_id, range(300), size)
            await storage.flush()
            return runtime.past - before

        assert await flushed(1, 5000) == 0  # nothing is known yet
        assert await flushed(2, 5000) >= 300 * 5000
        assert await flushed(3, 1000) == 0
        await check(storage, 1, 300, 5000)
        assert await flushed(4, 5000) == 0
        assert await flushed(5, 5000) >= 300 * 5000
        for ledger_id, size in ((2, 5000), (3, 1000), (4, 5000), (5, 5000)):
            await check(storage, ledger_id, 300, size)
