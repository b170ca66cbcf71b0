"""Reading entries from replicas that fail, lie and dawdle (spec client §9, §17.4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from bookkeeper.client.entry import LedgerEntry
from bookkeeper.client.reads.range import RangeRead
from bookkeeper.client.wire.calls import ReadCall
from bookkeeper.errors import (
    BookieUnavailableError,
    DigestMismatchError,
    IncorrectParameterError,
    NoSuchEntryError,
    NoSuchLedgerError,
    ReadError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from bookkeeper.metadata.api import Mode
from bookkeeper.protocol.messages import ReadRequest, Request, Status
from bookkeeper.runtime import TimerHandle
from tests.support.fake_bookie import CLOSE, HOLD, SILENT, FakeCluster, Fault

from .support import PROTOCOLS, eventually, make_ledger, package, payload, stop_reads


@pytest.fixture
def turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first replica to be asked changes with every entry, however small they are."""
    monkeypatch.setattr("bookkeeper.client.reads.ledger_reads.LARGEST_RUN", 1)


@PROTOCOLS
async def test_a_range_comes_in_order(cluster: FakeCluster, protocol: str) -> None:
    ledger = await make_ledger(cluster, 50)
    reader = await ledger.open(await cluster.connect(protocol=protocol, readEntriesWindow=8))
    entries = await reader.read(3, 44)
    assert [entry.entry_id for entry in entries] == list(range(3, 45))
    assert all(entry.data == payload(entry.id) and entry.ledger_id == ledger.id for entry in entries)
    assert entries[0].ledger_length == sum(len(payload(i)) for i in range(4))
    assert bytes(entries[0]) == payload(3)
    assert len(entries[0]) == len(payload(3))
    assert LedgerEntry(1, 2, b"", 0)


