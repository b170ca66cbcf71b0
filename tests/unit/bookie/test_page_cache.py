"""Which flushes go past the page cache."""

from __future__ import annotations

import pytest

from bookkeeper.bookie.storage.entry_log.page_cache import BYTES_PER_READ, LARGE_ENTRY, PageCacheChoice

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
