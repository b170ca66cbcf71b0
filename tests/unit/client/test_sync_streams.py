"""Streams without a loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bookkeeper
import bookkeeper.sync
from bookkeeper.errors import ClientClosedError, NotOwnerError, StreamNotFoundError
from bookkeeper.runtime.loop_thread import LoopThread
from bookkeeper.streams.errors import EndOfStreamError, StreamClosedError
from bookkeeper.streams.reading.reader import RecordBatch
from tests.support.fake_bookie import FakeCluster

AT_ONCE = bookkeeper.WritePolicy(visibility=bookkeeper.Visibility.ACK, roll_records=4)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    thread = LoopThread("fake bookies")
    running = FakeCluster(3, f"sqlite://{tmp_path}/metadata.db")
    thread.submit(running.start()).result(30)
    yield running
    thread.submit(running.close()).result(30)
    thread.stop()


@pytest.fixture
def bk(cluster: FakeCluster) -> Iterator[bookkeeper.sync.BookKeeper]:
    with bookkeeper.sync.connect(cluster.uri) as client:
        yield client


@pytest.fixture
def namespace(bk: bookkeeper.sync.BookKeeper) -> Iterator[bookkeeper.sync.Namespace]:
    with bookkeeper.sync.open_namespace("/orders", client=bk, create=True) as opened:
        yield opened


def write(namespace: bookkeeper.sync.Namespace, count: int) -> list[bookkeeper.Position]:
    """Ten records at a time in an entry, numbered from 0, which are their transaction ids too."""
    positions: list[bookkeeper.Position] = []
    with namespace.open_writer("a", policy=AT_ONCE, create=True) as writer:
        for first in range(0, count, 10):
            numbers = range(first, min(first + 10, count))
            positions += writer.append_batch([b"%d" % n for n in numbers], txids=list(numbers))
    return positions


def numbers(reader: bookkeeper.sync.StreamReader) -> list[int]:
    return [int(record.payload) for record in reader]


def test_a_stream_from_beginning_to_end(namespace: bookkeeper.sync.Namespace) -> None:
    positions = write(namespace, 30)
    with namespace.open_reader("a", tail=False) as reader:
        assert [(record.position, int(record.payload)) for record in reader] == list(
            zip(positions, range(30), strict=True)
        )
    assert numbers(namespace.open_reader("a", str(positions[7]), tail=False)) == list(range(7, 30))
    assert numbers(namespace.open_reader("a", bookkeeper.TxId(13), tail=False)) == list(range(13, 30))
    info = namespace.info("a")
    assert (info.records, info.last_txid, info.owner) == (30, 29, None)
    namespace.rename("a", "b")
    assert (list(namespace.list()), namespace.exists("a")) == (["b"], False)
    with namespace.open_writer("b") as writer:
        assert writer.last_txid == 29
        writer.append(b"30", txid=30)
        writer.roll()
        assert writer.flush() == 30
        writer.mark_end()
        with pytest.raises(EndOfStreamError):
            list(namespace.open_reader("b"))
    namespace.delete("b")
    with pytest.raises(StreamNotFoundError):
        namespace.open_reader("b")


@pytest.mark.parametrize("taken", [0, 1, 7, 10, 15, 29])
def test_a_reader_goes_on_behind_the_record_it_gave_out_last(namespace: bookkeeper.sync.Namespace, taken: int) -> None:
    positions = write(namespace, 30)
    reader = namespace.open_reader("a", tail=False)
    assert [int(record.payload) for record in itertools.islice(reader, taken)] == list(range(taken))
    stored = reader.position
    assert numbers(reader) == list(range(taken, 30))
    assert numbers(namespace.open_reader("a", stored, tail=False)) == list(range(taken, 30))
    reader.position = positions[3]
    assert numbers(reader) == list(range(3, 30))


def test_a_reader_that_waited_in_vain_misses_nothing(namespace: bookkeeper.sync.Namespace) -> None:
    write(namespace, 5)
    reader = namespace.open_reader("a", bookkeeper.LATEST)
    with pytest.raises(TimeoutError):
        next(reader.batches(timeout=0.05))
    with namespace.open_writer("a", policy=AT_ONCE) as writer:
        writer.append(b"5", txid=5)
        writer.append(b"6", txid=6)
        assert [int(record.payload) for record in itertools.islice(reader, 2)] == [5, 6]


@pytest.mark.parametrize("located", [False, True])
def test_a_batch_that_came_too_late_is_given_out_by_the_next_iteration(
    namespace: bookkeeper.sync.Namespace, monkeypatch: pytest.MonkeyPatch, located: bool
) -> None:
    write(namespace, 30)
    reader = namespace.open_reader("a", bookkeeper.TxId(3), tail=False)
    if located:
        reader.locate()
    call = reader._call

    def interrupted(work: Any, timeout: float | None) -> Any:
        result = call(work, timeout)
        if isinstance(result, RecordBatch):
            monkeypatch.undo()
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(reader, "_call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(reader.batches())
    assert numbers(reader) == list(range(3, 30))


def test_one_owner_at_a_time_and_who_aborts_leaves_what_was_acknowledged(
    namespace: bookkeeper.sync.Namespace, bk: bookkeeper.sync.BookKeeper
) -> None:
    with bookkeeper.sync.open_namespace("/orders", client=bk, client_id="two") as other:

        def interrupted(writer: bookkeeper.sync.StreamWriter) -> None:
            with writer:
                writer.append(b"0")
                with pytest.raises(NotOwnerError):
                    other.open_writer("a", lock_timeout=0)
                raise KeyboardInterrupt

        writer = namespace.open_writer("a", policy=AT_ONCE, create=True)
        with pytest.raises(KeyboardInterrupt):
            interrupted(writer)
        assert not namespace.info("a").segments[-1].completed
        with pytest.raises(StreamClosedError):
            writer.append(b"late")
        with other.open_writer("a"):
            assert numbers(other.open_reader("a", tail=False)) == [0]


def test_a_namespace_ends_what_it_made_and_no_more(bk: bookkeeper.sync.BookKeeper, cluster: FakeCluster) -> None:
    with bookkeeper.sync.open_namespace("/orders", client=bk, create=True) as shared:
        shared.create("a")
    assert list(bk.list_ledgers()) == []  # the client is still there
    own = bookkeeper.sync.open_namespace(f"distributedlog-{cluster.uri}?namespace=/orders")
    assert list(own.list()) == ["a"]
    for _ in range(2):
        own.close()
    with pytest.raises(ClientClosedError):
        own.exists("a")


def test_what_was_written_elsewhere_is_published_truncated_and_sealed(namespace: bookkeeper.sync.Namespace) -> None:
    write(namespace, 5)
    key = bookkeeper.PublishKey("sink", 0)
    staging = namespace.join_staging(namespace.stage("sink", 0).path)
    with staging.open_segment("a") as segment:
        segment.append_batch([b"5", b"6"])
        draft = segment.finish()
    with staging.open_segment("a") as unwanted:
        unwanted.append_batch([b"x"])
    staging.beat()
    assert not namespace.publish_segments({"a": [draft]}, key, staging=staging).already
    assert namespace.publish_segments({"a": [draft]}, key, staging=staging).already
    assert namespace.collect_staged().ledgers == []
    assert numbers(namespace.open_reader("a", tail=False)) == list(range(7))
    last = namespace.info("a").segments[-1].number
    namespace.set_policy(bookkeeper.StreamPolicy(bookkeeper.RetentionPolicy(bookkeeper.RetentionMode.EXPLICIT)))
    assert namespace.policy().retention is not None
    namespace.truncate("a", bookkeeper.Position(last, 0, 0))
    assert namespace.purge("a").deleted
    assert numbers(namespace.open_reader("a", tail=False)) == [5, 6]
    namespace.seal("a")
    assert namespace.info("a").sealed
