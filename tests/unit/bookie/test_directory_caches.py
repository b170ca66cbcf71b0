"""What is in memory of a ledger directory: the newest version of an entry is the one that is seen (storage.caches)."""

from __future__ import annotations

import asyncio
import itertools
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.storage.caches import LONGEST_REST_SECONDS, Caches, FlushPace
from bookkeeper.bookie.storage.entry_log.page_cache import PageCacheChoice
from bookkeeper.bookie.storage.entry_log.reader import Records
from bookkeeper.bookie.storage.write_cache import WriteCache
from bookkeeper.runtime.real import RealRuntime
from tests.support.storage import add, check, nobody, opened

LEDGER = 7

Steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 12)),
        st.tuples(st.just("swap"), st.just(0)),
        st.tuples(st.just("flushed"), st.just(0)),
        st.tuples(st.just("read ahead"), st.integers(0, 12)),
    ),
    max_size=40,
)


def record(entry: bytes) -> bytes:
    return len(entry).to_bytes(4, "big") + entry


class Case:
    """Caches beside what the logs have, and every version of every entry."""

    def __init__(self) -> None:
        self.caches = Caches(1 << 20, 1 << 20, PageCacheChoice(False), nobody)
        self.newest: dict[int, bytes] = {}
        self.logs: dict[int, bytes] = {}

    def add(self, entry_id: int) -> None:
        entry = b"%d.%d" % (entry_id, len(self.newest) + sum(map(len, self.newest.values())))
        self.caches.add_entry(LEDGER, entry_id, entry)
        self.newest[entry_id] = entry

    def swap(self, _: int) -> None:
        if self.caches.flushing is None:
            self.caches.swap()

    def flushed(self, _: int) -> None:
        flushing = self.caches.flushing
        if flushing is not None:
            for ledger in flushing.ledgers.values():
                for ids, entries in ledger.in_order():
                    self.logs |= dict(zip(ids, entries, strict=True))
            self.caches.flushed()

    def read_ahead(self, first: int) -> None:
        """As a read does it that found the entries one after the other in a log."""
        raw, offsets = b"", array("I", [0])
        while (entry := self.logs.get(first + len(offsets) - 1)) is not None:
            raw += record(entry)
            offsets.append(len(raw))
        if len(offsets) > 1:
            self.caches.read_cache.put(LEDGER, first, Records(raw, offsets))

    def run(self, steps: list[tuple[str, int]]) -> None:
        for what, number in steps:
            getattr(self, what.replace(" ", "_"))(number)

    def held(self) -> set[int]:
        return {entry_id for buffer in self.caches.written(LEDGER) for entry_id in buffer.ids()}


@given(Steps)
def test_what_is_found_is_the_newest_version(steps: list[tuple[str, int]]) -> None:
    case = Case()
    case.run(steps)
    for entry_id in range(15):
        found = case.caches.get(LEDGER, entry_id)
        assert found in (None, case.newest.get(entry_id))
        assert found is not None or entry_id not in case.held()
    assert case.caches.last(LEDGER) == max(case.held(), default=-1)


@given(Steps, st.integers(0, 12), st.integers(1, 15), st.integers(1, 60))
def test_a_run_has_the_newest_version_of_each_entry(
    steps: list[tuple[str, int]], first: int, max_count: int, max_bytes: int
) -> None:
    case = Case()
    case.run(steps)
    records, count = case.caches.run(LEDGER, first, max_count, max_bytes)
    assert records == b"".join(record(case.newest[first + i]) for i in range(count))
    assert count <= max_count
    assert count <= 1 or len(records) <= max_bytes
    assert bool(count) == (case.caches.get(LEDGER, first) is not None)


@given(Steps, st.integers(0, 12), st.integers(1, 15))
def test_what_comes_from_the_logs_ends_before_what_a_write_cache_has(
    steps: list[tuple[str, int]], first: int, count: int
) -> None:
    case = Case()
    case.run(steps)
    uncached = case.caches.uncached(LEDGER, first, count)
    between = [entry_id for entry_id in case.held() if first < entry_id < first + count]
    assert uncached == min(between, default=first + count) - first


def test_a_deleted_ledger_is_in_no_cache_and_what_is_being_read_is_obsolete() -> None:
    case = Case()
    case.run([("add", 0), ("swap", 0), ("flushed", 0), ("read ahead", 0), ("add", 1), ("swap", 0), ("add", 2)])
    epoch = case.caches.epoch
    case.caches.drop_ledger(LEDGER)
    assert [case.caches.get(LEDGER, entry_id) for entry_id in range(3)] == [None] * 3
    assert case.caches.epoch > epoch


