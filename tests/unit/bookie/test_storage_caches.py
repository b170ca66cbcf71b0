from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.file_names import log_name
from bookkeeper.bookie.storage import directory_jobs as jobs
from bookkeeper.bookie.storage.directory_jobs import DirectoryOptions
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.bookie.storage.entry_log.reader import Records, read_records
from bookkeeper.bookie.storage.packing import CHUNK, INDEX_CHUNK
from bookkeeper.bookie.storage.read_cache import EMPTIED_AT_ONCE, ReadCache
from bookkeeper.bookie.storage.write_cache import AGED_SECONDS, Aging, LedgerBuffer, WriteCache
from bookkeeper.protocol.messages import V2, AddRun
from bookkeeper.runtime.real import RealRuntime
from tests.support.storage import entry, nobody, record

# --- write cache ---


class Collections(RealRuntime):
    """When a collection was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 100.0
        self.due: list[float] = []

    def now(self) -> float:
        return self.time

    def collect_young(self, after: float = 0.0) -> None:
        self.due.append(self.time + after)


@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(0, 3)), max_size=50))
def test_each_ledger_that_begins_is_collected_soon_and_once(adds: list[tuple[float, int]]) -> None:
    runtime = Collections()
    cache = WriteCache(1 << 20, Aging(runtime).ledger_begins)
    begun: list[float] = []
    for number, (pause, ledger_id) in enumerate(adds):
        runtime.time += pause
        if ledger_id not in cache.ledgers:
            begun.append(runtime.time)
        cache.add(ledger_id, number, b"x")
    assert all(any(at < due <= at + AGED_SECONDS for due in runtime.due) for at in begun)
    assert all(later - sooner >= AGED_SECONDS * 0.999 for sooner, later in pairwise(runtime.due))
    assert len(runtime.due) <= len(begun)


operations = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 3)), max_size=60)


@given(operations)
def test_write_cache_is_a_map_of_the_last_versions(adds: list[tuple[int, int, int]]) -> None:
    cache = WriteCache(1 << 20, nobody)
    model: dict[int, dict[int, bytes]] = {}
    for ledger, entry_id, version in adds:
        data = entry(ledger, entry_id, version * 10, version)
        cache.add(ledger, entry_id, data)
        model.setdefault(ledger, {})[entry_id] = data
    for ledger in range(3):
        held = model.get(ledger, {})
        for entry_id in range(14):
            assert cache.get(ledger, entry_id) == held.get(entry_id)
        if held:
            buffer = cache.ledgers[ledger]
            assert buffer.ids() == sorted(held)
            assert buffer.last() == max(held)
            assert buffer.least() == min(held)
            for start in range(13):
                for end in range(start, 14):
                    assert buffer.first_in(start, end) == min((i for i in held if start <= i < end), default=end)
            assert len(buffer) == len(held)
            ordered = [pair for ids, entries in buffer.in_order() for pair in zip(ids, entries, strict=True)]
            assert ordered == sorted(held.items())
            for first in range(13):
                part = buffer.slice(first, 100)
                assert part == [held[first + i] for i in range(len(part))]
                assert bool(part) == (first in held)
    assert list(cache.ledgers) == list(model)
    assert cache.used >= sum(len(data) for held in model.values() for data in held.values())


runs = st.lists(
    st.lists(st.integers(0, 30), max_size=6) | st.lists(st.integers(0, 30), unique=True).map(sorted), max_size=8
)


@given(runs)
def test_a_run_is_added_as_its_entries_would_be(rows: list[list[int]]) -> None:
    together, singly = WriteCache(1 << 20, nobody), WriteCache(1 << 20, nobody)
    for version, ids in enumerate(rows):
        entries = [entry(1, entry_id, version, version) for entry_id in ids]
        together.add_run(1, ids, entries)
        for entry_id, data in zip(ids, entries, strict=True):
            singly.add(1, entry_id, data)
    assert_alike(together, singly)


@given(runs)
def test_runs_of_several_ledgers_are_added_as_each_would_be(rows: list[list[int]]) -> None:
    together, singly = WriteCache(1 << 20, nobody), WriteCache(1 << 20, nobody)
    both = [
        AddRun(number % 3, b"", 0, 0, V2, ids, [entry(number % 3, entry_id, number, number) for entry_id in ids])
        for number, ids in enumerate(rows)
        if ids
    ]
    together.add_runs(both)
    for run in both:
        singly.add_run(run.ledger_id, run.entry_ids, run.entries)
    assert_alike(together, singly)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12))))
def test_entries_of_many_ledgers_are_added_as_each_would_be(rows: list[tuple[int, int]]) -> None:
    together, singly = WriteCache(1 << 20, nobody), WriteCache(1 << 20, nobody)
    entries = [entry(ledger_id, entry_id, number, number) for number, (ledger_id, entry_id) in enumerate(rows)]
    for part in (slice(0, len(rows) // 2), slice(len(rows) // 2, None)):
        together.add_mixed([row[0] for row in rows[part]], [row[1] for row in rows[part]], entries[part])
    for (ledger_id, entry_id), data in zip(rows, entries, strict=True):
        singly.add(ledger_id, entry_id, data)
    assert_alike(together, singly)


def assert_alike(one: WriteCache, other: WriteCache) -> None:
    assert one.used == other.used
    assert one.ledgers.keys() == other.ledgers.keys()
    for buffer, expected in zip(one.ledgers.values(), other.ledgers.values(), strict=True):
        assert all(getattr(buffer, name) == getattr(expected, name) for name in buffer.__slots__)


def test_an_empty_cache_has_room_for_anything() -> None:
    cache = WriteCache(1000, nobody)
    assert cache.has_room(5_000_000, 1)
    cache.add(1, 0, bytes(1000))
    assert not cache.has_room(1, 1)


def in_order(count: int) -> list[int]:
    return list(range(count))


def striped(count: int) -> list[int]:
    return [i * 3 // 2 for i in range(count)]


@pytest.mark.parametrize("ids", [in_order, striped])
@pytest.mark.parametrize("size", [10, 100, 1000])
def test_the_memory_counted_is_the_memory_taken(ids: Callable[[int], list[int]], size: int) -> None:
    cache = WriteCache(1 << 30, nobody)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for entry_id in ids(20_000):
            cache.add(1, entry_id + 1_000_000, bytes(size))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= cache.used <= 2 * taken


# --- read cache ---


def records(ledger: int, first: int, count: int, size: int = 20) -> Records:
    pieces = [record(entry(ledger, first + i, size)) for i in range(count)]
    offsets = array("I", [0])
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return Records(b"".join(pieces), offsets)


puts = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 10)), max_size=40)


@given(puts, st.integers(1000, 20_000))
def test_read_cache_gives_the_right_bytes_or_nothing(blocks: list[tuple[int, int, int]], limit: int) -> None:
    cache = ReadCache(limit)
    for ledger, first, count in blocks:
        cache.put(ledger, first, records(ledger, first, count))
        assert cache.used <= limit
        for entry_id in range(52):
            found = cache.get(ledger, entry_id)
            assert found is None or found == entry(ledger, entry_id)
            run, number = cache.slice(ledger, entry_id, 5, 200)
            assert (number > 0) == (found is not None)
            assert number <= 3  # 200 bytes
            assert run == b"".join(record(entry(ledger, entry_id + i)) for i in range(number))
        if 400 + len(records(ledger, first, count).raw) + 44 <= limit // 4:
            assert cache.get(ledger, first) == entry(ledger, first)


def test_a_slice_gives_at_least_one_entry() -> None:
    cache = ReadCache(1 << 20)
    cache.put(1, 0, records(1, 0, 3, 1000))
    assert cache.slice(1, 1, 10, 5) == (record(entry(1, 1, 1000)), 1)


def test_a_forgotten_ledger_is_gone_and_its_memory_free() -> None:
    cache = ReadCache(100_000)
    cache.put(1, 0, records(1, 0, 10, 1000))
    cache.put(2, 0, records(2, 0, 10, 1000))
    used = cache.used
    cache.forget(1)
    assert cache.get(1, 0) is None
    assert cache.get(2, 0) is not None
    assert cache.used < used - 10_000
    cache.forget(1)
    cache.put(1, 5, records(1, 5, 1))
    assert cache.get(1, 5) == entry(1, 5)


def test_oldest_blocks_leave_first() -> None:
    cache = ReadCache(10_000)
    for first in range(0, 100, 10):
        cache.put(1, first, records(1, first, 10, 100))
    held = [first for first in range(0, 100, 10) if cache.get(1, first) is not None]
    assert held == list(range(100 - 10 * len(held), 100, 10))
    assert held
    assert cache.used <= 10_000


def test_the_memory_of_the_read_cache_is_what_it_counts() -> None:
    cache = ReadCache(1 << 20)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for ledger in range(15):
            for first in range(0, 1000, 100):
                cache.put(ledger, first, records(ledger, first, 100, 100))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.5 * cache.used <= taken <= 1.1 * cache.used + 50_000


@given(
    st.lists(
        st.tuples(st.sampled_from(["one", "block", "forget"]), st.integers(0, 2), st.integers(0, 30)), max_size=60
    ),
    st.integers(1500, 12_000),
)
def test_entries_kept_one_by_one_are_right_or_gone(steps: list[tuple[str, int, int]], limit: int) -> None:
    cache = ReadCache(limit)
    kept: dict[int, set[int]] = {}
    for what, ledger, entry_id in steps:
        if what == "one":
            cache.put_one(ledger, entry_id, entry(ledger, entry_id))
            kept.setdefault(ledger, set()).add(entry_id)
        elif what == "block":
            _put_block(cache, ledger, entry_id, 3)
            kept.setdefault(ledger, set()).update(range(entry_id, entry_id + 3))
        else:
            cache.forget(ledger)
            kept.pop(ledger, None)
        assert cache.used <= limit
        for other in range(3):
            for number in range(34):
                found = cache.get(other, number)
                assert found is None or (number in kept.get(other, ()) and found == entry(other, number))
        assert cache.entries == _all_entries(cache)
    for ledger in range(3):
        cache.forget(ledger)
    assert cache.entries == 0


def _all_entries(cache: ReadCache) -> int:
    """One by one, as the count must be."""
    in_blocks = [len(block.offsets) - 1 for held in cache._ledgers.values() for block in held.blocks]
    return sum(in_blocks) + sum(map(len, cache._singles.values()))


def _put_block(cache: ReadCache, ledger: int, first: int, count: int) -> None:
    records = [record(entry(ledger, first + i)) for i in range(count)]
    offsets = array("I", [sum(map(len, records[:i])) for i in range(count + 1)])
    cache.put(ledger, first, Records(b"".join(records), offsets))


def test_an_entry_kept_by_itself_leaves_with_its_turn() -> None:
    cache = ReadCache(40 * (len(entry(1, 0)) + 250))
    for entry_id in range(50):
        cache.put_one(1, entry_id, entry(1, entry_id))
        cache.put_one(1, entry_id, entry(1, entry_id))
    assert [entry_id for entry_id in range(50) if cache.get(1, entry_id) is not None] == list(range(10, 50))
    cache.put_one(1, 77, bytes(cache.limit // 4 + 1))  # too large to be kept
    assert cache.get(1, 77) is None


@pytest.mark.parametrize("kind", ["one", "block"])
def test_the_memory_of_a_forgotten_ledger_comes_back_in_pieces(kind: str) -> None:
    cache = ReadCache(100 << 20)
    for entry_id in range(3 * EMPTIED_AT_ONCE):
        if kind == "one":
            cache.put_one(1, entry_id, entry(1, entry_id, 1000))
        else:
            cache.put(1, entry_id, records(1, entry_id, 1, 1000))
    cache.put(2, 0, records(2, 0, 1))
    assert cache.entries == 3 * EMPTIED_AT_ONCE + 1
    left = [cache.used]
    cache.forget(1)
    assert cache.entries == 1
    assert all(cache.get(1, entry_id) is None for entry_id in range(3 * EMPTIED_AT_ONCE))
    cache.put_one(1, 0, b"new")
    left.append(cache.used)
    for other in (7, 8):
        cache.forget(other)  # nothing of it is here
        left.append(cache.used)
    freed = [before - after for before, after in pairwise(left)]
    assert freed[0] == pytest.approx(2 * EMPTIED_AT_ONCE * 1000, rel=0.2)
    assert freed[1] == pytest.approx(EMPTIED_AT_ONCE * 1000, rel=0.2)
    assert freed[2] == 0
    assert cache.get(1, 0) == b"new"
    cache.limit = 600
    cache.put_one(3, 0, b"newer")  # all else is too old now
    assert cache.used <= 600
    assert [cache.get(ledger, 0) for ledger in (1, 2, 3)] == [b"new", None, b"newer"]


def test_what_was_forgotten_may_leave_before_its_memory_came_back() -> None:
    cache = ReadCache(2000 * (len(entry(1, 0)) + 250))
    for entry_id in range(2000):
        cache.put_one(1, entry_id, entry(1, entry_id))
    cache.forget(1)
    for entry_id in range(5000):
        cache.put_one(2, entry_id, entry(2, entry_id))
        assert 0 < cache.used <= cache.limit
    assert cache.entries == 2000
    assert cache.used == cache.limit


def test_a_read_cache_forgets_those_of_many_ledgers_that_it_has() -> None:
    cache = ReadCache(1 << 20)
    for ledger in (1, 2, 3):
        raw = record(entry(ledger, 0, 10, 0))
        cache.put(ledger, 0, Records(raw, array("I", [0, len(raw)])))
    for ledger in (4, 5):
        cache.put_one(ledger, 0, entry(ledger, 0))
    cache.forget_all({2: None, 3: None, 4: None, 6: None})
    assert [cache.get(ledger, 0) is not None for ledger in (1, 2, 3, 4, 5)] == [True, False, False, False, True]
    assert cache.entries == 2


# --- what a flush does in pieces ---


@pytest.mark.parametrize("count", [0, 1, 600, 1500])
def test_ledgers_of_a_flush_are_in_order(count: int) -> None:
    buffers = [(i * 7919 % 10007, LedgerBuffer(0, b"")) for i in range(count)]
    assert jobs.in_order(buffers) == sorted(buffers)


def pieces(ledgers: int, each: list[bytes]) -> list[jobs.Piece]:
    return [(ledger_id, range(7, 7 + len(each)), each) for ledger_id in range(ledgers) if each]


SMALL, LARGE = [b"x"] * 5000, [bytes(1 << 20)] * 9
HUGE = [bytes(jobs.WRITE_BYTES + 1)]


def assert_cut_well(given: list[jobs.Piece], number: int, size: int) -> None:
    """Nothing is lost, no part is over either bound but for a single entry, and none could have taken any more."""
    chunks = list(jobs._chunks(given))
    found = [row for chunk in chunks for row in zip(chunk.ledger_ids, chunk.entry_ids, chunk.entries, strict=True)]
    assert found == [(ledger_id, *one) for ledger_id, ids, entries in given for one in zip(ids, entries, strict=True)]
    sizes = [sum(map(len, chunk.entries)) for chunk in chunks]
    assert all(1 <= len(chunk.entries) <= number for chunk in chunks)
    assert all(total <= size or len(chunk.entries) == 1 for total, chunk in zip(sizes, chunks, strict=True))
    for before, after in pairwise(chunks):
        assert len(before.entries) == number or sum(map(len, before.entries + after.entries[:1])) > size


@pytest.mark.parametrize(
    "given",
    [
        *([*pieces(1, each)] for each in ([], SMALL, LARGE, SMALL + LARGE + SMALL, SMALL + HUGE + SMALL)),
        pieces(1000, SMALL[:5]),
        [*pieces(700, SMALL[:1]), *pieces(2, LARGE), *pieces(700, [bytes(5000)] * 3), *pieces(3, SMALL)],
        [*pieces(2, SMALL[:1]), *pieces(3, HUGE), *pieces(2, SMALL[:2]), *pieces(1, HUGE + SMALL[:1])],
    ],
)
def test_what_is_appended_at_once_is_bounded_in_number_and_bytes(given: list[jobs.Piece]) -> None:
    assert_cut_well(given, CHUNK, jobs.WRITE_BYTES)
    assert len(list(jobs._chunks(pieces(1, SMALL)))) == 3


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 9, 10, 11, 25]), min_size=1, max_size=8), max_size=8))
def test_any_entries_are_cut_well(lengths: list[list[int]]) -> None:
    """An entry larger than a part once left the next ledger with less than none."""
    rows = [
        (ledger_id, range(len(row)), [bytes([ledger_id]) * length for length in row])
        for ledger_id, row in enumerate(lengths)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "CHUNK", 5)
        patch.setattr(jobs, "WRITE_BYTES", 10)
        assert_cut_well(rows, 5, 10)


def test_a_flush_of_many_ledgers_lets_others_run_as_seldom_as_one_of_a_single_ledger(tmp_path: Path) -> None:
    """With one entry each of thousands of ledgers a bookie once spent more on changes of threads than on all else."""
    runtime = RealRuntime()
    options = DirectoryOptions(
        write_cache=1 << 20,
        read_cache=1 << 20,
        read_ahead_entries=1,
        read_ahead_bytes=1 << 20,
        log_size_limit=150_000,
        past_cache=False,
        locations={},
        ledgers={},
        reserved_space=0,
    )
    opened = jobs.open_directory(runtime, options, str(tmp_path / "logs"), str(tmp_path / "index"))
    ledgers = range(5, 3005)
    buffers = [(ledger_id, LedgerBuffer(0, entry(ledger_id, 0))) for ledger_id in ledgers]
    for ledger_id, buffer in buffers:
        buffer.put(1, entry(ledger_id, 1))
        buffer.put(9, entry(ledger_id, 9))
    offers: list[None] = []
    jobs.flush(
        opened.writer,
        opened.locations,
        opened.reserve,
        lambda: offers.append(None),
        opened.ledgers,
        buffers,
        [],
        {},
        None,
    )
    assert len(offers) == -(-9000 // CHUNK) + -(-9000 // INDEX_CHUNK)
    for ledger_id in ledgers:
        for entry_id in (0, 1, 9):
            location = opened.locations.get(ledger_id, entry_id)
            file = runtime.files.open(str(tmp_path / "logs" / log_name(fmt.log_of(location))))
            assert read_records(file, location, ledger_id, entry_id, 1, 1000).raw == record(entry(ledger_id, entry_id))
            file.close()
    assert opened.writer.active_log == 3  # in several logs, each of which knows what it has
    counted = [sum(sizes.values()) for sizes in opened.writer.take_sealed().values()]
    assert all(149_000 < size + fmt.HEADER_SIZE <= 150_000 for size in counted)
    offers.clear()
    jobs.release(buffers, lambda: offers.append(None))
    assert not buffers
    assert len(offers) == 12_000 // CHUNK
    jobs.close_directory(opened.writer, opened.locations, opened.ledgers, healthy=True)
