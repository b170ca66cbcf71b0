"""Entries as Arrow record batches: the same as `entries()`, whatever the ledger and its bookies are like."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.client.entry import LedgerEntry
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.reads import arrow
from bookkeeper.errors import BKError, ConfigurationError, IncorrectParameterError, ReadError
from bookkeeper.protocol.messages import BatchReadRequest, ReadRequest, Status
from tests.support.fake_bookie import CLOSE, FakeCluster, fake_cluster

from .support import make_ledger, payload

Outcome = tuple[list[LedgerEntry], tuple[type[BKError], int | None] | None]
"""Entries, and the error that ended them with its entry."""


def rows(batch: pa.RecordBatch) -> list[LedgerEntry]:
    columns = [batch.column(name).to_pylist() for name in ("ledger_id", "entry_id", "payload", "length")]
    return [LedgerEntry(*row) for row in zip(*columns, strict=True)]


async def outcome(items: AsyncIterator[Any], rows_of: Callable[[Any], list[LedgerEntry]]) -> Outcome:
    taken: list[LedgerEntry] = []
    try:
        async for item in items:
            taken += rows_of(item)
    except BKError as error:
        return taken, (type(error), error.entry_id)
    return taken, None


async def both(reader: LedgerReader, *args: int, **options: int) -> tuple[Outcome, Outcome]:
    plain = await outcome(reader.entries(*args, **options), lambda entry: [entry])
    return plain, await outcome(reader.read_arrow(*args, **options), rows)


async def compare(data: st.DataObject) -> None:
    draw = data.draw
    sizes = draw(st.lists(st.sampled_from([0, 1, 10, 100, 100, 100, 3000]), min_size=1, max_size=40))
    count = len(sizes)
    async with fake_cluster(4) as cluster:
        quorums = draw(st.sampled_from([(3, 3, 2), (3, 2, 2), (3, 1, 1), (2, 2, 1), (1, 1, 1)]))
        changes = draw(st.sets(st.integers(1, count), max_size=3)) - {count}
        ensembles = {first: draw(st.permutations(cluster.bookies))[: quorums[0]] for first in sorted({0, *changes})}
        ledger = await make_ledger(cluster, quorums=quorums, ensembles=ensembles, sizes=sizes)
        for entry_id in draw(st.lists(st.integers(0, count - 1), max_size=4, unique=True)):
            for bookie in ledger.replicas(entry_id):
                match draw(st.sampled_from(["corrupt", "good", "missing"])):
                    case "corrupt":
                        ledger.corrupt(bookie, entry_id)
                    case "missing":
                        del bookie.ledger(ledger.id).entries[entry_id]
        client = await cluster.connect(
            protocol=draw(st.sampled_from(["auto", "auto", "v3"])),
            batchReadEnabled=draw(st.sampled_from([True, True, False])),
            stickyReadSEnabled=draw(st.booleans()),
            speculativeReadTimeout=0,
        )
        reader = await ledger.open(client)
        first = draw(st.just(0) | st.integers(0, count))
        last = draw(st.just(count - 1) | st.integers(first - 1, count - 1))
        plain, columns = await both(
            reader,
            first,
            last,
            window=draw(st.sampled_from([1, 8, 1024])),
            window_bytes=draw(st.sampled_from([1, 4000, 4 << 20])),
        )
        assert columns == plain


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_columns_hold_what_entries_are(data: st.DataObject) -> None:
    """Striped or not, with ensemble changes, damaged and missing copies, and entries that are lost."""
    asyncio.run(compare(data))


async def test_a_batch_is_an_answer_and_digests_are_looked_at(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 300)
    for bookie in ledger.bookies[:2]:
        ledger.corrupt(bookie, 100)
    reader = await ledger.open(await cluster.connect(speculativeReadTimeout=0))
    batches = [batch async for batch in reader.read_arrow()]
    assert [value for batch in batches for value in batch.column("payload").to_pylist()] == [
        payload(n) for n in range(300)
    ]
    assert [lac for batch in batches for lac in batch.column("last_confirmed").to_pylist()] == list(range(-1, 299))
    assert all(batch.schema == arrow.SCHEMA and batch.num_rows for batch in batches)
    assert len(batches) < 10
    assert all(bookie.count(ReadRequest) == 0 for bookie in cluster.bookies)
    for batch in batches:
        batch.validate(full=True)


@pytest.mark.parametrize("fault", [CLOSE, Status.EIO])
async def test_bookies_that_fail_are_passed_over(cluster: FakeCluster, fault: Any) -> None:
    ledger = await make_ledger(cluster, 50)
    reader = await ledger.open(await cluster.connect(speculativeReadTimeout=0))
    for bookie in ledger.bookies[:2]:
        bookie.on_request = lambda request: fault if isinstance(request, ReadRequest | BatchReadRequest) else None
    plain, columns = await both(reader)
    assert columns == plain
    assert len(columns[0]) == 50


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_what_is_read_ahead_is_bounded_in_bytes(cluster: FakeCluster, quorums: tuple[int, int, int]) -> None:
    size, window = 50_000, 200_000
    ledger = await make_ledger(cluster, quorums=quorums, sizes=[size] * 60)
    reader = await ledger.open(await cluster.connect())
    before = sum(bookie.bytes_sent for bookie in cluster.bookies)
    taken = most = 0
    async for batch in reader.read_arrow(window_bytes=window):
        taken += batch.nbytes
        for _ in range(10):
            await asyncio.sleep(0)
        most = max(most, sum(bookie.bytes_sent for bookie in cluster.bookies) - before - taken)
    assert taken >= 60 * size
    assert most <= window + 4 * size


async def test_arguments_are_checked(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    reader = await ledger.open(await cluster.connect())
    with pytest.raises(ReadError):
        reader.read_arrow(0, 3)
    with pytest.raises(IncorrectParameterError):
        reader.read_arrow(-1)
    assert [batch async for batch in reader.read_arrow(3)] == []


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
async def test_a_missing_package_is_named(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    ledger = await make_ledger(cluster, 3)
    reader = await ledger.open(await cluster.connect())
    monkeypatch.delitem(sys.modules, "bookkeeper.client.reads.arrow")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"{package}.*\[arrow\]"):
        reader.read_arrow()
