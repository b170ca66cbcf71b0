"""The client without a loop."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import bookkeeper.sync
from bookkeeper.client.adds.pipeline import AddPipeline
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import (
    BackpressureError,
    BKError,
    ClientClosedError,
    ConfigurationError,
    IncorrectParameterError,
    LedgerClosedError,
    MetadataStoreError,
    NoSuchEntryError,
    NoSuchLedgerOnMetadataError,
    WrongLoopError,
)
from bookkeeper.protocol.messages import AddRequest, BatchReadRequest, ReadRequest, Status
from bookkeeper.runtime.loop_thread import LoopThread
from bookkeeper.sync import iterator as iterator_module
from tests.support.fake_bookie import HOLD, SILENT, FakeCluster
from tests.support.waiting import wait_until

from .support import payload

SHAPE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 3}


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """Where the bookies live."""
    running = LoopThread("fake bookies")
    yield running
    running.stop()
    running.stop()


@pytest.fixture
def cluster(tmp_path: Path, thread: LoopThread) -> Iterator[FakeCluster]:
    running = FakeCluster(3, f"sqlite://{tmp_path}/metadata.db")
    thread.submit(running.start()).result(30)
    yield running
    thread.submit(running.close()).result(30)


@pytest.fixture
def bk(cluster: FakeCluster) -> Iterator[bookkeeper.sync.BookKeeper]:
    with bookkeeper.sync.connect(cluster.uri) as client:
        yield client


def test_a_ledger_from_beginning_to_end(bk: bookkeeper.sync.BookKeeper) -> None:
    with bk.create_ledger(**SHAPE, password=b"s", custom_metadata={"for": b"test"}) as writer:
        assert writer.append(payload(0)) == 0
        assert writer.append_many([payload(i) for i in range(1, 50)]) == list(range(1, 50))
        futures = [writer.append_nowait(payload(i)) for i in range(50, 100)]
        assert [future.result(30) for future in futures] == list(range(50, 100))
        assert writer.flush() == 99
        assert (writer.last_add_pushed, writer.last_add_confirmed) == (99, 99)
        assert bytes(writer.read_last_entry()) == payload(99)
    assert writer.closed
    with pytest.raises(LedgerClosedError):
        writer.append(b"late")
    with pytest.raises(LedgerClosedError):
        writer.append_nowait(b"late").result(30)
    assert bk.list_ledgers().__next__() == writer.id
    assert list(bk.list_ledgers()) == [writer.id]
    assert bk.is_closed(writer.id)
    assert bk.get_ledger_metadata(writer.id).custom_metadata == {"for": b"test"}
    with bk.open_ledger(writer.id, password=b"s") as reader:
        assert reader.id == writer.id
        assert reader.closed
        assert reader.metadata.last_entry_id == 99
        assert reader.length == sum(len(payload(i)) for i in range(100))
        assert [entry.data for entry in reader] == [payload(i) for i in range(100)]
        assert [entry.id for entry in reader.entries(10, 20)] == list(range(10, 21))
        assert [entry.id for entry in reader.tail(90)] == list(range(90, 100))
        assert [entry.id for entry in reader.read(3, 4)] == [3, 4]
        assert reader.read_entry(7).data == payload(7)
        assert reader.read_last_entry().id == 99
        assert len(reader.batch_read(0, max_count=10)) == 10
        assert len(reader.batch_read_unconfirmed(0, max_count=10)) == 10
        with pytest.raises(NoSuchEntryError):
            reader.read_unconfirmed(99, 100)
        assert reader.read_last_add_confirmed() == 99
        assert reader.try_read_last_add_confirmed() == 99
        assert reader.read_explicit_last_add_confirmed() == 99
        assert reader.read_last_add_confirmed_and_entry(5, poll_timeout=1).last_add_confirmed == 99
        assert reader.refresh_metadata() == reader.metadata
    bk.delete_ledger(writer.id)
    with pytest.raises(NoSuchLedgerOnMetadataError):
        bk.open_ledger(writer.id)


def test_what_bookies_there_are(bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster) -> None:
    ids = {bookie.id for bookie in cluster.bookies}
    assert bk.writable_bookies() == ids
    assert bk.readonly_bookies() == set()
    assert bk.all_bookies() <= ids
    assert {info.free for info in bk.bookie_info().values()} == {400}
    assert bk.metadata_service_available()


def test_ids_of_the_callers(bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster) -> None:
    with bk.create_ledger_adv(**SHAPE, ledger_id=1234) as writer:
        second = writer.write_nowait(1, b"one")
        assert writer.write(0, b"zero") == 0
        assert second.result(30) == 1
    assert list(bk.list_entries_of(1234, cluster.bookies[0].id)) == [0, 1]


def test_a_reserved_ledger_is_claimed(bk: bookkeeper.sync.BookKeeper) -> None:
    ledger_id = bk.reserve_ledger(**SHAPE, password=b"s")
    with bk.claim_ledger(ledger_id, password=b"s") as writer:
        writer.append(b"mine")
        writer.force()


def test_a_call_that_takes_too_long_is_cancelled_and_a_wait_of_an_iterator_goes_on(
    bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster, thread: LoopThread
) -> None:
    with bk.create_ledger(**SHAPE) as writer:
        writer.append(payload(0))
        for bookie in cluster.bookies:
            bookie.on_request = lambda request: HOLD if isinstance(request, ReadRequest | BatchReadRequest) else None
        with pytest.raises(TimeoutError):
            writer.read_entry(0, timeout=0.05)
        iterator = writer.entries(timeout=0.05)
        with pytest.raises(TimeoutError):
            next(iterator)
        for bookie in cluster.bookies:
            bookie.on_request = None
            thread.call_soon(bookie.release)
        while True:
            with contextlib.suppress(TimeoutError):
                assert next(iterator).data == payload(0)  # not lost
                break
        iterator.close()
        with pytest.raises(StopIteration):
            next(iterator)
        assert writer.read_entry(0).data == payload(0)


def test_errors_come_through_iterators(bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster) -> None:
    with bk.create_ledger(**SHAPE) as writer:
        writer.append_many([payload(i) for i in range(10)])
        for bookie in cluster.bookies:
            del bookie.ledger(writer.id).entries[4]
        with writer.entries() as entries:
            assert [next(entries).id for _ in range(4)] == [0, 1, 2, 3]
            with pytest.raises(NoSuchEntryError):
                next(entries)
        with pytest.raises(IncorrectParameterError):
            next(writer.entries(-1))
        next(writer.entries())  # and forgotten


def test_a_writer_in_trouble_discards_what_is_pending(bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster) -> None:
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: Status.EUA if isinstance(request, AddRequest) else None
    with contextlib.suppress(ZeroDivisionError), bk.create_ledger(**SHAPE) as writer:
        future = writer.append_nowait(b"lost")
        raise ZeroDivisionError
    assert future.exception(30) is not None


def test_many_threads_share_a_writer(bk: bookkeeper.sync.BookKeeper) -> None:
    """FX-8."""
    with bk.create_ledger(**SHAPE) as writer:
        ids: list[list[int]] = [[] for _ in range(4)]

        def work(mine: list[int]) -> None:
            futures = [writer.append_nowait(b"x") for _ in range(100)]
            mine.extend(future.result(30) for future in futures)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(mine == sorted(mine) for mine in ids)
        assert sorted(itertools.chain(*ids)) == list(range(400))


def test_the_loops_own_thread_may_not_wait(bk: bookkeeper.sync.BookKeeper) -> None:
    outcome: list[BaseException] = []
    done = threading.Event()

    def inside() -> None:
        try:
            bk.writable_bookies()
        except RuntimeError as error:
            outcome.append(error)
        done.set()

    bk._thread.call_soon(inside)
    assert done.wait(30)
    assert outcome


def test_failed_connects_leave_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ConfigurationError):
        bookkeeper.sync.connect("nonsense://x")
    with pytest.raises((MetadataStoreError, ConfigurationError)):
        bookkeeper.sync.connect("sqlite:///nonexistent/directory/metadata.db")
    assert threading.active_count() == before


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` gives on another thread, which must come to its end."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it never ends"
    return outcome[0]


def hold_adds(cluster: FakeCluster, *indexes: int) -> None:
    for index in indexes:
        cluster.bookies[index].on_request = lambda request: HOLD if isinstance(request, AddRequest) else None


def release_adds(cluster: FakeCluster, thread: LoopThread) -> None:
    for bookie in cluster.bookies:
        bookie.on_request = None
        thread.call_soon(bookie.release)


# --- the end of a client ---


@pytest.mark.filterwarnings("ignore:writer of ledger:ResourceWarning")
def test_after_the_close_everything_says_that_the_client_is_closed(cluster: FakeCluster) -> None:
    use_after_close(cluster)
    gc.collect()  # the writers, which nobody can close any more


def use_after_close(cluster: FakeCluster) -> None:
    bk = bookkeeper.sync.connect(cluster.uri)
    writer = bk.create_ledger(**SHAPE)
    advanced = bk.create_ledger_adv(**SHAPE)
    reader = bk.open_ledger(writer.id)
    entries = reader.tail()
    bk.close()
    bk.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no coroutine is left unawaited
        for call in (
            lambda: writer.append_nowait(b"1"),
            lambda: writer.append_nowait(b"2"),
            lambda: writer.append_nowait(b"3"),
            lambda: writer.append_soon(b"x"),
            lambda: writer.append(b"x"),
            lambda: writer.append_many([b"x"]),
            lambda: writer.flush(),
            lambda: writer.force(),
            lambda: writer.close(),
            lambda: advanced.write(0, b"x"),
            lambda: advanced.write_nowait(0, b"x"),
            lambda: reader.read(0, 0),
            lambda: reader.entries(),
            lambda: next(entries),
            lambda: bk.create_ledger(**SHAPE),
            lambda: bk.open_ledger(0),
            lambda: list(bk.list_ledgers()),
            lambda: bk.is_closed(0),
        ):
            assert isinstance(within(30, call), ClientClosedError)
        gc.collect()
    reader.close()
    entries.close()
    assert writer.last_add_confirmed == -1


def test_whoever_waits_when_the_client_is_closed_is_told(cluster: FakeCluster) -> None:
    config = ClientConfiguration.from_mapping({"maxPendingAddEntries": 3})
    bk = bookkeeper.sync.connect(cluster.uri, config=config)
    writer = bk.create_ledger(**SHAPE)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: SILENT if isinstance(request, AddRequest) else None
    futures = [writer.append_nowait(b"f") for _ in range(3)]
    outcomes: list[BaseException] = []

    def wait(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            outcomes.append(error)

    works: list[Callable[[], Any]] = [
        lambda: writer.append(b"x"),
        lambda: writer.append_soon(b"x").result(),
        lambda: writer.append_many([b"x"] * 5000),
        lambda: writer.flush(),
        lambda: next(writer.tail()),
    ]
    threads = [threading.Thread(target=wait, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(writer._queue._crowd) == 3, "three threads wait for room")
    bk.close()
    for thread in threads:
        thread.join(30)
    assert [type(error) for error in outcomes] == [ClientClosedError] * len(works)
    assert [type(future.exception(30)) for future in futures] == [ClientClosedError] * 3


def test_a_forked_process_is_told_to_connect_anew_whatever_it_calls(
    bk: bookkeeper.sync.BookKeeper,
) -> None:
    writer = bk.create_ledger(**SHAPE)
    writer.append(b"here")
    entries = writer.entries()
    calls: list[Callable[[], Any]] = [
        lambda: writer.append_nowait(b"there"),
        lambda: writer.append_nowait(b"there"),
        lambda: writer.append_soon(b"there"),
        lambda: writer.append(b"there"),
        lambda: writer.append_many([b"there"]),
        lambda: writer.flush(),
        lambda: writer.close(),
        lambda: next(entries),
        lambda: bk.is_closed(writer.id),
        lambda: bk.create_ledger(**SHAPE),
        lambda: bk.close(),
    ]
    reading, writing = os.pipe()
    with writer._queue._lock, bk._thread._lock, warnings.catch_warnings():  # as if other threads held them
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            said = b""
            signal.alarm(20)  # whatever waits, ends
            try:
                for call in calls:
                    try:
                        call()
                        said += b"-"
                    except WrongLoopError:
                        said += b"w"
            finally:
                os.write(writing, said)
                os._exit(0)
    os.close(writing)
    said = within(30, lambda: os.read(reading, 100))
    os.close(reading)
    os.waitpid(child, 0)
    assert said == b"w" * len(calls)
    assert writer.append(b"here") == 1
    writer.close()


def test_a_close_that_takes_too_long_is_finished_by_another(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = bookkeeper.sync.connect(cluster.uri)
    before = threading.active_count()
    driver = bk._client._driver._driver
    end = driver.close
    gate = threading.Event()

    async def slow() -> None:
        import asyncio

        await asyncio.to_thread(gate.wait)
        await end()

    monkeypatch.setattr(driver, "close", slow)
    with pytest.raises(TimeoutError):
        bk.close(timeout=0.01)
    gate.set()
    bk.close()
    assert bk._thread.ended
    assert threading.active_count() < before


# --- appends ---


@pytest.mark.parametrize("data", [3, True, [1, 2], None, "text"], ids=repr)
def test_what_is_not_bytes_is_no_entry(bk: bookkeeper.sync.BookKeeper, data: Any) -> None:
    with bk.create_ledger(**SHAPE) as writer, bk.create_ledger_adv(**SHAPE) as advanced:
        for append in (writer.append, writer.append_nowait, writer.append_soon, writer.append_many):
            with pytest.raises(TypeError):
                append(data)  # type: ignore[operator]
        with pytest.raises(TypeError):
            writer.append_many([data])
        with pytest.raises(TypeError):
            writer.append_many(cast(Any, b"abc"))
        with pytest.raises(TypeError):
            advanced.write(0, data)
        with pytest.raises(TypeError):
            advanced.write_nowait(0, data)
        with pytest.raises(IncorrectParameterError, match="nettyMaxFrameSizeBytes"):
            writer.append_nowait(bytes(6_000_000))  # at the call: what comes behind it is accepted
        assert writer.append_nowait(b"x").result(30) == 0


def test_an_entry_is_what_it_was_when_it_was_appended(
    bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster, thread: LoopThread
) -> None:
    """FX-15."""
    with bk.create_ledger(**SHAPE) as writer:
        data = bytearray(b"first")
        gate = threading.Event()
        bk._thread.call_soon(gate.wait)  # the loop takes nothing over meanwhile
        future = writer.append_nowait(data)
        data[:] = b"other"
        gate.set()
        assert future.result(30) == 0
        assert writer.read_entry(0).data == b"first"


def test_appends_are_refused_at_the_call_and_what_was_accepted_has_no_holes(
    cluster: FakeCluster, thread: LoopThread
) -> None:
    config = ClientConfiguration.from_mapping({"maxPendingAddEntries": 10})
    with bookkeeper.sync.connect(cluster.uri, config=config) as bk, bk.create_ledger(**SHAPE) as writer:
        hold_adds(cluster, 0)
        futures = [writer.append_nowait(payload(i)) for i in range(10)]
        for _ in range(3):
            with pytest.raises(BackpressureError, match="append_soon"):
                writer.append_nowait(b"too much")
        with pytest.raises(TimeoutError, match="it was not appended"):
            writer.append_soon(b"too much", timeout=0.01)
        with pytest.raises(TimeoutError, match="it was not appended"):
            writer.append(b"too much", timeout=0.01)
        outcome: list[Any] = []
        waiting = threading.Thread(
            target=lambda: outcome.extend(writer.append_soon(payload(i)) for i in range(10, 40)), daemon=True
        )
        waiting.start()
        wait_until(lambda: len(writer._queue._crowd) == 1, "somebody waits for room")
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"would be before who waits")
        release_adds(cluster, thread)
        waiting.join(30)
        assert [future.result(30) for future in (*futures, *outcome)] == list(range(40))
        assert [entry.data for entry in writer] == [payload(i) for i in range(40)]


def test_bytes_on_their_way_are_bounded_too(cluster: FakeCluster, thread: LoopThread) -> None:
    config = ClientConfiguration.from_mapping({"maxPendingAddBytes": 1000})
    with bookkeeper.sync.connect(cluster.uri, config=config) as bk, bk.create_ledger(**SHAPE) as writer:
        hold_adds(cluster, 0)
        futures = [writer.append_nowait(bytes(300)) for _ in range(4)]
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"")
        release_adds(cluster, thread)
        assert [future.result(30) for future in futures] == list(range(4))


def test_where_the_writer_itself_has_no_room_everything_behind_waits_in_order(
    cluster: FakeCluster, thread: LoopThread
) -> None:
    """One bookie of three is slow: appends are done without it, but what it has yet to answer is bounded. FX-22."""
    config = ClientConfiguration.from_mapping({"maxPendingAddBytes": 3000})
    shape = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
    with bookkeeper.sync.connect(cluster.uri, config=config) as bk, bk.create_ledger(**shape) as writer:
        hold_adds(cluster, 2)
        futures = []
        stuck = threading.Event()

        def post() -> None:
            for i in range(200):
                futures.append(writer.append_soon(payload(i)))
                if i == 100:
                    stuck.set()
            futures.append(writer.append_soon(payload(200)))

        posting = threading.Thread(target=post, daemon=True)
        posting.start()
        wait_until(lambda: stuck.is_set() and writer._queue._unsent, "an append waits for room at the writer")
        release_adds(cluster, thread)
        posting.join(30)
        assert [future.result(30) for future in futures] == list(range(201))
        assert writer.append_many([payload(201), payload(202)]) == [201, 202]
        assert [entry.data for entry in writer] == [payload(i) for i in range(203)]


def test_appends_of_one_thread_keep_their_order_whatever_they_are(bk: bookkeeper.sync.BookKeeper) -> None:
    with bk.create_ledger(**SHAPE) as writer:
        for base in range(0, 60, 6):
            first = writer.append_nowait(b"a")
            second = writer.append_soon(b"b")
            third = writer.append(b"c")
            fourth = writer.append_nowait(b"d")
            many = writer.append_many([b"e", b"f"])
            assert [first.result(), second.result(), third, fourth.result(), *many] == list(range(base, base + 6))


def test_a_future_that_is_cancelled_in_time_is_no_entry(bk: bookkeeper.sync.BookKeeper) -> None:
    with bk.create_ledger(**SHAPE) as writer:
        gate = threading.Event()
        bk._thread.call_soon(gate.wait)
        first, second, third = (writer.append_nowait(data) for data in (b"1", b"2", b"3"))
        assert second.cancel()
        gate.set()
        assert (first.result(30), third.result(30)) == (0, 1)
        assert [entry.data for entry in writer] == [b"1", b"3"]
        assert writer._queue._in_entries == writer._queue._out_entries


def test_many_entries_are_made_on_the_callers_thread_as_there_is_room(cluster: FakeCluster, thread: LoopThread) -> None:
    config = ClientConfiguration.from_mapping({"maxPendingAddEntries": 100})
    with bookkeeper.sync.connect(cluster.uri, config=config) as bk, bk.create_ledger(**SHAPE) as source:
        source.append_many(payload(i) for i in range(5000))
        makers: set[str] = set()
        made = 0

        def copied() -> Iterator[bytes]:
            nonlocal made
            for entry in source:
                makers.add(threading.current_thread().name)
                made += 1
                yield entry.data

        with bk.create_ledger(**SHAPE) as copy:
            hold_adds(cluster, 0)
            copying = threading.Thread(target=lambda: copy.append_many(copied()), name="the caller", daemon=True)
            copying.start()
            wait_until(lambda: len(copy._queue._crowd) == 1, "the copy waits for room")
            assert made == 2048  # one chunk on its way, one waiting
            release_adds(cluster, thread)
            copying.join(60)
            assert makers == {"the caller"}
            assert [entry.data for entry in copy] == [payload(i) for i in range(5000)]


def test_many_entries_that_fail_tell_what_is_safe(bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster) -> None:
    """FX-25, RI-11."""
    with contextlib.suppress(BKError), bk.create_ledger(**SHAPE) as writer:

        def broken() -> Iterator[bytes]:
            yield from (b"a", b"b")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            writer.append_many(broken())
        assert writer.flush() == 1  # what came before is on its way

        def refused_in_the_end() -> Iterator[bytes]:
            for i in range(2, 4000):
                if i == 1500:
                    wait_until(lambda: writer.last_add_confirmed == 1025, "the first chunk is acknowledged")
                    for bookie in cluster.bookies:
                        bookie.on_request = lambda request: Status.EFENCED if isinstance(request, AddRequest) else None
                yield payload(i)

        with pytest.raises(BKError) as failure:
            writer.append_many(refused_in_the_end())
        assert failure.value.acknowledged == list(range(2, 1026))


def test_a_gap_is_filled_although_everything_behind_it_takes_all_room(
    cluster: FakeCluster,
) -> None:
    config = ClientConfiguration.from_mapping({"maxPendingAddEntries": 5})
    with bookkeeper.sync.connect(cluster.uri, config=config) as bk, bk.create_ledger_adv(**SHAPE) as writer:
        futures = [writer.write_nowait(i, payload(i)) for i in range(1, 5)]
        futures.append(writer.write_nowait(0, payload(0)))
        assert sorted(future.result(30) for future in futures) == list(range(5))
        assert writer.flush() == 4


def test_a_writer_that_is_dropped_is_taken_apart_on_the_loop(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    stop = AddPipeline.stop

    def seen(pipeline: AddPipeline, code: int) -> None:
        stopped.append(bk._thread.inside)
        stop(pipeline, code)

    gc.collect()  # what other tests have left
    monkeypatch.setattr(AddPipeline, "stop", seen)
    with bookkeeper.sync.connect(cluster.uri) as bk, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        held = [bk.create_ledger(**SHAPE)]
        held[0].append_nowait(b"x").result(30)
        held[0].flush()
        held.clear()
        gc.collect()
        wait_until(lambda: stopped, "the writer is taken apart")
        assert stopped == [True]


# --- iterators ---


def test_an_iterator_shared_by_threads_gives_every_entry_to_one_of_them(bk: bookkeeper.sync.BookKeeper) -> None:
    with bk.create_ledger(**SHAPE) as writer:
        writer.append_many([b"x"] * 5000)
        for _ in range(3):
            entries = writer.entries()
            got: list[int] = []
            ends: list[str] = []

            def consume(entries: Any = entries, got: list[int] = got, ends: list[str] = ends) -> None:
                try:
                    for entry in entries:
                        got.append(entry.id)  # noqa: PERF401 - others append meanwhile
                    ends.append("end")
                except BaseException as error:
                    ends.append(repr(error))

            threads = [threading.Thread(target=consume) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert sorted(got) == list(range(5000))
            assert ends == ["end"] * 4


def test_an_iterator_that_is_closed_ends_for_who_waits(bk: bookkeeper.sync.BookKeeper) -> None:
    with bk.create_ledger(**SHAPE) as writer:
        tail = writer.tail()
        outcome: list[Any] = []
        waiting = threading.Thread(target=lambda: outcome.append(list(tail)), daemon=True)
        waiting.start()
        wait_until(lambda: tail._taking is not None, "a thread waits")
        tail.close()
        waiting.join(30)
        assert outcome == [[]]


def test_iterators_read_ahead_so_many_bytes_only(
    bk: bookkeeper.sync.BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterator_module, "READ_AHEAD_BYTES", 10_000)
    with bk.create_ledger(**SHAPE) as writer:
        writer.append_many([bytes(1000)] * 100)
        with writer.entries() as entries:
            assert next(entries).id == 0
            pump = cast(Any, entries)._pump
            wait_until(lambda: pump._bytes >= 10_000 and not pump._room.is_set(), "the buffer is full")
            assert len(pump._buffer) == 10
            assert [entry.id for entry in entries] == list(range(1, 100))


def test_columns_come_without_a_loop_and_bounded(
    bk: bookkeeper.sync.BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterator_module, "READ_AHEAD_BYTES", 10_000)
    with bk.create_ledger(**SHAPE) as writer:
        writer.append_many([bytes([n]) * 1000 for n in range(100)])
        with writer.read_arrow(window_bytes=8000) as batches:
            taken = [next(batches)]
            pump = cast(Any, batches)._pump
            wait_until(lambda: pump._bytes >= 10_000 and not pump._room.is_set(), "the buffer is full")
            assert sum(batch.nbytes for batch in pump._buffer) == pump._bytes < 20_000
            taken += batches
        payloads = [value for batch in taken for value in batch.column("payload").to_pylist()]
        assert payloads == [bytes([n]) * 1000 for n in range(100)]


def test_handles_say_what_they_are(bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster) -> None:
    assert repr(bk) == f"<BookKeeper of {cluster.uri}: connected>"
    with bk.create_ledger(**SHAPE) as writer:
        assert repr(writer) == f"<LedgerWriter of ledger {writer.id}: open, last add confirmed -1, last add pushed -1>"
