"""The client without a loop."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import bookkeeper.sync
from bookkeeper.errors import (
    ConfigurationError,
    IncorrectParameterError,
    LedgerClosedError,
    MetadataStoreError,
    NoSuchEntryError,
    NoSuchLedgerOnMetadataError,
)
from bookkeeper.protocol.messages import AddRequest, BatchReadRequest, ReadRequest, Status
from bookkeeper.runtime.real import LoopThread
from tests.support.fake_bookie import HOLD, FakeCluster

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
        assert reader.read_last_add_confirmed_and_entry(5, timeout=1).last_add_confirmed == 99
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


def test_a_call_that_takes_too_long_goes_on(
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
