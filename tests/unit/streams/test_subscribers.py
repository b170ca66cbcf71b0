"""Subscribers, readers that read alone, what is watched, and namespaces of many parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper.errors import (
    IncorrectParameterError,
    LockError,
    NamespaceNotBoundError,
    NamespaceNotEmptyError,
    NotOwnerError,
    StreamConflictError,
    StreamMetadataError,
    StreamNotFoundError,
    Unsupported,
)
from bookkeeper.streams.formats.binding import HEAD, decode_binding, encode_binding
from bookkeeper.streams.names.federation import PARTS
from bookkeeper.streams.names.lock import LogLock
from bookkeeper.streams.namespace import Namespace
from tests.support.fake_bookie import FakeCluster
from tests.support.waiting import until

ROLL = bookkeeper.WritePolicy(roll_records=2, buffer_bytes=0)


@pytest.fixture
async def bk(tmp_path: Path) -> AsyncIterator[bookkeeper.BookKeeper]:
    cluster = FakeCluster(3, f"sqlite://{tmp_path}/metadata.db")
    await cluster.start()
    async with bookkeeper.connect(cluster.uri) as client:
        yield client
    await cluster.close()


@pytest.fixture
async def namespace(bk: bookkeeper.BookKeeper) -> AsyncIterator[Namespace]:
    async with bookkeeper.open_namespace("/orders", client=bk, create=True) as opened:
        yield opened


async def write(namespace: Namespace, count: int, name: str = "a") -> list[bookkeeper.Position]:
    async with namespace.open_writer(name, policy=ROLL, create=True) as writer:
        return [await writer.append(b"%d" % n) for n in range(count)]


async def test_a_subscriber_goes_on_where_it_stopped(namespace: Namespace) -> None:
    positions = await write(namespace, 6)
    subscriptions = namespace.subscriptions("a")
    async with namespace.open_reader("a", tail=False, subscriber="billing") as reader:
        assert await subscriptions.list() == {"billing": None}
        assert [record.payload for record in await reader.read(1)] == [b"0"]
        await reader.ack()
        assert [record.payload for record in await reader.read(1)] == [b"1"]
    assert await subscriptions.get("billing") == positions[0].next()
    async with namespace.open_reader("a", tail=False, subscriber="billing") as reader:
        assert [record.payload async for record in reader] == [b"1", b"2", b"3", b"4", b"5"]
        await reader.ack()
        with pytest.raises(NotOwnerError, match="somebody reads"):
            await subscriptions.delete("billing")
    async with namespace.open_reader("a", positions[3], tail=False, subscriber="billing") as reader:
        assert [record.payload async for record in reader] == [b"3", b"4", b"5"]
    await subscriptions.delete("billing")
    await subscriptions.delete("billing")
    assert (await subscriptions.list(), await subscriptions.get("billing")) == ({}, None)


async def test_one_reader_at_a_time_reads_for_a_subscriber(namespace: Namespace) -> None:
    await write(namespace, 1)
    first = await namespace.open_reader("a", subscriber="billing")
    with pytest.raises(NotOwnerError) as refused:
        await namespace.open_reader("a", subscriber="billing", lock_timeout=0)
    assert refused.value.owner
    async with namespace.open_reader("a", subscriber="shipping", lock_timeout=0):
        pass
    waiting = asyncio.ensure_future(namespace.open_reader("a", subscriber="billing").__aenter__())
    await until(lambda: not waiting.done())
    await first.close()
    second = await waiting
    with pytest.raises(LockError):
        await first.read(1)
    with pytest.raises(LockError):
        await first.ack()
    assert len(await second.read(1)) == 1
    await second.close()


async def test_who_reads_alone_keeps_others_who_want_that_out(namespace: Namespace) -> None:
    await write(namespace, 1)
    async with namespace.open_reader("a", exclusive=True, tail=False) as alone:
        with pytest.raises(NotOwnerError):
            await namespace.open_reader("a", exclusive=True, subscriber="x", lock_timeout=0)
        async with namespace.open_reader("a", tail=False) as any_reader:
            assert len(await any_reader.read()) == 1
        assert len(await alone.read()) == 1
        with pytest.raises(IncorrectParameterError, match="no subscriber"):
            await alone.ack()
    async with namespace.open_reader("a", exclusive=True, subscriber="x", lock_timeout=0) as reader:
        await reader.ack()
    assert await namespace.subscriptions("a").get("x") == bookkeeper.EARLIEST


async def test_an_overtaken_reader_is_told(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    await write(namespace, 2)
    async with namespace.open_reader("a", tail=False, subscriber="billing") as reader:
        assert reader._right is not None
        (lock,) = reader._right._locks
        monkeypatch.setattr(lock, "_taken", NotOwnerError("somebody", "somebody"))
        with pytest.raises(NotOwnerError, match="taken over"):
            await reader.read(1)
        with pytest.raises(NotOwnerError, match="taken over"):
            await reader.ack()
    assert await namespace.subscriptions("a").get("billing") is None


async def test_positions_are_stored_by_compare_and_set(namespace: Namespace) -> None:
    one, two, three = await write(namespace, 3)
    subscriptions = namespace.subscriptions("a")
    await subscriptions.commit("x", one)
    await subscriptions.commit("x", two, expected=one)
    with pytest.raises(StreamConflictError):
        await subscriptions.commit("x", three, expected=one)
    with pytest.raises(StreamConflictError):
        await subscriptions.commit("y", three, expected=one)
    assert await subscriptions.list() == {"x": two}
    for name in ("", "a/b"):
        with pytest.raises(IncorrectParameterError, match="subscriber"):
            await subscriptions.get(name)


async def test_retention_keeps_what_a_subscriber_has_not_read(namespace: Namespace) -> None:
    positions = await write(namespace, 8)
    policy = bookkeeper.RetentionPolicy(bookkeeper.RetentionMode.AUTO, max_bytes=0)
    async with namespace.open_reader("a", subscriber="slow", tail=False):
        pass
    assert not (await namespace.purge("a", policy)).deleted
    await namespace.subscriptions("a").commit("slow", positions[4])
    assert [segment.number for segment in (await namespace.purge("a", policy)).deleted] == [1, 2]
    await namespace.subscriptions("a").delete("slow")
    assert [segment.number for segment in (await namespace.purge("a", policy)).deleted] == [3]


async def test_streams_and_segments_are_watched(namespace: Namespace) -> None:
    changes = namespace.watch()
    assert await anext(changes) == frozenset()
    await namespace.create("a")
    assert await anext(changes) == {"a"}
    await write(namespace, 1, "b")
    assert await anext(changes) == {"a", "b"}
    await namespace.delete("a")
    assert await anext(changes) == {"b"}
    await changes.aclose()
    lists = namespace.watch_segments("b")
    assert [segment.completed for segment in await anext(lists)] == [True]
    async with namespace.open_writer("b") as writer:
        await writer.append(b"more")
        assert [segment.completed for segment in await anext(lists)] == [True, False]
    await lists.aclose()
    with pytest.raises(StreamNotFoundError):
        await anext(namespace.watch_segments("none"))


async def test_a_namespace_is_unbound_once_it_is_empty(bk: bookkeeper.BookKeeper, namespace: Namespace) -> None:
    await namespace.create("a")
    with pytest.raises(NamespaceNotEmptyError):
        await namespace.unbind()
    await namespace.unbind(force=True)
    with pytest.raises(NamespaceNotBoundError):
        await bookkeeper.open_namespace("/orders", client=bk)
    async with bookkeeper.open_namespace("/orders", client=bk, create=True) as again:
        assert [name async for name in again.list()] == ["a"]
        await again.delete("a")
        await again.unbind()


async def test_a_federated_namespace_is_read_and_not_changed(bk: bookkeeper.BookKeeper, namespace: Namespace) -> None:
    tree = bk.context.driver.tree
    parts = ["/many", f"/many/{PARTS}/NS_0000000000", f"/many/{PARTS}/NS_0000000001"]
    for number, path in enumerate(parts):
        await tree.make(path)
        async with bookkeeper.open_namespace(path, client=bk, create=True) as part:
            await write(part, 3, f"a{number}")
            await write(part, 1, f"b/{number}")
    own = await tree.get("/many")
    assert own is not None
    await tree.write("/many", own.data.replace(b'"9":', b'"10":{"tf":1},"9":'))
    async with bookkeeper.open_namespace("/many", client=bk) as many:
        assert [name async for name in many.list()] == ["a0", "b/0", "a1", "b/1", "a2", "b/2"]
        assert [name async for name in many.list("b")] == ["b/0", "b/1", "b/2"]
        for number in range(3):
            assert await many.exists(f"a{number}")
            assert (await many.info(f"a{number}")).records == await many.count(f"a{number}") == 3
            async with many.open_reader(f"a{number}", tail=False) as reader:
                assert [record.payload async for record in reader] == [b"0", b"1", b"2"]
        assert not await many.exists("c")
        with pytest.raises(StreamNotFoundError):
            await many.open_reader("c")
        refused = [
            lambda: many.create("c"),
            lambda: many.open_writer("a1"),
            lambda: many.open_writer("c", create=True),
            lambda: many.delete("a1"),
            lambda: many.rename("a1", "c"),
            lambda: many.truncate("a1", bookkeeper.EARLIEST),
            lambda: many.purge("a1"),
            lambda: many.seal("a1"),
            lambda: many.recover("a1"),
            lambda: many.set_policy(bookkeeper.StreamPolicy()),
            lambda: anext(many.watch()),
            lambda: many.unbind(force=True),
            lambda: many.open_reader("a1", subscriber="x"),
            lambda: many.open_reader("a1", exclusive=True),
        ]
        for change in refused:
            with pytest.raises(Unsupported, match="federated"):
                await change()
        async with bookkeeper.open_namespace(parts[2], client=bk) as part:
            await part.create("a1")
        with pytest.raises(StreamMetadataError, match="which one"):
            await many.exists("a1")


def test_a_binding_says_whether_it_is_federated() -> None:
    plain = encode_binding(bookkeeper.streams.formats.binding.Binding("zk:2181", "/ledgers"))
    assert not decode_binding(plain).federated
    assert decode_binding(HEAD + b'{"1":{"str":"zk"},"2":{"str":"/l"},"10":{"tf":1}}').federated
    assert not decode_binding(HEAD + b'{"1":{"str":"zk"},"2":{"str":"/l"},"10":{"tf":0}}').federated


def test_a_binding_of_no_sense_is_refused() -> None:
    for field in (b"1", b'{"i32":1}', b"[]", b"null"):
        with pytest.raises(StreamMetadataError, match="makes no sense"):
            decode_binding(HEAD + b'{"1":{"str":"zk"},"2":{"str":"/l"},"10":' + field + b"}")


async def test_who_begins_to_read_while_the_subscriber_is_deleted_makes_it_anew(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock's directory goes between being made and being entered."""
    await write(namespace, 3, "a")
    enter, deletions = LogLock.acquire, 1

    async def acquire(lock: LogLock, timeout: float | None = 30.0) -> None:
        nonlocal deletions
        if deletions:
            deletions -= 1
            await namespace.subscriptions("a").delete("x")
        await enter(lock, timeout)

    monkeypatch.setattr(LogLock, "acquire", acquire)
    async with namespace.open_reader("a", subscriber="x", tail=False) as reader:
        assert [record.payload async for record in reader] == [b"0", b"1", b"2"]
    assert not deletions
