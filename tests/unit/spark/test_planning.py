"""Plans: every wanted entry once, in pieces of about the wanted size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import NoSuchLedgerOnMetadataError
from bookkeeper.spark.bounds import ALL, Bounds
from bookkeeper.spark.options import ReadOptions
from bookkeeper.spark.planning import PIECE_COST, EntryRange, counted, into_partitions, pack, plan_read, split
from tests.support.fake_bookie import FakeCluster
from tests.unit.client.support import make_ledger


def options(ledgers: str, **more: str) -> ReadOptions:
    return ReadOptions.parse({"uri": "memory://x", "ledgers": ledgers, "password": "s", **more})


bounds = st.builds(
    Bounds,
    st.integers(0, 30),
    st.integers(0, 30),
    st.none() | st.frozensets(st.integers(0, 30)),
)


@given(bounds, st.integers(0, 30), st.integers(0, 30))
def test_pieces_of_bounds_are_what_is_inside(inside: Bounds, first: int, last: int) -> None:
    pieces = inside.pieces(first, last)
    assert [n for a, b in pieces for n in range(a, b + 1)] == [n for n in range(first, last + 1) if n in inside]
    assert all(a <= b for a, b in pieces)


@given(bounds, st.integers(0, 30), st.integers(0, 30), st.frozensets(st.integers(0, 30)), st.integers(0, 30))
def test_bounds_only_narrow(inside: Bounds, least: int, greatest: int, among: frozenset[int], number: int) -> None:
    assert (number in inside.within(least, greatest)) == (number in inside and least <= number <= greatest)
    assert (number in inside.one_of(among)) == (number in inside and number in among)
    assert number in ALL


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10**6)), max_size=20), st.integers(1, 10**6))
def test_every_entry_is_in_one_partition_of_about_the_size(lengths: list[tuple[int, int]], target: int) -> None:
    ranges = [EntryRange(ledger, 5, 4 + entries, size) for ledger, (entries, size) in enumerate(lengths)]
    partitions = pack([part for piece in ranges for part in split(piece, target)], target)
    flat = [piece for partition in partitions for piece in partition]
    assert [(piece.ledger_id, entry) for piece in flat for entry in range(piece.first, piece.last + 1)] == [
        (piece.ledger_id, entry) for piece in ranges for entry in range(piece.first, piece.last + 1)
    ]
    for partition in partitions:
        size = sum(piece.bytes + PIECE_COST for piece in partition)
        assert len(partition) == 1 or size <= target
        for piece in partition:
            entries, whole = lengths[piece.ledger_id]
            assert piece.bytes <= 1.5 * target + whole / entries + 1  # an entry is not cut


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10**6), st.floats(1.0, 50.0)), max_size=20),
    st.integers(1, 10**6),
    st.integers(1, 9),
    st.integers(1, 500),
)
def test_no_partition_has_more_records_than_wanted(
    lengths: list[tuple[int, int, float]], target: int, at_least: int, most: int
) -> None:
    """Unless a single entry has."""
    ranges = [
        part
        for ledger, (entries, size, each) in enumerate(lengths)
        for part in counted(EntryRange(ledger, 5, 4 + entries, size), each, most)
    ]
    partitions = into_partitions(ranges, target, at_least, most)
    flat = [piece for partition in partitions for piece in partition]
    assert [(piece.ledger_id, entry) for piece in flat for entry in range(piece.first, piece.last + 1)] == [
        (ledger, entry) for ledger, (entries, _, _) in enumerate(lengths) for entry in range(5, 5 + entries)
    ]
    for partition in partitions:
        records = sum(piece.entries * lengths[piece.ledger_id][2] for piece in partition)
        assert records <= most or sum(piece.entries for piece in partition) == 1


sizes = st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10**9)), min_size=1, max_size=50)


@given(sizes, st.integers(1, 100), st.integers(1, 10**9))
def test_as_many_partitions_as_were_asked_for(lengths: list[tuple[int, int]], at_least: int, target: int) -> None:
    ranges = [EntryRange(ledger, 0, entries - 1, size) for ledger, (entries, size) in enumerate(lengths)]
    partitions = into_partitions(ranges, target, at_least)
    assert len(partitions) >= min(at_least, sum(piece.entries for piece in ranges))
    flat = [piece for partition in partitions for piece in partition]
    assert [(piece.ledger_id, entry) for piece in flat for entry in range(piece.first, piece.last + 1)] == [
        (piece.ledger_id, entry) for piece in ranges for entry in range(piece.first, piece.last + 1)
    ]


@pytest.mark.parametrize("at_least", [1, 2, 4, 64])
def test_many_small_ledgers_stay_few_tasks(at_least: int) -> None:
    ranges = [EntryRange(ledger, 0, 4, 500) for ledger in range(2000)]
    assert at_least <= len(into_partitions(ranges, 128 << 20, at_least)) <= at_least + 1


async def test_a_plan_is_cut_at_ensemble_changes(cluster: FakeCluster) -> None:
    a, b, c = cluster.bookies
    ledger = await make_ledger(cluster, 100, ensembles={0: [a, b, c], 40: [b, c, a], 70: [c, a, b]})
    empty = await make_ledger(cluster, 0)
    bk = await cluster.connect()
    plan = await plan_read(bk, options(f"{ledger.id},{empty.id}"))
    assert [(p.ledger_id, p.first, p.last) for part in plan.partitions for p in part] == [
        (ledger.id, 0, 39),
        (ledger.id, 40, 69),
        (ledger.id, 70, 99),
    ]
    assert len(plan.partitions) == 1
    assert (plan.entries, len(plan.snapshots)) == (100, 2)
    some = await plan_read(bk, options(str(ledger.id), entriesFrom="30", entriesTo="75", where="entry_id<=71"))
    assert [(p.first, p.last) for part in some.partitions for p in part] == [(30, 39), (40, 69), (70, 71)]


async def test_open_ledgers(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    bk = await cluster.connect()
    confirmed = await plan_read(bk, options(str(ledger.id)))
    assert [(p.first, p.last) for part in confirmed.partitions for p in part] == [(0, 8)]
    assert not (await bk.get_ledger_metadata(ledger.id)).closed
    assert (await plan_read(bk, options(str(ledger.id), openLedgers="skip"))).snapshots == ()
    recovered = await plan_read(bk, options(str(ledger.id), openLedgers="recover"))
    assert [(p.first, p.last) for part in recovered.partitions for p in part] == [(0, 9)]
    assert (await bk.get_ledger_metadata(ledger.id)).closed


async def test_named_ledgers_must_exist_and_those_in_ranges_need_not(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10)
    bk = await cluster.connect()
    for wide in ("0-200", "0-100000", "all"):
        assert [s.ledger_id for s in (await plan_read(bk, options(wide))).snapshots] == [ledger.id]
    with pytest.raises(NoSuchLedgerOnMetadataError, match="ledger 77"):
        await plan_read(bk, options(f"{ledger.id},77"))
    assert len((await plan_read(bk, options(f"{ledger.id},77", failOnDataLoss="false"))).snapshots) == 1
