"""Reading ranges from bookies that misbehave, and looking at every copy."""

from __future__ import annotations

import pytest

from bookkeeper.client.reads.columns import PackedRun
from bookkeeper.client.reads.replicas import CopyStatus as Copy
from bookkeeper.client.reads.replicas import Problem, Replicas
from bookkeeper.protocol.messages import BatchReadRequest, ReadRequest, Request, Status
from bookkeeper.runtime.waiting.rate_limit import RateLimit
from bookkeeper.spark.errors import DataLossError, ReplicasUnavailableError
from bookkeeper.spark.options import ReadOptions
from bookkeeper.spark.planning import plan_read
from bookkeeper.spark.reading import RangeReader, Tally
from bookkeeper.spark.replicas import check_copies, unlisted_copies
from bookkeeper.spark.rows import BatchMaker
from tests.support.fake_bookie import CLOSE, FakeCluster
from tests.unit.client.support import DIGEST, Ledger, make_ledger, payload


async def read(
    cluster: FakeCluster, ledger: Ledger, tally: Tally | None = None, *, protocol: str = "auto", **more: str
) -> tuple[list[bytes], list[PackedRun]]:
    options = ReadOptions.parse(
        {"uri": "memory://x", "ledgers": str(ledger.id), "password": "s", "bk.protocol": protocol, **more}
    )
    bk = await cluster.connect(
        protocol=protocol, stickyReadSEnabled=True, speculativeReadTimeout=0, readEntryTimeoutSec=5
    )
    plan = await plan_read(bk, options)
    tally = tally if tally is not None else Tally()
    ranges = [piece for partition in plan.partitions for piece in partition]
    pieces = [piece async for piece in RangeReader(bk, ranges, options, tally).pieces()]
    batches = list(BatchMaker(options).batches(pieces))
    assert sum(batch.num_rows for batch in batches) == tally.entries
    return [value for batch in batches for value in batch.column("payload").to_pylist()], [p.run for p in pieces]


@pytest.mark.parametrize("protocol", ["auto", "v3"])
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2), (1, 1, 1)])
async def test_all_entries_in_order(cluster: FakeCluster, protocol: str, quorums: tuple[int, int, int]) -> None:
    ledger = await make_ledger(cluster, 300, quorums=quorums)
    data, runs = await read(cluster, ledger, protocol=protocol, maxBatchBytes="1k", readConcurrency="3")
    assert data == [payload(n) for n in range(300)]
    assert len(runs) > 5
    assert [int(lac) for run in runs for lac in run.last_confirmed] == list(range(-1, 299))
    batches = sum(bookie.count(BatchReadRequest) for bookie in cluster.bookies)
    assert bool(batches) == (protocol == "auto" and quorums[0] == quorums[1])


