"""Streams that Java's DistributedLog writes are read by ours, and the other way round; writers of both take over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from kazoo.client import KazooClient

import bookkeeper
from bookkeeper import EndOfStreamError, NotOwnerError, Position
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import StreamNotFoundError, Unsupported
from tests.interop.conftest import PATIENCE, MakeCluster
from tests.interop.support.cluster import Cluster
from tests.interop.support.peer import JavaSession, Refused
from tests.interop.support.report import verifies
from tests.interop.support.streams import (
    JAVA_STREAMS,
    OUR_STREAMS,
    JavaStreams,
    LeftWaiting,
    OurStreams,
    Seen,
    Streams,
    Writer,
)
from tests.support.waiting import until

AREA = "Streams"

EACH = pytest.mark.parametrize("client", [JAVA_STREAMS, OUR_STREAMS])
"""Who writes; both read."""


@pytest.fixture(scope="module")
def java_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSession]:
    """A JVM with DistributedLog's library."""
    running = JavaSession(tmp_path_factory.mktemp("streams") / "log.txt", "streams")
    yield running
    running.close()


@pytest.fixture(scope="module")
def on_cluster(long_lived: MakeCluster) -> Cluster:
    return long_lived("mixed")


@pytest.fixture(scope="module")
def address(on_cluster: Cluster, java_session: JavaSession) -> str:
    """A namespace that Java bound."""
    uri = f"distributedlog://{on_cluster.address}{on_cluster.root}-streams"
    java_session.call("bind", uri=uri, servers=on_cluster.address, ledgers=on_cluster.root)
    return uri


@pytest.fixture(scope="module")
def java(java_session: JavaSession, address: str) -> JavaStreams:
    return JavaStreams(java_session, address)


@pytest.fixture
async def ours(on_cluster: Cluster, address: str) -> AsyncIterator[OurStreams]:
    on_cluster.revive()
    config = ClientConfiguration(**PATIENCE)
    async with bookkeeper.open_namespace(address, config=config, client_id="ours") as namespace:
        yield OurStreams(namespace)


@pytest.fixture
def writes(client: str, java: JavaStreams, ours: OurStreams) -> Streams:
    return java if client == JAVA_STREAMS else ours


@pytest.fixture
def other(client: str, java: JavaStreams, ours: OurStreams) -> Streams:
    """The library that does not write."""
    return ours if client == JAVA_STREAMS else java


_names = itertools.count(1)


async def new_log(streams: Streams) -> str:
    name = f"log-{next(_names)}"
    await streams.create(name)
    return name


@pytest.fixture
async def log(writes: Streams) -> str:
    return await new_log(writes)


def expect(positions: list[Position], records: list[tuple[int, bytes]], first: int = 0) -> list[Seen]:
    """Records as readers must have them."""
    assert len(positions) == len(records)
    return [
        Seen(position, txid, first + n, payload)
        for n, (position, (txid, payload)) in enumerate(zip(positions, records, strict=True))
    ]


def some(count: int, first: int = 1, size: int = 20) -> list[tuple[int, bytes]]:
    """Records with txids 10 apart."""
    return [(10 * txid, b"%d:" % txid + b"abc" * size) for txid in range(first, first + count)]


