"""Which part of the ledgers a scrub looks at, and what its state keeps."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.client import BookKeeper
from bookkeeper.errors import BookKeeperError, NoSuchLedgerOnMetadataError
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.spark.bounds import ALL
from bookkeeper.spark.errors import JobError, OptionError
from bookkeeper.spark.jobs.running import Counter
from bookkeeper.spark.jobs.scrub import KEPT, Work, _in_tasks, _of_unit
from bookkeeper.spark.jobs.scrubbing.choice import RUN, Amount, Choice, joined, sampled_ids, sampled_runs
from bookkeeper.spark.jobs.scrubbing.plan import NOTHING_SEEN, Looked, Piece, ScrubPlan, Seen, Unlisted, looked, plan_of
from bookkeeper.spark.jobs.scrubbing.state import State, clean_after
from bookkeeper.spark.options import ReadOptions
from bookkeeper.spark.session import Session
from bookkeeper.types import BookieId, LedgerState
from tests.support.fake_bookie import CLOSE, FakeCluster
from tests.unit.client.support import make_ledger

NONE = np.array([], np.int64)


@pytest.mark.parametrize(
    ("text", "total", "count"),
    [
        ("5%", 99, 5),
        ("0.05", 99, 5),
        ("5%", 1, 1),
        ("1%", 101, 2),
        ("100%", 7, 7),
        ("9", 7, 7),
        ("3", 7, 3),
        ("1", 0, 0),
    ],
)
def test_a_part_is_a_share_or_a_number(text: str, total: int, count: int) -> None:
    assert Amount.parse("sample", text).of(total) == count


@pytest.mark.parametrize("text", ["0", "0%", "101%", "1.5", "-3", "all", "", "5 %%"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"sample='.*' is neither a share such as 5% or 0\.05, nor a number"):
        Amount.parse("sample", text)


@given(st.integers(1, 300), st.data(), st.integers(0, 5))
def test_as_many_ledgers_as_were_asked_for_and_always_the_same(count: int, data: st.DataObject, seed: int) -> None:
    ids = sorted(data.draw(st.sets(st.integers(0, 1 << 62), min_size=count, max_size=count)))
    amount = Amount(number=data.draw(st.integers(1, 300)))
    drawn = sampled_ids(ids, amount, seed)
    assert drawn == sampled_ids(list(reversed(ids)), amount, seed) == sorted(drawn)
    assert len(set(drawn)) == min(count, amount.number or 0)
    assert set(drawn) <= set(ids)


def test_other_seeds_draw_other_ledgers_until_all_were_drawn() -> None:
    ids = range(100)
    drawn = [frozenset(sampled_ids(ids, Amount(0.1), seed)) for seed in range(200)]
    assert len(set(drawn)) > 190
    assert frozenset.union(*drawn) == set(ids)


@given(st.integers(0, 10_000), st.integers(1, 5000), st.data())
def test_as_many_entries_as_were_asked_for_spread_over_all(first: int, total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, total))
    last = first + total - 1
    runs = sampled_runs(first, last, count, random.Random(count))
    entries = [entry for start, stop in runs for entry in range(start, stop + 1)]
    assert entries == sorted(set(entries))
    assert first <= entries[0]
    assert entries[-1] <= last
    assert count - len(runs) <= len(entries) <= count
    gaps = np.diff([first - 1, *entries, last + 1])
    assert gaps.max() <= 2 * -(-total // -(-count // RUN)) + 1  # no more than two stretches


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda run: (run[0], sum(run)))))
def test_runs_that_lie_over_each_other_become_one(runs: list[tuple[int, int]]) -> None:
    found = joined(runs)
    assert {n for a, b in found for n in range(a, b + 1)} == {n for a, b in runs for n in range(a, b + 1)}
    assert all(before[1] < after[0] for before, after in pairwise(found))


def test_a_sample_of_entries_has_all_that_is_not_listed() -> None:
    piece = Piece(5, 100, 1099, 10_000, 3, wanted=64)
    unlisted = {5: [("b1:3181", 0, 99), ("b1:3181", 90, 110), ("b2:3181", 700, 700)], 6: [("b1:3181", 0, 500)]}
    mine = piece.within(unlisted)
    assert mine == [("b1:3181", 100, 110), ("b2:3181", 700, 700)]
    runs = piece.runs(1, mine)
    read = {n for start, stop in runs for n in range(start, stop + 1)}
    assert read >= {*range(100, 111), 700}
    assert len(read) <= 64 + 12
    assert runs == piece.runs(1, mine) != piece.runs(2, mine)
    assert piece._replace(wanted=1000).runs(1, mine) == [(100, 1099)]
    steps = [(part.first, part.last) for part in piece.steps(100, 350, 5_000, 50)]
    assert steps == [(100, 131), (132, 163), (164, 195), (196, 227), (228, 259), (260, 291), (292, 323), (324, 350)]


def ledger(ledger_id: int = 7, **other: Any) -> LedgerMetadata:
    bookies = tuple(BookieId(f"b{n}:3181") for n in range(3))
    made = LedgerMetadata(ledger_id, 3, 3, 2, {0: bookies}, LedgerState.CLOSED, last_entry_id=9, length=90)
    return replace(made, **other)


def test_since_a_time() -> None:
    day = Choice.parse(since="24h")
    now = round(time.time() * 1000)
    assert day.is_new(ledger(ctime=now))
    assert not day.is_new(ledger(ctime=now - 25 * 3_600_000))
    assert day.is_new(ledger(ctime=-1))  # of an unknown age
    still_open = ledger(ctime=1, state=LedgerState.OPEN, last_entry_id=-1, length=0)
    assert day.is_new(still_open)
    assert Choice.parse(since="2026-05-01").since_ms == 1_777_593_600_000
    assert Choice.parse(since="2026-05-01T02:00+02:00").since_ms == 1_777_593_600_000
    with pytest.raises(OptionError, match="since='yesterday' is none of last, an age such as 24h or 7d, or a time"):
        Choice.parse(since="yesterday")


def test_a_ledger_is_new_when_anything_of_it_is() -> None:
    seen = Seen.of([looked(ledger(n), 9) for n in (9, 7, 3)])
    assert looked(ledger(7), 9) in seen
    assert looked(ledger(8), 9) not in seen
    assert looked(ledger(10), 9) not in seen
    assert looked(ledger(7), 8) not in seen
    moved = {0: tuple(BookieId(f"b{n}:3181") for n in (0, 1, 5))}
    assert looked(ledger(7, ensembles=moved), 9) not in seen
    later = seen.then(Seen.of([Looked(7, 20, 1), Looked(8, 5, 1), Looked(11, 5, 1)]), np.array([8, 3]))
    assert later.ids.tolist() == [7, 9, 11]
    assert Looked(7, 20, 1) in later
    assert looked(ledger(9), 9) in later


PLAN = ScrubPlan(
    (Looked(3, 9, 1), Looked(4, -1, 1)), ((Piece(3, 0, 4, 40, 3, 5),), (Piece(3, 5, 9, 40, 3, 2),)), seed=17
)
ASKED = {"ledgers": "all", "sample": 0.05}


def row(entry: int) -> tuple[Any, ...]:
    return ("run", 3, 0, entry, entry, "b1:3181", "ok", 1, 10, None)


def test_a_scrub_that_died_goes_on_where_it_was(tmp_path: Path) -> None:
    place = tmp_path / "state"
    scrub = State(str(place)).begin(ASKED, PLAN)
    assert list(scrub.keep(1, iter([row(5), row(6)]), KEPT)) == [row(5), row(6)]
    half = scrub.keep(0, iter([row(0), row(1)]), KEPT)
    assert next(half) == row(0)
    half.close()  # killed
    again = State(str(place)).unfinished(ASKED)
    assert again is not None
    assert again.plan() == PLAN
    assert again.done() == {1}
    assert again.rows(0) is None
    assert list(again.rows(1) or ()) == [row(5), row(6)]
    again.finish({"clean": True}, Seen.of(PLAN.ledgers))
    assert sorted(path.name for path in (place / "00000000" / "rows").iterdir()) == ["000001.parquet"]
    after = State(str(place))
    assert after.unfinished(ASKED) is None
    assert after.seen().ids.tolist() == [3, 4]
    assert after.begin(ASKED, PLAN).name == "00000001"
    assert State(str(place)).seen().ids.tolist() == [3, 4]  # the one that is not finished has seen nothing yet


def test_another_scrub_does_not_go_on_with_it(tmp_path: Path) -> None:
    State(str(tmp_path)).begin(ASKED, PLAN)
    with pytest.raises(JobError, match=r"asked for other things \(ledgers=all, no since\) and is not finished"):
        State(str(tmp_path)).unfinished({**ASKED, "ledgers": "5-9", "since": "last"})


def test_a_plan_that_was_not_written_whole_is_not_there(tmp_path: Path) -> None:
    State(str(tmp_path)).begin(ASKED, PLAN)
    (tmp_path / "00000000" / "plan.json").unlink()
    assert State(str(tmp_path)).unfinished(ASKED) is None
    assert State(str(tmp_path)).begin(ASKED, PLAN).name == "00000000"


def test_places_that_are_no_state(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, why in ((tmp_path, "holds other files"), (tmp_path / "file", "is a file"), ("gopher://x/y", "no place")):
        with pytest.raises(BookKeeperError, match=why):
            State(str(place))
    State(str(tmp_path / "new")).begin(ASKED, PLAN)
    with pytest.raises(JobError, match="no scrub has finished there"):
        State(str(tmp_path / "new"), rows_too=True).newest()


async def planned(cluster: FakeCluster, ledgers: str = "all", seen: Seen = NOTHING_SEEN, **choice: Any) -> ScrubPlan:
    options = ReadOptions.parse({"uri": "memory://x", "ledgers": ledgers, "password": "s", "openLedgers": "skip"})
    return await plan_of(await cluster.connect(), options, Choice.parse(**choice, seed=1), seen)


def ids(plan: ScrubPlan) -> list[int]:
    return [one.ledger_id for one in plan.ledgers]


async def test_a_plan_has_what_was_chosen(cluster: FakeCluster) -> None:
    made = [await make_ledger(cluster, 100) for _ in range(6)]
    every = [each.id for each in made]
    whole = await planned(cluster)
    assert (ids(whole), whole.entries, whole.total_copies) == (every, 600, 1800)
    some = await planned(cluster, sample="50%")
    assert len(ids(some)) == 3
    assert set(ids(some)) < set(every)
    assert some.entries == 300
    few = await planned(cluster, entries="10%")
    assert (ids(few), few.entries) == (every, 60)
    assert few.bytes < whole.bytes / 5
    pieces = [piece for unit in few.units for piece in unit]
    assert sorted((piece.ledger_id, piece.first, piece.last) for piece in pieces) == [(one, 0, 99) for one in every]

    seen = Seen.of(whole.ledgers[:4])
    assert ids(await planned(cluster, seen=seen, since="last")) == every[4:]
    assert ids(await planned(cluster, seen=Seen.of(whole.ledgers), since="last", sample="5")) == []
    only = await planned(cluster, f"{every[1]},{every[5]}", seen, since="last")
    assert ids(only) == [every[5]]


async def test_a_ledger_that_was_named_must_be_there(cluster: FakeCluster) -> None:
    made = await make_ledger(cluster, 3)
    assert ids(await planned(cluster, f"{made.id}-{made.id + 9}", sample="1")) == [made.id]
    for choice in ({"sample": "100%"}, {"since": "1d"}, {}):
        with pytest.raises(NoSuchLedgerOnMetadataError):
            await planned(cluster, f"{made.id},{made.id + 9}", **choice)


class Here:
    """What a task has: a client, whose loop runs beside it."""

    def __init__(self, client: BookKeeper, loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Count:
    def __init__(self) -> None:
        self.rows = 0

    def add(self, rows: int, _size: int) -> None:
        self.rows += rows


async def looked_at(work: Work, client: BookKeeper, unlisted: Unlisted) -> tuple[list[tuple[Any, ...]], int]:
    """All rows of a scrub, without Spark, and the good copies that were counted."""
    count = Count()
    task = _in_tasks(work, cast(Counter, count))
    here = cast(Session, Here(client, asyncio.get_running_loop()))

    def run() -> list[tuple[Any, ...]]:
        units = enumerate(work.plan.units)
        return [row for number, unit in units for row in task(here, (number, unit, _of_unit(unlisted, unit)))]

    return await asyncio.to_thread(run), count.rows


async def test_tasks_find_what_is_bad_and_give_it_again(cluster: FakeCluster, tmp_path: Path) -> None:
    ledger = await make_ledger(cluster, 400)
    damaged, lacking = ledger.replicas(7)[1], ledger.replicas(90)[0]
    ledger.corrupt(damaged, 7)
    del lacking.ledger(ledger.id).entries[90]
    client = await cluster.connect()
    options = ReadOptions.parse({"uri": "memory://x", "ledgers": "all", "password": "s", "targetPartitionBytes": "1k"})
    plan = await plan_of(client, options, Choice.parse(seed=1))
    assert len(plan.units) == 3
    kept = State(str(tmp_path)).begin(ASKED, plan)
    work = Work(options, plan, kept, run_id="run")
    unlisted = {ledger.id: [(str(lacking.id), 90, 90)]}
    rows, count = await looked_at(work, client, unlisted)
    bad = {(row[3], row[4], row[5], row[6]) for row in rows if row[6] != "ok"}
    assert bad == {
        (7, 7, str(damaged.id), "digest_mismatch"),
        (90, 90, str(lacking.id), "missing"),
        (7, 7, None, "underreplicated"),
        (90, 90, None, "underreplicated"),
    }
    assert count == 3 * 400 - 2
    assert kept.done() == set(range(len(plan.units)))

    for bookie in cluster.bookies:
        bookie.on_request = lambda _: CLOSE
    again = Work(options, plan, kept, done=kept.done(), run_id="run")
    assert await looked_at(again, client, {}) == (rows, count), "nobody was asked"


async def test_a_sample_of_entries_reads_few_and_finds_what_is_not_listed(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 1000)
    lacking = ledger.replicas(517)[0]
    del lacking.ledger(ledger.id).entries[517]
    client = await cluster.connect()
    options = ReadOptions.parse({"uri": "memory://x", "ledgers": "all", "password": "s"})
    plan = await plan_of(client, options, Choice.parse(entries="10%", seed=1))
    rows, count = await looked_at(Work(options, plan), client, {ledger.id: [(str(lacking.id), 517, 517)]})
    assert {(row[3], row[6]) for row in rows if row[6] != "ok"} == {(517, "missing"), (517, "underreplicated")}
    assert 3 * 100 - 3 <= count <= 3 * 101


@pytest.mark.parametrize(
    ("asked", "old"),
    [
        ({"ledgers": "all"}, {1, 2, 4}),  # what is not there any more is forgotten
        ({"ledgers": "1-9"}, {1, 2, 4, 50}),
        ({"ledgers": "all", "since": "last"}, {1, 2, 4, 50}),
        ({"ledgers": "all", "sample_entries": 0.1}, {2, 4, 50}),
        ({"ledgers": "all", "entries": [5, None]}, {2, 4, 50}),
    ],
)
def test_what_is_old_after_a_scrub(asked: dict[str, Any], old: set[int]) -> None:
    before = Seen.of([Looked(2, 9, 1), Looked(3, 9, 1), Looked(4, 9, 1), Looked(50, 9, 1)])
    ledgers = [Looked(ledger_id, 20, 1) for ledger_id in (1, 2, 3, 4)]
    after = clean_after({"where": repr(ALL), "entries": [0, None, repr(ALL)], **asked}, before, ledgers, [3])
    assert set(after.ids.tolist()) == old