async def test_what_is_read_is_paid_for(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[tuple[float, float]] = []

    async def take(limit: RateLimit, size: float) -> None:
        spent.append((limit.rate, size))

    monkeypatch.setattr(RateLimit, "take", take)
    ledger = await make_ledger(cluster, 300)
    data, runs = await read(cluster, ledger, maxBatchBytes="1k", maxBytesPerSecond="10m")
    assert {rate for rate, _ in spent} == {10 << 20}
    assert len(spent) == len(runs)
    assert sum(size for _, size in spent) == sum(map(len, data))


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_a_damaged_copy_is_read_from_another_replica_and_counted(
    cluster: FakeCluster, quorums: tuple[int, int, int]
) -> None:
    ledger = await make_ledger(cluster, 50, quorums=quorums)
    for entry_id in (0, 17, 18, 49):
        ledger.corrupt(ledger.replicas(entry_id)[0], entry_id)
    for _ in range(10):  # which replica comes first is chance
        tally = Tally()
        data, _ = await read(cluster, ledger, tally)
        assert data == [payload(n) for n in range(50)]
        assert set(tally.damaged) <= {(ledger.id, n, ledger.replicas(n)[0].id) for n in (0, 17, 18, 49)}
        if len(tally.damaged) == 4:
            return
    assert quorums == (3, 3, 2), "striped ledgers are read from the first replica of each entry"


async def test_an_entry_without_a_good_copy_ends_the_read_and_names_the_bookies(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 20)
    for bookie in ledger.bookies:
        ledger.corrupt(bookie, 7)
    with pytest.raises(DataLossError) as caught:
        await read(cluster, ledger)
    assert (caught.value.ledger_id, caught.value.entry_id) == (ledger.id, 7)
    assert [name for name, _ in caught.value.reasons] == [bookie.id for bookie in ledger.replicas(7)]
    del ledger.bookies[0].ledger(ledger.id).entries[7]
    tally = Tally()
    data, _ = await read(cluster, ledger, tally, failOnDataLoss="false")
    assert data == [payload(n) for n in range(20) if n != 7]
    assert tally.lost == [(ledger.id, 7)]


async def test_what_is_only_out_of_reach_is_never_left_out(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 20)
    for bookie in ledger.bookies[1:]:
        ledger.corrupt(bookie, 7)
    ledger.bookies[0].on_request = lambda _: CLOSE
    with pytest.raises(ReplicasUnavailableError, match="entry 7: no good copy within reach"):
        await read(cluster, ledger, failOnDataLoss="false")


async def test_a_bookie_that_comes_back_is_asked_again(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 20, quorums=(1, 1, 1))
    refused = []

    def refuse_some(request: object) -> Status | None:
        if len(refused) < 3 and isinstance(request, BatchReadRequest | ReadRequest):
            refused.append(request)
            return Status.EIO
        return None

    ledger.bookies[0].on_request = refuse_some
    assert (await read(cluster, ledger))[0] == [payload(n) for n in range(20)]
    assert len(refused) == 3


# --- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["auto", "v3"])
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_every_copy_is_looked_at(cluster: FakeCluster, protocol: str, quorums: tuple[int, int, int]) -> None:
    ledger = await make_ledger(cluster, 40, quorums=quorums)
    bk = await cluster.connect(protocol=protocol)
    clean = await check_copies(bk, ledger.metadata, DIGEST, 0, 39)
    assert clean.problems == []
    assert clean.good_copies.tolist() == [quorums[1]] * 40
    assert sum(size for _, size in clean.good.values()) == quorums[1] * ledger.metadata.length

    ledger.corrupt(ledger.replicas(3)[1], 3)
    for entry_id in (10, 11):
        del ledger.replicas(entry_id)[0].ledger(ledger.id).entries[entry_id]
    other = DIGEST.package(ledger.id, 20, 19, 1, b"something else")
    ledger.replicas(20)[0].ledger(ledger.id).entries[20] = other
    later = DIGEST.package(ledger.id, 30, 5, sum(len(payload(n)) for n in range(31)), payload(30))
    ledger.replicas(30)[0].ledger(ledger.id).entries[30] = later  # packaged again by a recovery: the same content
    found = await check_copies(bk, ledger.metadata, DIGEST, 0, 39)
    wrong = {(problem.entry_id, problem.bookie, problem.status) for problem in found.problems}
    expected = {
        (3, ledger.replicas(3)[1].id, Copy.DAMAGED),
        (10, ledger.replicas(10)[0].id, Copy.MISSING),
        (11, ledger.replicas(11)[0].id, Copy.MISSING),
    }
    assert wrong - {each for each in wrong if each[0] == 20} == expected
    divergent = {each for each in wrong if each[0] == 20}
    if quorums[1] == 3:
        assert divergent == {(20, ledger.replicas(20)[0].id, Copy.DIVERGENT)}
    else:  # of two, nobody can say which
        assert len(divergent) == 1
        assert next(iter(divergent))[2] is Copy.DIVERGENT
    assert found.bad_copies()[3] == {ledger.replicas(3)[1].id: None}


async def test_a_bookie_that_cannot_be_asked_says_nothing_about_its_copies(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 5)
    ledger.bookies[1].on_request = lambda _: CLOSE
    bk = await cluster.connect(readEntryTimeoutSec=5)
    check = await check_copies(bk, ledger.metadata, DIGEST, 0, 4)
    assert check.problems == [
        Problem(n, ledger.bookies[1].id, Copy.UNREACHABLE, "no usable connection to the bookie") for n in range(5)
    ]
    assert check.good_copies.tolist() == [2] * 5
    assert await unlisted_copies(Replicas(bk.context, ledger.metadata, DIGEST), [(0, 4)]) == []


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_what_a_bookie_does_not_list_is_missing_even_if_it_serves_it(
    cluster: FakeCluster, quorums: tuple[int, int, int]
) -> None:
    ledger = await make_ledger(cluster, 30, quorums=quorums)
    bk = await cluster.connect()
    assert await unlisted_copies(Replicas(bk.context, ledger.metadata, DIGEST), [(0, 29)]) == []
    bookie = ledger.replicas(9)[0]
    entry = bookie.ledger(ledger.id).entries.pop(9)
    unlisted = await unlisted_copies(Replicas(bk.context, ledger.metadata, DIGEST), [(0, 29)])
    assert unlisted == [(bookie.id, 9, 9)]
    bookie.put(entry)
    check = await check_copies(bk, ledger.metadata, DIGEST, 0, 29, {bookie.id: [(9, 9)]})
    assert check.problems == [Problem(9, bookie.id, Copy.MISSING, "the bookie does not list it")]
    assert check.good_copies[9] == quorums[1] - 1


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_an_entry_that_a_bookie_fails_to_read_says_nothing_about_its_neighbours(
    cluster: FakeCluster, quorums: tuple[int, int, int]
) -> None:
    ledger = await make_ledger(cluster, 30, quorums=quorums)
    bookie = ledger.replicas(9)[0]

    def torn(request: Request) -> Status | None:
        at = isinstance(request, ReadRequest) and request.entry_id == 9
        within = isinstance(request, BatchReadRequest) and request.entry_id <= 9
        return Status.EIO if at or within else None

    bookie.on_request = torn
    bk = await cluster.connect()
    check = await check_copies(bk, ledger.metadata, DIGEST, 0, 29)
    assert check.problems == [Problem(9, bookie.id, Copy.UNREADABLE, "the bookie fails to read it")]
    assert check.good_copies.tolist() == [quorums[1] - (n == 9) for n in range(30)]