async def both_read(writes: Streams, other: Streams, log: str, expected: list[Seen], *, sealed: bool = False) -> None:
    """Both libraries read exactly this, from the beginning and from the middle on."""
    for reads in (writes, other):
        found = await reads.read(log)
        assert (reads.name, found.records, found.sealed) == (reads.name, expected, sealed)
    middle = expected[len(expected) // 2]
    for reads in (writes, other):
        rest = expected[len(expected) // 2 :]
        assert await reads.follow(log, middle.position, len(rest)) == rest
        assert (await reads.read(log, middle.txid)).records == [seen for seen in expected if seen.txid >= middle.txid]
    assert await writes.segments(log) == await other.segments(log)


Content = Callable[[Writer], Awaitable[list[Seen]]]


async def plain(writer: Writer) -> list[Seen]:
    return expect(await writer.write(some(5)), some(5))


async def together(writer: Writer) -> list[Seen]:
    """Entries of several records between entries of one."""
    seen = expect(await writer.write(some(2)), some(2))
    seen += expect(await writer.write_together(some(7, 3)), some(7, 3), 2)
    return seen + expect(await writer.write(some(1, 10)), some(1, 10), 9)


async def same_txids(writer: Writer) -> list[Seen]:
    records = [(7, b"a"), (7, b"b"), (7, b""), (8, b"d"), (8, b"e")]
    return expect(await writer.write(records), records)


async def sets(writer: Writer, *, lz4: bool = False) -> list[Seen]:
    """Record sets between plain records."""
    seen = expect(await writer.write(some(2)), some(2))
    first, second = [b"x%d" % n * n for n in range(20)], [b"same " * 50]
    seen += expect(await writer.write_set(30, first, lz4=lz4), [(30, payload) for payload in first], 2)
    seen += expect(await writer.write_set(40, second, lz4=lz4), [(40, payload) for payload in second], 22)
    return seen + expect(await writer.write(some(1, 5)), some(1, 5), 23)


async def compressed_sets(writer: Writer) -> list[Seen]:
    return await sets(writer, lz4=True)


async def large(writer: Writer) -> list[Seen]:
    """As large as a record may be, and well compressible; bytes of all values."""
    records = [(1, bytes(range(256)) * 4000), (2, b""), (3, b"z" * (1_040_384 - 20))]
    return expect(await writer.write(records), records)


@EACH
@pytest.mark.parametrize("content", [plain, together, same_txids, sets, compressed_sets, large])
@verifies(AREA, "plain records, several in an entry, record sets plain and LZ4, the largest: what it writes, both read")
async def test_records(client: str, writes: Streams, other: Streams, log: str, content: Content) -> None:
    writer = await writes.writer(log)
    seen = await content(writer)
    await writer.close()
    await both_read(writes, other, log, seen)


@EACH
@pytest.mark.parametrize("content", [plain, together, compressed_sets, large])
@verifies(AREA, "the same with LZ4")
async def test_compressed(client: str, writes: Streams, other: Streams, log: str, content: Content) -> None:
    writer = await writes.writer(log, lz4=True)
    seen = await content(writer)
    await writer.close()
    await both_read(writes, other, log, seen)


@EACH
@verifies(AREA, "control records between records; all is seen while the segment is still written")
async def test_seen_while_it_is_written(client: str, writes: Streams, other: Streams, log: str) -> None:
    writer = await writes.writer(log, seen_at_once=True)
    seen = expect(await writer.write(some(5)), some(5))

    async def all_is_seen(reads: Streams) -> bool:
        return (await reads.read(log)).records == seen

    for reads in (writes, other):
        # Java's control records are on their way when the append is acknowledged
        await until(partial(all_is_seen, reads), f"all is seen by {reads.name}", 30, pause=0.05)
    await writer.close()
    await both_read(writes, other, log, seen)


@EACH
@verifies(AREA, "rolled segments: both read across them, and number the records alike")
async def test_rolled(client: str, writes: Streams, other: Streams, log: str) -> None:
    writer = await writes.writer(log, small_segments=True)
    seen = expect(await writer.write(some(20)), some(20))
    await writer.close()
    assert len(await writes.segments(log)) > 3
    await both_read(writes, other, log, seen)


@EACH
@verifies(AREA, "truncated by either, as a whole and in part; both begin at the same record")
async def test_truncated(client: str, writes: Streams, other: Streams, log: str) -> None:
    writer = await writes.writer(log, small_segments=True)
    seen = expect(await writer.write(some(20)), some(20))
    await writer.close()
    for truncates, at in ((writes, 4), (other, 9), (writes, 10)):
        await truncates.truncate(log, seen[at].position)
        await both_read(writes, other, log, seen[at:])


@EACH
@verifies(AREA, "what is truncated is deleted by ours; the other one reads and writes on")
async def test_deleted_segments(client: str, writes: Streams, other: Streams, ours: OurStreams, log: str) -> None:
    writer = await writes.writer(log, small_segments=True)
    seen = expect(await writer.write(some(20)), some(20))
    await writer.close()
    assert (await ours.namespace.truncate(log, seen[13].position, delete=True)).deleted
    await both_read(writes, other, log, seen[13:])
    writer = await other.writer(log)
    seen += expect(await writer.write(some(3, 21)), some(3, 21), 20)
    await writer.close()
    await both_read(writes, other, log, seen[13:])


@EACH
@verifies(AREA, "sealed: both find the end behind the last record; the other one cannot append")
async def test_sealed(client: str, writes: Streams, other: Streams, log: str) -> None:
    writer = await writes.writer(log)
    seen = expect(await writer.write(some(3)), some(3))
    await writer.end()
    await both_read(writes, other, log, seen, sealed=True)
    with pytest.raises((EndOfStreamError, Refused)):
        await (await other.writer(log)).write(some(1, 100))


@EACH
@verifies(AREA, "the other one follows while it writes and rolls")
async def test_followed(client: str, writes: Streams, other: Streams) -> None:
    """On another log where Java's reader forgot who asked, three in all: it did so once in a hundred times and less."""
    for _ in range(2):
        with suppress(LeftWaiting):
            return await followed(writes, other)
    return await followed(writes, other)


async def followed(writes: Streams, other: Streams) -> None:
    """A new log by who does not write it. Raises `LeftWaiting`, after a look at the log."""
    log = await new_log(writes)
    writer = await writes.writer(log, small_segments=True)
    seen = expect(await writer.write(some(1)), some(1))
    following = asyncio.ensure_future(other.follow(log, seen[0].position, 20))
    try:
        seen += expect(await writer.write(some(19, 2)), some(19, 2), 1)
        await writer.close()
        found = await following
    except LeftWaiting:
        await both_read(writes, other, log, seen)
        raise
    finally:
        following.cancel()
    assert found == [
        # Java has no numbers for a segment that it met while the one before it was open, too
        record._replace(sequence_id=one.sequence_id) if one.sequence_id < 0 and other.name == JAVA_STREAMS else record
        for record, one in zip(seen, found, strict=True)
    ]


# --- who writes ------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("seen_at_once", [False, True])
@verifies(AREA, "a segment that it left unfinished is recovered by the other, which writes on; and back")
async def test_recovered(client: str, writes: Streams, other: Streams, log: str, seen_at_once: bool) -> None:
    """Without control records the last entry is found by recovery alone; with them a control record is the last."""
    seen: list[Seen] = []
    for owner in (writes, other, writes):
        writer = await owner.writer(log, seen_at_once=seen_at_once)
        records = some(4, len(seen) + 1)
        seen += expect(await writer.write(records), records, len(seen))
        await writer.abort()
    assert [segment.completed for segment in await other.segments(log)] == [True, True, False]
    await (await other.writer(log)).close()
    await both_read(writes, other, log, seen)


@EACH
@verifies(AREA, "a segment without records that our writer left is taken back, and its number used again")
async def test_an_empty_segment_is_taken_back(client: str, other: Streams, ours: OurStreams, log: str) -> None:
    """The writer of the parameter is the one that comes next."""
    next_owner = other if client == OUR_STREAMS else ours
    writer = await ours.namespace.open_writer(log)
    seen = expect([await writer.append(payload, txid=txid) for txid, payload in some(3)], some(3))
    await writer.roll()
    await writer.abort()
    assert [segment.number for segment in await next_owner.segments(log)] == [1, 2]
    following = await next_owner.writer(log)
    seen += expect(await following.write(some(3, 4)), some(3, 4), 3)
    await following.close()
    assert [segment.number for segment in await next_owner.segments(log)] == [1, 2]
    await both_read(ours, other, log, seen)


@EACH
@verifies(AREA, "writers take turns, each closing the stream behind it")
async def test_turns(client: str, writes: Streams, other: Streams, log: str) -> None:
    seen: list[Seen] = []
    for owner in (writes, other, writes, other):
        writer = await owner.writer(log)
        records = some(3, len(seen) + 1)
        seen += expect(await writer.write(records), records, len(seen))
        await writer.close()
    assert len(await writes.segments(log)) == 4
    await both_read(writes, other, log, seen)


@EACH
@verifies(AREA, "its lock keeps the other one out, which is told the owner's name, and gets it when it is free")
async def test_lock(client: str, writes: Streams, other: Streams, ours: OurStreams, log: str, zk: KazooClient) -> None:
    writer = await writes.writer(log)
    await writer.write(some(1))
    owner = "java" if client == JAVA_STREAMS else "ours"
    assert (await ours.namespace.info(log)).owner == owner
    with pytest.raises((NotOwnerError, Refused), match=f"(?s)OwnershipAcquireFailed.*{owner}|held by {owner}"):
        await other.writer(log, wait=0)
    lock = f"{ours.namespace.path}/{log}/<default>/lock"
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(waited_for(other, log))
        await until(lambda: len(zk.get_children(lock)) == 2, "it waits", 30, pause=0.05)
        await writer.close()
    following = waiting.result()
    await following.write(some(1, 2))
    await following.close()
    assert [seen.payload for seen in (await writes.read(log)).records] == [payload for _, payload in some(2)]


async def waited_for(streams: Streams, log: str) -> Writer:
    """A writer, once the log is free. Java reads the segments before it has the lock, and fails if they changed."""
    try:
        return await streams.writer(log, wait=60)
    except Refused:
        return await streams.writer(log)


@EACH
@verifies(AREA, "its lock is lost without its knowing: the other one takes over, and it can append no more")
async def test_taken_over(
    client: str, writes: Streams, other: Streams, log: str, zk: KazooClient, address: str
) -> None:
    writer = await writes.writer(log)
    seen = expect(await writer.write(some(4)), some(4))
    lock = f"/{address.split('/', 3)[3]}/{log}/<default>/lock"
    for member in zk.get_children(lock):
        zk.delete(f"{lock}/{member}")
    following = await other.writer(log)
    with pytest.raises((NotOwnerError, Refused)):
        await writer.write(some(1, 5))
    seen += expect(await following.write(some(3, 6)), some(3, 6), 4)
    await following.close()
    await both_read(writes, other, log, seen)


@verifies(AREA, "the process of Java's writer is killed: ours takes over what it had written")
async def test_java_writer_killed(
    tmp_path: Path, address: str, java: JavaStreams, ours: OurStreams, zk: KazooClient
) -> None:
    victim = JavaSession(tmp_path / "log.txt", "streams")
    dying = JavaStreams(victim, address)
    writer = await dying.writer("killed")
    seen = expect(await writer.write(some(5)), some(5))
    await asyncio.to_thread(victim.kill)
    lock = f"{ours.namespace.path}/killed/<default>/lock"
    for member in zk.get_children(lock):  # what ZooKeeper does one session timeout later
        zk.delete(f"{lock}/{member}")
    following = await ours.writer("killed")
    seen += expect(await following.write(some(3, 6)), some(3, 6), 5)
    await following.close()
    await both_read(java, ours, "killed", seen)


# --- names -----------------------------------------------------------------------------------------


@verifies(AREA, "a namespace that ours bound: Java lists, writes, reads and deletes in it; binding is written alike")
async def test_namespace_of_ours(on_cluster: Cluster, java_session: JavaSession, zk: KazooClient, address: str) -> None:
    uri = f"distributedlog://{on_cluster.address}{on_cluster.root}-ours"
    config = ClientConfiguration(**PATIENCE)
    async with bookkeeper.open_namespace(uri, create=True, ledgers=on_cluster.uri, config=config) as namespace:
        assert zk.get(namespace.path)[0] == zk.get("/" + address.split("/", 3)[3])[0]
        java, ours = JavaStreams(java_session, uri), OurStreams(namespace)
        await ours.create("of-ours")
        await java.create("of-java")
        for each in (java, ours):
            assert await each.list() == ["of-java", "of-ours"]
        for owner, log in ((java, "of-ours"), (ours, "of-java")):
            writer = await owner.writer(log)
            seen = expect(await writer.write(some(2)), some(2))
            await writer.close()
            await both_read(java, ours, log, seen)
        await ours.delete("of-java")
        await java.delete("of-ours")
        for each in (java, ours):
            assert await each.list() == []
        await java.close()


@verifies(AREA, "a federated namespace of Java's: ours lists and reads the streams of all its parts, and changes none")
async def test_federated(on_cluster: Cluster, java_session: JavaSession, zk: KazooClient) -> None:
    uri = f"distributedlog://{on_cluster.address}{on_cluster.root}-federated"
    java_session.call("bind", uri=uri, servers=on_cluster.address, ledgers=on_cluster.root, federated=True)
    zk.ensure_path(f"{on_cluster.root}-federated/.subnamespaces")
    java = JavaStreams(java_session, uri, federatedNamespaceEnabled=True, federatedMaxLogsPerSubnamespace=2)
    names = [f"log-{n}" for n in range(5)]
    expected: dict[str, list[Seen]] = {}
    for name in names:
        await java.create(name)
        writer = await _writer_once_known(java, name)
        expected[name] = expect(await writer.write(some(3)), some(3))
        await writer.close()
    async with bookkeeper.open_namespace(uri, config=ClientConfiguration(**PATIENCE)) as namespace:
        ours = OurStreams(namespace)
        assert sorted(await ours.list()) == await java.list() == names
        for name in names:
            await both_read(java, ours, name, expected[name])
        with pytest.raises(Unsupported, match="federated"):
            await namespace.create("log-6")
        with pytest.raises(StreamNotFoundError):
            await namespace.info("log-6")
    await java.close()


async def _writer_once_known(java: JavaStreams, name: str) -> Writer:
    """Of a stream that was just created: Java hears of a new part of a federated namespace from ZooKeeper, later."""

    async def opened() -> Writer | None:
        try:
            return await java.writer(name)
        except Refused as error:
            if "isn't found" not in str(error):
                raise
            return None

    return cast(Writer, await until(opened, f"Java knows {name}", pause=0.05))


@verifies(AREA, "subscribers: where one of Java's stopped, a reader of ours goes on, and the reverse")
async def test_subscribers(java: JavaStreams, ours: OurStreams) -> None:
    name = f"log-{next(_names)}"
    writer = await ours.writer(name)
    seen = expect(await writer.write(some(5)), some(5))
    await writer.close()
    subscriptions = ours.namespace.subscriptions(name)
    assert await java.subscribed(name, "of-java", read=2) == seen[:2]  # commits what it read
    assert await subscriptions.list() == {"of-java": seen[1].position}
    async with ours.namespace.open_reader(name, subscriber="of-java", tail=False) as reader:
        assert [record.position async for record in reader] == [each.position for each in seen[1:]]
    async with ours.namespace.open_reader(name, subscriber="of-ours", tail=False) as reader:
        while (await reader.read(1))[0].position < seen[2].position:
            pass
        await reader.ack()
    assert (await java.subscribed(name, "of-ours", read=1))[0] == seen[3]
