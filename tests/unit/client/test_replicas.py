"""Every copy by itself: what a bookie gives, whether it is good, and what the copies say together."""

from __future__ import annotations

import pytest

from bookkeeper.client.reads import replicas as module
from bookkeeper.client.reads.replicas import Copy, CopyStatus, Flaw, Problem, Replicas, Reply
from bookkeeper.protocol.messages import Status
from tests.support.fake_bookie import CLOSE, FakeCluster

from .support import DIGEST, Ledger, make_ledger, package, payload


async def replicas_of(cluster: FakeCluster, ledger: Ledger, **settings: object) -> Replicas:
    bk = await cluster.connect(readEntryTimeoutSec=5, **settings)
    return Replicas(bk.context, ledger.metadata, DIGEST)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)


async def test_one_copy_comes_from_the_bookie_that_was_named(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 5)
    replicas = await replicas_of(cluster, ledger)
    first, second, third = (bookie.id for bookie in ledger.replicas(3))
    assert replicas.bookies(3) == [first, second, third]
    ledger.corrupt(ledger.replicas(3)[0], 3)
    del ledger.replicas(3)[1].ledger(ledger.id).entries[3]
    damaged = replicas.examine(3, await replicas.one(first, 3))
    assert damaged == Flaw(CopyStatus.DAMAGED, "the entry's digest is wrong")
    missing = replicas.examine(3, await replicas.one(second, 3))
    assert isinstance(missing, Flaw)
    assert missing.status is CopyStatus.MISSING
    good = replicas.examine(3, await replicas.one(third, 3))
    assert isinstance(good, Copy)
    assert (good.payload, good.last_confirmed) == (payload(3), 2)


async def test_a_copy_that_java_s_worker_made_is_good(cluster: FakeCluster) -> None:
    """It names the end of the ledger as last confirmed."""
    ledger = await make_ledger(cluster, 2)
    replicas = await replicas_of(cluster, ledger)
    found = replicas.examine(0, Reply(0, package(ledger.id, 0, lac=1)))
    assert isinstance(found, Copy)
    assert found.last_confirmed == 1


async def test_each_entry_gets_a_reply_in_order(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SINGLE_READS", 3)
    ledger = await make_ledger(cluster, 8)
    replicas = await replicas_of(cluster, ledger)
    del ledger.bookies[1].ledger(ledger.id).entries[4]
    found = {entry_id: reply.ok async for entry_id, reply in replicas.each(ledger.bookies[1].id, list(range(8)))}
    assert found == {n: n != 4 for n in range(8)}
    assert list(found) == list(range(8))


async def test_a_bookie_that_hangs_up_is_asked_twice_and_not_for_the_rest(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SINGLE_READS", 2)
    ledger = await make_ledger(cluster, 9)
    replicas = await replicas_of(cluster, ledger)
    asked: list[object] = []

    def hang_up(request: object) -> object:
        asked.append(request)
        return CLOSE

    ledger.bookies[0].on_request = hang_up  # type: ignore[assignment]
    found = [reply async for _, reply in replicas.each(ledger.bookies[0].id, list(range(9)))]
    assert len(found) == 9
    assert all(reply.hung_up and reply.status is CopyStatus.UNREACHABLE for reply in found)
    assert len(asked) <= 4


async def test_a_batch_is_asked_for_again_when_the_failure_may_pass(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 4)
    replicas = await replicas_of(cluster, ledger)
    assert replicas.in_batches
    asked: list[object] = []

    def hang_up_at_first(request: object) -> object:
        asked.append(request)
        return CLOSE if len(asked) == 1 else None

    ledger.bookies[2].on_request = hang_up_at_first  # type: ignore[assignment]
    assert (await replicas.batch(ledger.bookies[2].id, 0, 4)).ok
    assert len(asked) == 2


async def test_a_batch_that_the_bookie_refuses_is_not_asked_for_again(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 4)
    replicas = await replicas_of(cluster, ledger)
    asked: list[object] = []

    def refuse(request: object) -> Status:
        asked.append(request)
        return Status.EIO

    ledger.bookies[2].on_request = refuse
    assert not (await replicas.batch(ledger.bookies[2].id, 0, 4)).ok
    assert len(asked) == 1


async def test_without_batch_reads_there_are_none(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 1)
    assert not (await replicas_of(cluster, ledger, protocol="v3")).in_batches
    assert not (await replicas_of(cluster, ledger, batchReadEnabled=False)).in_batches


async def test_the_list_of_a_bookie(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 6)
    replicas = await replicas_of(cluster, ledger)
    del ledger.bookies[0].ledger(ledger.id).entries[2]
    listed = await replicas.listed(ledger.bookies[0].id)
    assert listed is not None
    assert [n for n in range(8) if n in listed] == [0, 1, 3, 4, 5]
    ledger.bookies[0].on_request = lambda _: Status.ENOLEDGER
    empty = await replicas.listed(ledger.bookies[0].id)
    assert empty is not None
    assert 0 not in empty
    ledger.bookies[0].on_request = lambda _: CLOSE
    assert await replicas.listed(ledger.bookies[0].id) is None


async def test_most_copies_decide_which_one_differs(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    replicas = await replicas_of(cluster, ledger)
    bookies = ledger.replicas(1)
    names = [bookie.id for bookie in bookies]
    again = DIGEST.package(ledger.id, 1, -1, sum(len(payload(n)) for n in range(2)), payload(1))
    bookies[0].ledger(ledger.id).entries[1] = again  # what a recovery packaged anew has the same content
    assert await replicas.compare(1, names) == []
    bookies[2].ledger(ledger.id).entries[1] = DIGEST.package(ledger.id, 1, 0, 1, b"other")
    assert await replicas.compare(1, names) == [
        Problem(1, names[2], CopyStatus.DIVERGENT, f"differs from the copy of {names[0]}")
    ]
    del bookies[2].ledger(ledger.id).entries[1]  # it was there a moment ago
    assert [problem.status for problem in await replicas.compare(1, names)] == [CopyStatus.UNREACHABLE]


async def test_a_diagnosis_names_every_replica_and_says_whether_the_entry_is_lost(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    replicas = await replicas_of(cluster, ledger)
    bookies = ledger.replicas(1)
    ledger.corrupt(bookies[0], 1)
    del bookies[1].ledger(ledger.id).entries[1]
    found = await replicas.diagnose(1)
    assert not found.lost
    assert [reason for _, reason in found.reasons] == [
        "damaged, entry's digest is wrong",
        Reply(-13).detail,
        "good now",
    ]
    ledger.corrupt(bookies[2], 1)
    assert (await replicas.diagnose(1)).lost
    bookies[2].on_request = lambda _: CLOSE
    assert not (await replicas.diagnose(1)).lost
