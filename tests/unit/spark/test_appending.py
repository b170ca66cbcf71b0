"""Tasks that append to the streams themselves: nothing lost, perhaps something twice (spec streams §17.6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from pyspark.sql.types import BinaryType, StructType

from bookkeeper.errors import NotOwnerError, ServiceUnavailable, StreamNotFoundError
from bookkeeper.spark.errors import OptionError
from bookkeeper.spark.writing.appending import TaskAppender
from bookkeeper.spark.writing.shapes import Fields
from bookkeeper.spark.writing.sink_options import Delivery, SinkOptions
from bookkeeper.spark.writing.tasks import Batch
from bookkeeper.spark.writing.writers import plan
from bookkeeper.streams.errors import RecordTooLargeError, TxidOrderError
from bookkeeper.streams.formats.keyed import Codec
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.writer import StreamWriter
from tests.support.fake_bookie import FakeCluster

BATCH = Batch("sink", 7, "0a", "query", counted=True)


@pytest.fixture
async def namespace(cluster: FakeCluster) -> Namespace:
    client = await cluster.connect()
    await client.context.driver.tree.make("/ns")
    return Namespace(client, client.context.driver.tree, "/ns", None, "me", AsyncExitStack())


async def contents(namespace: Namespace, name: str) -> list[bytes]:
    async with namespace.open_reader(name, tail=False) as reader:
        return [record.payload async for record in reader]


async def test_a_row_is_there_before_its_task_is_done(namespace: Namespace) -> None:
    task = TaskAppender(namespace, BATCH)
    await task.begin()
    await task.add([("a", [b"1", b"2"]), ("b", [b"3"])])
    async with namespace.open_reader("a") as reader, asyncio.timeout(10):
        assert [record.payload for record in await reader.read(2)] == [b"1", b"2"]
    await task.add([("a", [b"4"])])
    assert (await task.finish(0)).rows == 4
    assert await contents(namespace, "a") == [b"1", b"2", b"4"]
    assert await contents(namespace, "b") == [b"3"]


async def test_what_a_repeated_task_had_appended_is_there_twice_and_nothing_is_lost(namespace: Namespace) -> None:
    for done in (False, True):
        task = TaskAppender(namespace, BATCH)
        await task.begin()
        await task.add([("a", [b"1", b"2"])])
        if done:
            await task.add([("a", [b"3"])])
            await task.finish(0)
        else:
            await task.abort()
    assert await contents(namespace, "a") == [b"1", b"2", b"1", b"2", b"3"]


async def test_tasks_for_the_same_streams_do_not_wait_for_each_other_for_ever(namespace: Namespace) -> None:
    """Each has the stream that the other one wants next."""
    tasks = [TaskAppender(namespace, BATCH, timeout=20.0) for _ in range(2)]
    streams = ["a", "b"]
    for task, stream in zip(tasks, streams, strict=True):
        await task.begin()
        await task.add([(stream, [b"first"])])

    async def go_on(task: TaskAppender, stream: str) -> None:
        await task.add([(stream, [b"second"])])
        await task.finish(0)

    await asyncio.gather(*map(go_on, tasks, reversed(streams)))
    for stream in streams:
        assert await contents(namespace, stream) == [b"first", b"second"]


async def test_a_task_has_so_many_streams_at_once_and_writes_to_any_number(namespace: Namespace) -> None:
    task = TaskAppender(namespace, BATCH, most_streams=2)
    await task.begin()
    for name in "abcab":
        await task.add([(name, [name.encode()])])
        assert sum([(await namespace.info(each)).owner is not None async for each in namespace.list()]) <= 2
    await task.finish(0)
    assert [len(await contents(namespace, name)) for name in "abc"] == [2, 2, 1]


async def test_a_stream_that_is_written_by_somebody_else_ends_the_task_at_last(namespace: Namespace) -> None:
    async with namespace.open_writer("a", create=True) as writer:
        await writer.append(b"theirs")
        task = TaskAppender(namespace, BATCH, timeout=0.05)
        with pytest.raises(NotOwnerError):
            await task.add([("a", [b"ours"])])
        await task.abort()
    assert await contents(namespace, "a") == [b"theirs"]


async def test_a_stream_that_cannot_be_given_back_does_not_keep_the_others(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TaskAppender(namespace, BATCH)
    await task.add([(name, [b"x"]) for name in "abc"])
    abort = StreamWriter.abort
    failing = iter((True, False, False))

    async def fails(self: StreamWriter) -> None:
        await abort(self)
        if next(failing):
            raise ServiceUnavailable("the store is away")

    monkeypatch.setattr(StreamWriter, "abort", fails)
    await task.abort()
    assert next(failing, None) is None
    for name in "abc":
        assert (await namespace.info(name)).owner is None


async def test_rows_that_cannot_be_written_are_named(namespace: Namespace) -> None:
    task = TaskAppender(namespace, BATCH)
    await task.add([("a", [b"x"])])
    with pytest.raises(RecordTooLargeError, match="stream a, row 3 of the task: 2097152 bytes are too many"):
        await task.add([("a", [b"y", bytes(2 << 20)])])
    await task.abort()
    strict = TaskAppender(namespace, BATCH, create_streams=False)
    with pytest.raises(StreamNotFoundError, match="createStreams is false"):
        await strict.add([("nowhere", [b"x"])])
    assert not await namespace.exists("nowhere")


async def test_new_streams_have_keys_if_rows_do(namespace: Namespace) -> None:
    tasks = [TaskAppender(namespace, BATCH) for _ in range(2)]

    async def write(task: TaskAppender) -> None:
        await task.add([("a", Fields("value", [b"v"], [b"k"]))])
        await task.finish(0)

    await asyncio.gather(*map(write, tasks))
    assert await namespace.codec("a") is Codec.KV1
    assert len(await contents(namespace, "a")) == 2


async def test_rows_may_bring_their_transaction_ids(namespace: Namespace) -> None:
    task = TaskAppender(namespace, BATCH)
    await task.add([("a", Fields("value", [b"x", b"y"], txids=[5, 7]))])
    with pytest.raises(TxidOrderError, match="stream a, row 3 of the task: transaction id 6 comes after 7"):
        await task.add([("a", Fields("value", [b"z"], txids=[6]))])
    await task.finish(0)
    async with namespace.open_reader("a", tail=False) as reader:
        assert [record.txid async for record in reader] == [5, 7]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"delivery": "twice"}, "none of exactly-once, at-least-once"),
        ({"delivery": "at-least-once", "sinkId": "s", "epoch": "1"}, "sinkId: .*nothing is counted"),
        ({"delivery": "at-least-once", "mergeTargetBytes": "1m"}, "mergeTargetBytes: .*leave it out"),
    ],
)
def test_wrong_options(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        SinkOptions.parse({"uri": "x", **options}, streaming=False)


def test_overwriting_is_refused() -> None:
    schema = StructType().add("payload", BinaryType())
    options = SinkOptions.parse({"uri": "x", "stream": "s", "delivery": "At-Least-Once"}, streaming=True)
    assert options.delivery is Delivery.AT_LEAST_ONCE
    assert plan(options, schema).payload == "payload"
    with pytest.raises(OptionError, match="does not go with overwriting"):
        plan(options, schema, overwrite=True)
