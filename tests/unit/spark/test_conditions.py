"""Conditions on records of streams, given when they are loaded (docs/spark.md)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.runtime.real import RealRuntime
from bookkeeper.spark.errors import OptionError
from bookkeeper.spark.streaming.conditions import EVERY, Conditions, moment
from bookkeeper.spark.streaming.following import Follower
from bookkeeper.spark.streaming.records import TYPES
from bookkeeper.spark.streaming.stream_options import StreamOptions
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.formats.segment import SegmentMetadata
from bookkeeper.streams.namespace import Namespace
from tests.support.fake_bookie import FakeCluster

COLUMNS = ("segment", "txid", "sequence_id", "timestamp")
CONDITIONS = st.lists(
    st.tuples(st.sampled_from(COLUMNS), st.sampled_from(("=", "<", "<=", ">", ">=")), st.integers(0, 30)),
    min_size=1,
    max_size=3,
)
ROWS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.integers(0, 30), st.none() | st.integers(0, 30)))


def batch_of(rows: list[tuple[int, int, int, int | None]]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    columns[3] = [None if value is None else value * 1000 for value in columns[3]]
    arrays = [pa.array(values, TYPES[name][1]) for name, values in zip(COLUMNS, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def fits(row: tuple[int, int, int, int | None], conditions: list[tuple[str, str, int]]) -> bool:
    values = dict(zip(COLUMNS, row, strict=True))
    return all(
        values[name] is not None
        and eval(f"{values[name]} {operator.replace('=', '==') if operator == '=' else operator} {n}")
        for name, operator, n in conditions
    )


@given(ROWS, CONDITIONS)
def test_those_rows_are_given_that_fit(
    rows: list[tuple[int, int, int, int | None]], conditions: list[tuple[str, str, int]]
) -> None:
    where = Conditions.parse(" and ".join(f"{name} {operator} {n}" for name, operator, n in conditions))
    found = [row for batch in where.filtered([batch_of(rows)], ["txid", "segment"]) for row in batch.to_pylist()]
    assert found == [{"txid": row[1], "segment": row[0]} for row in rows if fits(row, conditions)]


@given(ROWS.filter(bool), CONDITIONS, st.booleans())
def test_no_segment_is_left_out_that_has_such_rows(
    rows: list[tuple[int, int, int, int | None]], conditions: list[tuple[str, str, int]], keyed: bool
) -> None:
    """Of a stream whose records have no times of their own the time is the transaction id."""
    where = Conditions.parse(" and ".join(f"{name} {operator} {n}" for name, operator, n in conditions))
    txids = sorted(row[1] for row in rows)
    some = [(2, txid, 5 + n, rows[n][3] if keyed else txid) for n, txid in enumerate(txids)]
    segment = SegmentMetadata(ledger_id=1, first_txid=txids[0], number=2)
    completed = segment.complete(
        last_txid=txids[-1], records=len(some), last=DLSN(2, 0, 0), completed_ms=0, start_sequence_id=5
    )
    if any(fits(row, conditions) for row in some):
        assert where.may_hold(completed, keyed=keyed, by_txid=True)


def test_segments_are_left_out() -> None:
    segment = SegmentMetadata(ledger_id=1, first_txid=100, number=2, start_sequence_id=50)
    closed = segment.complete(last_txid=200, records=10, last=DLSN(2, 0, 0), completed_ms=0, start_sequence_id=50)
    for text, open_one, closed_one in (
        ("segment = 2", True, True),
        ("segment in (1, 3)", False, False),
        ("txid < 100", False, False),
        ("txid > 200", True, False),
        ("txid in (99, 201)", True, False),
        ("sequence_id between 0 and 49", False, False),
        ("sequence_id >= 60", True, False),
        ("timestamp > 200", True, False),
    ):
        where = Conditions.parse(text)
        assert where.may_hold(segment, keyed=False, by_txid=True) is open_one, text
        assert where.may_hold(closed, keyed=False, by_txid=True) is closed_one, text
    late = Conditions.parse("timestamp > 200")
    assert late.may_hold(closed, keyed=True, by_txid=True), "records have times of their own"
    assert late.may_hold(closed, keyed=False, by_txid=False), "transaction ids are no times"


def test_times() -> None:
    noon = int(datetime(2024, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
    for text in (str(noon), "'2024-01-01T12:00:00Z'", "'2024-01-01 12:00'", "'2024-01-01T13:00:00+01:00'"):
        assert moment(text) == noon
    where = Conditions.parse("timestamp between '2024-01-01' and '2024-01-02' AND segment < 7")
    assert where.columns == ("segment", "timestamp")
    assert noon in where.timestamp


@pytest.mark.parametrize(
    "text", ["", "payload = 1", "txid = 'x'", "timestamp > 'noon'", "txid < 1 and", "txid < 1 or 2"]
)
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(OptionError, match="segment, txid, sequence_id and timestamp"):
        StreamOptions.parse({"uri": "x", "stream": "a", "where": text}, streaming=False)


def test_without_conditions_nothing_is_compared() -> None:
    assert EVERY.columns == ()
    assert EVERY.may_hold(SegmentMetadata(ledger_id=1, first_txid=0, number=1), keyed=False, by_txid=True)


@pytest.mark.parametrize(
    ("where", "read"),
    [("txid >= 10", {2, 3}), ("sequence_id = 1", {2}), ("segment < 2", {1}), ("timestamp > 20", set())],
)
async def test_segments_that_cannot_have_such_records_are_not_read(
    cluster: FakeCluster, where: str, read: set[int]
) -> None:
    client = await cluster.connect()
    await client.context.driver.tree.make("/ns")
    namespace = Namespace(client, client.context.driver.tree, "/ns", None, "me", AsyncExitStack())
    for txid in (0, 10, 20):
        async with namespace.open_writer("a", create=True) as writer:
            await writer.append(b"x", txid=txid)
    options = StreamOptions.parse({"uri": "x", "stream": "a", "where": where}, streaming=False)
    follower = Follower(client, namespace, options, RealRuntime())
    works = await follower.work_between(await follower.places(options.starting), await follower.places(options.ending))
    assert {facts.number for work in works for facts in work.facts.values()} == read