def test_reads_under_way_are_obsolete_after_a_flush_and_after_a_log_was_removed() -> None:
    caches = Caches(1 << 20, 1 << 20, PageCacheChoice(False), nobody)
    seen = [caches.epoch]
    caches.swap()
    assert isinstance(caches.flushing, WriteCache)
    seen.append(caches.epoch)
    caches.flushed()
    seen.append(caches.epoch)
    caches.log_removed()
    seen.append(caches.epoch)
    assert seen == [0, 0, 1, 2]


def test_what_a_deleted_ledger_took_is_no_room_until_its_cache_goes() -> None:
    cache = WriteCache(1000, nobody)
    assert cache.has_room(5000, 1)  # an empty one takes anything
    cache.add(LEDGER, 0, bytes(900))
    cache.drop_ledger(LEDGER)
    assert cache.entries == 0
    assert not cache.has_room(200, 1)
    assert WriteCache(1000, nobody).has_room(200, 1)


class Worker(RealRuntime):
    """What a flush has worked, and how long it rested after each piece."""

    def __init__(self) -> None:
        super().__init__()
        self.worked = 5.0
        self.rests: list[float] = []

    def worked_seconds(self) -> float:
        return self.worked

    def give_way(self, seconds: float = 0.0) -> None:
        self.rests.append(seconds)


def paced(adds: list[int], seconds: float = 0.002, *, rests: bool = True) -> list[float]:
    """The rests of a flush; after each of its pieces an entry of so many bytes was added, none for 0."""
    worker, caches = Worker(), Caches(2 << 20, 1 << 20, PageCacheChoice(False), nobody)
    pace = FlushPace(worker, caches, rests=rests)
    for number, size in enumerate(adds):
        worker.worked += seconds
        if size:
            caches.add_entry(LEDGER, number, bytes(size))
        pace()
    assert pace.rested == pytest.approx(sum(worker.rests))
    return worker.rests


def test_a_flush_rests_for_as_long_as_it_worked_while_entries_are_added() -> None:
    first, *rests = paced([10] * 5)
    assert first == 0.0, "what the worker did before is no part of the flush"
    assert rests == pytest.approx([0.002] * 4)


def test_a_flush_that_nobody_adds_beside_does_not_rest() -> None:
    assert paced([0] * 5) == [0.0] * 5
    assert paced([10, 10, 0, 10]) == pytest.approx([0.0, 0.002, 0.0, 0.002])


def test_a_flush_hurries_when_the_other_cache_is_half_full() -> None:
    assert paced([10, 10, 600_000, 10, 10]) == pytest.approx([0.0, 0.002, 0.0, 0.0, 0.0])


def test_a_flush_does_not_rest_where_flushes_take_most_of_the_time() -> None:
    assert paced([10] * 5, rests=False) == [0.0] * 5
    choice = PageCacheChoice("auto")
    choice.for_flush(10.0, 1, 0)
    assert not choice.busy
    choice.flushed(12.0)
    choice.for_flush(13.0, 1, 0)
    assert choice.busy
    choice.flushed(15.0, rested=1.5)  # which is no part of what it took
    choice.for_flush(16.0, 1, 0)
    assert not choice.busy


def test_a_rest_is_bounded() -> None:
    assert paced([10] * 3, seconds=1.0) == [0.0, LONGEST_REST_SECONDS, LONGEST_REST_SECONDS]


async def test_each_flush_has_its_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its pieces but the first are followed by a rest when the loop adds an entry after each."""
    pieces, rests = itertools.count(), list[float]()
    entry_ids = itertools.count(10_000)
    async with opened(tmp_path) as storage:
        loop = asyncio.get_running_loop()

        def give_way(_runtime: RealRuntime, seconds: float = 0.0) -> None:
            rests.append(seconds)
            asyncio.run_coroutine_threadsafe(add(storage, 1, [next(entry_ids)]), loop).result(60)

        monkeypatch.setattr(RealRuntime, "give_way", give_way)
        monkeypatch.setattr(RealRuntime, "worked_seconds", lambda _runtime: next(pieces) / 1000)
        await add(storage, 1, range(10_000))
        await storage.flush()
        monkeypatch.undo()
        assert storage.directories[0].caches.flushes.succeeded == 1, "what was added fits into one write cache"
        rested = [rest for rest in rests if rest]
        assert len(rested) == next(pieces) - 1 > 10
        assert rested == pytest.approx([0.001] * len(rested))
        await check(storage, 1, next(entry_ids))