@PROTOCOLS
async def test_small_entries_are_asked_for_in_runs(
    cluster: FakeCluster, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bookie is asked for entries that lie side by side, and for its share; one that fails for the others' too."""
    monkeypatch.setattr("bookkeeper.client.reads.ledger_reads.LARGEST_RUN", 8)
    ledger = await make_ledger(cluster, 50)
    reader = await ledger.open(await cluster.connect(protocol=protocol, batchReadEnabled=False))
    assert [entry.entry_id for entry in await reader.read(3, 44)] == list(range(3, 45))
    for place, bookie in enumerate(ledger.bookies):
        asked = [request.entry_id for request in bookie.requests if isinstance(request, ReadRequest)]
        assert sorted(asked) == [entry_id for entry_id in range(3, 45) if entry_id // 8 % 3 == place]
    stop_reads(ledger.bookies[1], Status.ENOENTRY)
    assert [entry.entry_id for entry in await reader.read(5, 49)] == list(range(5, 50))


async def test_large_entries_are_spread_over_the_bookies(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 0)
    client = await cluster.connect(batchReadEnabled=False)
    async with await client.create_ledger(password=b"p") as writer:
        for number in range(9):
            await writer.append(bytes(40_000 + number))
    async with await client.open_ledger(writer.id, password=b"p") as reader:
        assert [len(entry) for entry in await reader.read(0, 8)] == list(range(40_000, 40_009))
        for bookie in ledger.bookies:
            assert len({r.entry_id for r in bookie.requests if isinstance(r, ReadRequest) and r.entry_id >= 0}) == 3


@PROTOCOLS
async def test_the_last_entry_is_read(cluster: FakeCluster, protocol: str) -> None:
    ledger = await make_ledger(cluster, 5)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    assert (await reader.read_last_entry()).entry_id == 4
    empty = await make_ledger(cluster, 0)
    with pytest.raises(NoSuchEntryError):
        await (await empty.open(await cluster.connect())).read_last_entry()


async def test_arguments_are_checked(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    reader = await ledger.open(await cluster.connect())
    for first, last in [(2, 1), (-1, 1), (-2, -1)]:
        with pytest.raises(IncorrectParameterError):
            await reader.read(first, last)
        with pytest.raises(IncorrectParameterError):
            await reader.read_unconfirmed(first, last)
    with pytest.raises(ReadError):
        await reader.read(0, 3)
    with pytest.raises(ReadError):
        await reader.batch_read(3, max_count=1)
    with pytest.raises(IncorrectParameterError):
        await reader.batch_read(-1, max_count=1)
    with pytest.raises(IncorrectParameterError):
        await reader.batch_read(0, max_count=0)
    with pytest.raises(IncorrectParameterError):
        await reader.batch_read_unconfirmed(0, max_count=1, max_size=-1)
    with pytest.raises(IncorrectParameterError):
        await reader.read_last_add_confirmed_and_entry(-1, poll_timeout=1)
    assert len([entry async for entry in reader.entries(3)]) == 0


async def test_a_missing_entry_is_reported_so_only_if_every_replica_says_so(cluster: FakeCluster) -> None:
    """RI-13."""
    ledger = await make_ledger(cluster, 3)
    client = await cluster.connect(speculativeReadTimeout=0, readEntryTimeoutSec=0.2)
    reader = await ledger.open(client)
    with pytest.raises(NoSuchEntryError) as missing:
        await reader.read_unconfirmed(3, 3)
    assert missing.value.entry_id == 3
    await ledger.bookies[1].stop()
    with pytest.raises(BookieUnavailableError):
        await reader.read_unconfirmed(3, 3)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([Status.ENOENTRY, SILENT, Status.ENOENTRY], RequestTimeoutError),
        ([SILENT, Status.ENOENTRY, Status.ENOENTRY], RequestTimeoutError),
        ([CLOSE, Status.ENOENTRY, Status.ENOENTRY], BookieUnavailableError),
        ([CLOSE, CLOSE, "corrupt"], DigestMismatchError),
        ([SILENT, SILENT, "corrupt"], RequestTimeoutError),
        (["corrupt", SILENT, SILENT], DigestMismatchError),
        ([Status.ENOLEDGER, Status.ENOENTRY, Status.ENOLEDGER], NoSuchLedgerError),
        ([Status.ETOOMANYREQUESTS, CLOSE, Status.ENOENTRY], TooManyRequestsError),
        ([Status.EIO, Status.EIO, Status.EIO], ReadError),
    ],
)
async def test_the_most_telling_error_is_reported(
    cluster: FakeCluster, answers: list[Status | Fault | str], expected: type[Exception]
) -> None:
    """RI-13."""
    ledger = await make_ledger(cluster, 1)
    for bookie, answer in zip(ledger.replicas(0), answers, strict=True):
        if isinstance(answer, str):
            ledger.corrupt(bookie, 0)
        else:
            stop_reads(bookie, answer)
    client = await cluster.connect(speculativeReadTimeout=0, readEntryTimeoutSec=0.2)
    with pytest.raises(expected):
        await (await ledger.open(client)).read_entry(0)


@PROTOCOLS
@pytest.mark.parametrize("fault", [SILENT, CLOSE, Status.EIO, Status.EUNKNOWNLEDGERSTATE, "corrupt", "absent"])
async def test_two_bad_replicas_are_survived(cluster: FakeCluster, fault: Status | Fault | str, protocol: str) -> None:
    """RI-12, SEC-27, SEC-31, SEC-32."""
    ledger = await make_ledger(cluster, 20)
    for bookie in ledger.bookies[:2]:
        for entry_id in range(20):
            if fault == "corrupt":
                ledger.corrupt(bookie, entry_id)
        if fault == "absent":
            bookie.ledgers.clear()
        elif not isinstance(fault, str):
            stop_reads(bookie, fault)
    client = await cluster.connect(protocol=protocol, speculativeReadTimeout=0, readEntryTimeoutSec=0.2)
    reader = await ledger.open(client)
    assert [entry.data for entry in await reader.read(0, 19)] == [payload(i) for i in range(20)]
    assert [entry.data async for entry in reader] == [payload(i) for i in range(20)]


async def test_another_entry_than_the_one_asked_for_is_not_taken(cluster: FakeCluster) -> None:
    """RI-12, SEC-31."""
    ledger = await make_ledger(cluster, 2)
    first = ledger.replicas(0)[0]
    first.ledger(ledger.id).entries[0] = package(ledger.id, 1)
    reader = await ledger.open(await cluster.connect())
    assert (await reader.read_entry(0)).data == payload(0)
    for bookie in ledger.bookies:
        bookie.ledger(ledger.id).entries[0] = package(ledger.id, 1)
    with pytest.raises(DigestMismatchError):
        await reader.read_entry(0)


async def test_a_silent_replica_is_passed_over_by_speculation(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 9)
    for bookie in ledger.replicas(0)[:2]:
        stop_reads(bookie, SILENT)
    client = await cluster.connect(speculativeReadTimeout=30, readEntryTimeoutSec=60)
    reader = await ledger.open(client)
    async with asyncio.timeout(20):
        assert (await reader.read_entry(0)).data == payload(0)
    # The silent ones are known to be slow now, and asked last.
    before = [bookie.count(ReadRequest) for bookie in ledger.bookies]
    await reader.read(0, 8)
    after = [bookie.count(ReadRequest) for bookie in ledger.bookies]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 0, 9]


class SpeculationTimers:
    """The timers of speculation; they go off when the test says so."""

    def __init__(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handles: list[asyncio.TimerHandle] = []
        self.callbacks: list[Any] = []
        call_later = cluster.runtime.call_later

        def recorded(delay: float, callback: Callable[..., None], *args: Any) -> TimerHandle:
            if getattr(callback, "__name__", "") not in ("_speculate", "_look_again", "_look"):
                return call_later(delay, callback, *args)
            handle = call_later(1_000_000, callback, *args)
            self.handles.append(cast(asyncio.TimerHandle, handle))
            self.callbacks.append(callback)
            return handle

        monkeypatch.setattr(cluster.runtime, "call_later", recorded)

    def go_off(self) -> None:
        self.handles[-1].cancel()
        self.callbacks[-1]()


def _read_of(look_again: Any) -> Any:
    """The range read whose wave this timer is about."""
    return look_again.__self__._look.__self__


@pytest.mark.usefixtures("turn_by_turn")
@pytest.mark.parametrize("answers", [True, False])
async def test_no_speculation_against_a_bookie_that_answers(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Scenario 50. The first replica of entries 0 and 3 holds back the answer for 0 only, or for both."""
    timers = SpeculationTimers(cluster, monkeypatch)
    ledger = await make_ledger(cluster, 4)
    slow = ledger.replicas(0)[0]
    held = (0,) if answers else (0, 3)
    slow.on_request = lambda request: HOLD if isinstance(request, ReadRequest) and request.entry_id in held else None
    reader = await ledger.open(await cluster.connect())
    reading = asyncio.create_task(reader.read(0, 3))
    await eventually(lambda: timers.callbacks and len(_read_of(timers.callbacks[0])._responsive) == 2 + answers)
    timers.go_off()
    # What was sent just now has arrived when a later read of another entry has been answered.
    await reader.read(1, 2)
    others = [bookie for bookie in ledger.bookies if bookie is not slow]
    again = [r.entry_id for bookie in others for r in bookie.requests if isinstance(r, ReadRequest)]
    assert sorted(again) == sorted([1, 2, 1, 2] if answers else [1, 2, 1, 2, 0, 3])
    slow.release()
    assert len(await reading) == 4


@PROTOCOLS
async def test_the_read_of_one_entry_that_is_late_goes_to_the_next_replica(
    cluster: FakeCluster, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = SpeculationTimers(cluster, monkeypatch)
    ledger = await make_ledger(cluster, 4)
    slow, second, third = ledger.replicas(0)
    slow.on_request = lambda _: HOLD
    reader = await ledger.open(await cluster.connect(protocol=protocol, speculativeReadTimeout=1))
    reading = asyncio.create_task(reader.read_entry(0))
    await eventually(lambda: slow.count(ReadRequest) == 1)
    while reader._singles._under_way:
        timers.go_off()
        await asyncio.sleep(0)
    timers.go_off()  # the delay is over already
    assert (await reading).data == payload(0)
    assert (await reader.read_entry(0)).data == payload(0)  # the first replica counts as slow now
    assert [bookie.count(ReadRequest) for bookie in (slow, second, third)] == [1, 2, 0]
    slow.release()
    assert (await reader.read_entry(3)).data == payload(3)
    assert all(handle.cancelled() for handle in timers.handles)


class PolicyError(Exception):
    """Of a policy of somebody's own."""


@pytest.mark.parametrize("trouble", ["late", "missing"])
async def test_what_fails_when_one_read_meets_trouble_is_its_error_alone(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    timers = SpeculationTimers(cluster, monkeypatch)
    ledger = await make_ledger(cluster, 4)
    slow = ledger.replicas(0)[0]
    slow.on_request = lambda _: HOLD
    reader = await ledger.open(await cluster.connect(speculativeReadTimeout=1))
    reading = [asyncio.create_task(reader.read_entry(entry)) for entry in (0, 3)]
    await eventually(lambda: slow.count(ReadRequest) == 2)

    def fails(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise PolicyError

    monkeypatch.setattr(RangeRead, "take_over", fails)
    if trouble == "missing":
        del slow.ledger(ledger.id).entries[0]
        slow.release()
    else:
        cluster.runtime.now = lambda now=cluster.runtime.now: now() + 2  # type: ignore[method-assign,misc]
        timers.go_off()
    with pytest.raises(PolicyError):
        await reading[0]
    assert (await reading[1]).data == payload(3)


@PROTOCOLS
async def test_a_late_replica_may_answer_after_all_others_have_failed(cluster: FakeCluster, protocol: str) -> None:
    ledger = await make_ledger(cluster, 4)
    slow, *others = ledger.replicas(0)
    slow.on_request = lambda _: HOLD
    for bookie in others:
        stop_reads(bookie, Status.ENOENTRY)
    reader = await ledger.open(await cluster.connect(protocol=protocol, speculativeReadTimeout=5))
    reading = asyncio.create_task(reader.read_entry(0))
    await eventually(lambda: all(bookie.count(ReadRequest) == 1 for bookie in others))
    slow.release()
    assert (await reading).data == payload(0)


async def test_reads_of_one_entry_side_by_side(cluster: FakeCluster) -> None:
    """Good ones, damaged ones, ones that are cancelled, and one that is not there."""
    ledger = await make_ledger(cluster, 40)
    reader = await ledger.open(await cluster.connect())
    first = ledger.replicas(0)[0]
    first.ledger(ledger.id).entries[0] = package(ledger.id, 1)
    stop_reads(ledger.bookies[2], CLOSE)
    reads = [asyncio.create_task(reader.read_entry(i % 40)) for i in range(200)]
    await asyncio.sleep(0)
    cancelled = reads[::7]
    for read in cancelled:
        read.cancel()
    found = await asyncio.gather(*reads, return_exceptions=True)
    for number, (read, entry) in enumerate(zip(reads, found, strict=True)):
        if read in cancelled:
            assert isinstance(entry, asyncio.CancelledError)
        else:
            assert isinstance(entry, LedgerEntry)
            assert entry.data == payload(number % 40)
    with pytest.raises(BookieUnavailableError):
        await reader.read_unconfirmed(99, 99)
    assert not reader._singles._under_way


@PROTOCOLS
@pytest.mark.usefixtures("turn_by_turn")
async def test_reads_of_one_turn_leave_together(
    cluster: FakeCluster, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call for each replica; nothing for a read that was cancelled before the turn ended."""
    ledger = await make_ledger(cluster, 12)
    client = await cluster.connect(protocol=protocol)
    reader = await ledger.open(client)
    calls: list[list[int]] = []
    read_entries = client._bookies.read_entries

    def counted(ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        calls.append([*entry_ids])
        read_entries(ledger_id, entry_ids, call)

    monkeypatch.setattr(client._bookies, "read_entries", counted)
    reads = [asyncio.ensure_future(reader.read_entry(entry)) for entry in (0, 3, 1, 6, 4, 6)]
    asyncio.get_running_loop().call_soon(reads[3].cancel)  # in the turn in which they are begun
    found = await asyncio.gather(*reads, return_exceptions=True)
    assert isinstance(found.pop(3), asyncio.CancelledError)
    assert [entry.data for entry in found if isinstance(entry, LedgerEntry)] == [payload(i) for i in (0, 3, 1, 4, 6)]
    assert sorted(calls) == [[0, 3], [1, 4], [6]]


@pytest.mark.usefixtures("turn_by_turn")
async def test_reads_that_have_no_room_together_take_what_there_is(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 15)
    for bookie in ledger.bookies:
        stop_reads(bookie, HOLD)
    reader = await ledger.open(await cluster.connect(maxOutstandingRequestsPerChannel=2, speculativeReadTimeout=0))
    reading = asyncio.gather(*(reader.read_entry(entry) for entry in (0, 3, 6, 9, 12)))  # all of the same replica
    await eventually(lambda: sum(bookie.count(ReadRequest) for bookie in ledger.bookies) == 5)
    assert sorted(bookie.count(ReadRequest) for bookie in ledger.bookies) == [1, 2, 2]
    for bookie in ledger.bookies:
        bookie.release()
    assert [entry.data for entry in await reading] == [payload(i) for i in (0, 3, 6, 9, 12)]


async def test_what_cannot_be_sent_fails_each_read_of_its_turn(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is ever late, so that nobody would look for them."""
    ledger = await make_ledger(cluster, 6)
    client = await cluster.connect(speculativeReadTimeout=0)
    reader = await ledger.open(client)

    def fails(*_: object) -> None:
        monkeypatch.undo()
        raise PolicyError

    monkeypatch.setattr(client._bookies, "read_entries", fails)
    found = await asyncio.gather(*(reader.read_entry(entry) for entry in (0, 1)), return_exceptions=True)
    assert [type(error) for error in found] == [PolicyError, PolicyError]
    assert (await reader.read_entry(0)).data == payload(0)


async def test_the_speculation_timer_ends_with_the_read(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 50."""
    timers = SpeculationTimers(cluster, monkeypatch)
    ledger = await make_ledger(cluster, 9)
    reader = await ledger.open(await cluster.connect())
    await reader.read(0, 8)
    await reader.batch_read(0, max_count=9)
    assert len(timers.handles) == 2
    assert all(handle.cancelled() for handle in timers.handles)


async def test_equal_reads_at_once_all_end(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    for bookie in ledger.bookies:
        stop_reads(bookie, HOLD)
    reader = await ledger.open(await cluster.connect(protocol="v2", speculativeReadTimeout=0))
    reads = [asyncio.create_task(reader.read(0, 2)) for _ in range(3)]
    await eventually(lambda: sum(bookie.count(ReadRequest) for bookie in ledger.bookies) == 9)
    for bookie in ledger.bookies:
        bookie.release()
    for read in reads:
        assert len(await read) == 3


async def test_requests_of_a_cancelled_read_are_forgotten(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    for bookie in ledger.bookies:
        stop_reads(bookie, HOLD)
    reader = await ledger.open(await cluster.connect())
    reading = asyncio.create_task(reader.read(0, 2))
    await eventually(lambda: sum(bookie.count(ReadRequest) for bookie in ledger.bookies) == 3)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    for bookie in ledger.bookies:
        bookie.release()
        bookie.on_request = None
    assert len(await reader.read(0, 2)) == 3


@pytest.mark.usefixtures("turn_by_turn")
async def test_unregistered_bookies_are_asked_last(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 6)
    client = await cluster.connect()
    reader = await ledger.open(client)
    gone = ledger.bookies[0]
    await cluster.unregister(gone)
    await eventually(lambda: gone.id not in client._placement.bookies.writable)
    await reader.read(0, 5)
    assert gone.count(ReadRequest) == 0
    await cluster.register(gone, Mode.READ_ONLY)
    await eventually(lambda: gone.id in client._placement.bookies.readonly)
    await reader.read(0, 5)
    assert gone.count(ReadRequest) == 2


async def test_a_congested_bookie_is_passed_over(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 6)
    first = ledger.bookies[0]
    first.on_request = lambda _: HOLD
    reader = await ledger.open(await cluster.connect(readReorderThresholdPendingRequests=1, speculativeReadTimeout=0))
    waiting = asyncio.create_task(reader.read(0, 0))
    await eventually(lambda: first.count(ReadRequest) == 1)
    assert [entry.id for entry in await reader.read(0, 0)] == [0]
    assert first.count(ReadRequest) == 1
    assert not waiting.done()
    first.release()
    await waiting


async def test_a_read_crosses_fragments(cluster: FakeCluster) -> None:
    a, b, c = cluster.bookies
    ledger = await make_ledger(cluster, 20, quorums=(2, 2, 1), ensembles={0: [a, b], 7: [a, c], 13: [c, b]})
    reader = await ledger.open(await cluster.connect())
    assert [entry.id for entry in await reader.read(0, 19)] == list(range(20))
    assert [entry.id for entry in await reader.batch_read(3, max_count=100)] == [3, 4, 5, 6]
    assert [entry.id for entry in await reader.batch_read(3, max_count=100, max_size=1)] == [3]
    assert [entry.id async for entry in reader] == list(range(20))


async def test_duplicate_members_of_an_ensemble_are_each_tried_once(cluster: FakeCluster) -> None:
    a, b, _ = cluster.bookies
    ledger = await make_ledger(cluster, 1, ensembles={0: [a, a, b]})
    stop_reads(a, Status.EIO)
    reader = await ledger.open(await cluster.connect(speculativeReadTimeout=0))
    assert (await reader.read_entry(0)).data == payload(0)
    assert a.count(ReadRequest) == 2


async def test_sticky_reads_stay_with_a_bookie_until_it_fails(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 12)
    reader = await ledger.open(await cluster.connect(stickyReadSEnabled=True))
    await reader.read(0, 11)
    counts = [bookie.count(ReadRequest) for bookie in ledger.bookies]
    assert sorted(counts) == [0, 0, 12]
    index = counts.index(12)
    stop_reads(ledger.bookies[index], Status.EIO)
    await reader.read_entry(0)
    await reader.read(0, 11)
    assert ledger.bookies[(index + 1) % 3].count(ReadRequest) == 13
    assert ledger.bookies[index].count(ReadRequest) == 13


# --- iteration ---


@PROTOCOLS
async def test_iteration_yields_what_is_before_a_bad_entry_and_then_its_error(
    cluster: FakeCluster, protocol: str
) -> None:
    ledger = await make_ledger(cluster, 300)
    for bookie in cluster.bookies:
        ledger.corrupt(bookie, 217)
    reader = await ledger.open(await cluster.connect(protocol=protocol, readEntriesWindow=16))
    entries = reader.entries(100)
    assert [(await anext(entries)).id for _ in range(100, 217)] == list(range(100, 217))
    with pytest.raises(DigestMismatchError) as failure:
        await anext(entries)
    assert failure.value.entry_id == 217


@PROTOCOLS
async def test_a_damaged_copy_that_comes_with_good_ones_is_no_copy(cluster: FakeCluster, protocol: str) -> None:
    """It once counted as delivered for the choice of slow bookies, which made the entry's error an unexpected one."""
    ledger = await make_ledger(cluster, 30)
    for bookie in cluster.bookies:
        ledger.corrupt(bookie, 17)
    reader = await ledger.open(await cluster.connect(protocol=protocol, batchReadEnabled=False))
    with pytest.raises(DigestMismatchError) as failure:
        await reader.read(0, 29)
    assert failure.value.entry_id == 17


async def test_iteration_works_in_small_windows(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 100)
    reader = await ledger.open(await cluster.connect())
    assert [entry.id async for entry in reader.entries(window_bytes=400)] == list(range(100))
    striped = await make_ledger(cluster, 100, quorums=(3, 2, 1))
    reader = await striped.open(await cluster.connect())
    assert [entry.id async for entry in reader.entries(window=2)] == list(range(100))


async def test_iteration_left_early_leaves_nothing_behind(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 1000)
    reader = await ledger.open(await cluster.connect())
    async with contextlib.aclosing(reader.entries()) as entries:
        async for entry in entries:
            if entry.id == 10:
                break
    assert not [task for task in asyncio.all_tasks() if "entries of ledger" in task.get_name()]


async def test_range_of_iteration_is_checked(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    reader = await ledger.open(await cluster.connect())
    with pytest.raises(ReadError):
        [entry async for entry in reader.entries(0, 3)]
    with pytest.raises(IncorrectParameterError):
        [entry async for entry in reader.entries(-1)]


async def test_a_bounded_number_of_requests_is_outstanding(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 40)
    for bookie in cluster.bookies:
        stop_reads(bookie, HOLD)
    reader = await ledger.open(await cluster.connect(readEntriesWindow=6, speculativeReadTimeout=0))
    reading = asyncio.create_task(reader.read(0, 39))
    await eventually(lambda: sum(bookie.count(ReadRequest) for bookie in cluster.bookies) == 6)
    asked: list[Request] = [request for bookie in cluster.bookies for request in bookie.requests]
    assert len(asked) == 6
    while not reading.done():
        for bookie in cluster.bookies:
            bookie.release()
        await asyncio.sleep(0.001)
    assert len(await reading) == 40


@pytest.mark.usefixtures("turn_by_turn")
async def test_more_requests_than_a_connection_may_hold_fail(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 40)
    reader = await ledger.open(await cluster.connect(maxOutstandingRequestsPerChannel=3))
    with pytest.raises(TooManyRequestsError):
        await reader.read(0, 39)
    assert len(await reader.read(0, 5)) == 6
