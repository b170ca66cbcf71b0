"""What tasks write, and what the driver makes of it, once (spec streams §17.6)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from bookkeeper.spark.errors import JobError, OptionError
from bookkeeper.spark.writing.committing import check, commit, end_runs
from bookkeeper.spark.writing.fingerprint import fingerprint_of
from bookkeeper.spark.writing.sink_options import SinkOptions, layout
from bookkeeper.spark.writing.tasks import Batch, TaskWriter, Written
from bookkeeper.streams.errors import EpochConflictError
from bookkeeper.streams.formats.codec import Compression
from bookkeeper.streams.namespace import Namespace
from tests.support.fake_bookie import FakeCluster

BATCH = Batch("sink", 7, "0a", "query", counted=True)


@pytest.fixture
async def namespace(cluster: FakeCluster) -> Namespace:
    client = await cluster.connect()
    await client.context.driver.tree.make("/ns")
    return Namespace(client, client.context.driver.tree, "/ns", None, "me", AsyncExitStack())


async def written(namespace: Namespace, batch: Batch, partition: int, *streams: str) -> Written:
    task = TaskWriter(namespace, batch, compression=Compression.LZ4)
    await task.begin()
    await task.add([(name, [f"{partition} {n}".encode() for n in range(3)]) for name in streams])
    return await task.finish(partition)


async def contents(namespace: Namespace, name: str) -> list[bytes]:
    async with namespace.open_reader(name, tail=False) as reader:
        return [record.payload async for record in reader]


async def test_a_batch_for_several_streams_is_published_once(namespace: Namespace) -> None:
    for run in ("0a", "0b"):
        batch = replace(BATCH, run=run)
        messages = [await written(namespace, batch, n, "a", "b") for n in (1, 0)]
        assert [message.skipped for message in messages] == [run == "0b"] * 2
        await commit(namespace, 7, messages)
        for name in ("a", "b"):
            assert await contents(namespace, name) == [f"{part} {n}".encode() for part in range(2) for n in range(3)]


async def test_a_batch_whose_driver_died_is_written_anew_and_nothing_is_left(namespace: Namespace) -> None:
    await written(namespace, replace(BATCH, run="0a"), 0, "a")  # nobody commits it
    await commit(namespace, 7, [await written(namespace, replace(BATCH, run="0b"), 0, "a")])
    assert await contents(namespace, "a") == [b"0 0", b"0 1", b"0 2"]
    segments = (await namespace.info("a")).segments
    assert [ledger async for ledger in namespace.client.list_ledgers()] == [segments[0].ledger_id]


async def test_what_is_aborted_is_deleted_unless_it_is_published(namespace: Namespace) -> None:
    message = await written(namespace, BATCH, 0, "a")
    await end_runs(namespace, [None], BATCH)
    assert [ledger async for ledger in namespace.client.list_ledgers()] == []
    message = await written(namespace, replace(BATCH, run="0b"), 0, "a")
    await commit(namespace, 7, [message])
    await end_runs(namespace, [message, None])
    assert len(await contents(namespace, "a")) == 3


async def test_an_older_epoch_and_other_data_are_refused(namespace: Namespace) -> None:
    await commit(namespace, 7, [await written(namespace, BATCH, 0, "a")], fingerprint="x")
    for batch, fingerprint in ((replace(BATCH, epoch=6), "x"), (replace(BATCH, run="0c"), "y")):
        with pytest.raises(EpochConflictError):
            await commit(namespace, batch.epoch, [await written(namespace, batch, 0, "a")], fingerprint=fingerprint)
    assert len(await contents(namespace, "a")) == 3


async def test_a_task_writes_to_so_many_streams_only(namespace: Namespace) -> None:
    task = TaskWriter(namespace, BATCH, max_ledgers=1)
    await task.begin()
    with pytest.raises(OptionError, match="maxLedgersPerTask"):
        await task.add([("a", [b"x"]), ("b", [b"y"])])
    await task.abort()
    assert [ledger async for ledger in namespace.client.list_ledgers()] == []


@pytest.mark.parametrize(
    "messages",
    [
        [None],
        [Written(BATCH, 0), Written(BATCH, 0)],
        [Written(BATCH, 0), Written(replace(BATCH, run="0b"), 1)],
        [Written(replace(BATCH, epoch=8), 0)],
    ],
)
def test_messages_that_do_not_fit_together_are_refused(messages: list[Written | None]) -> None:
    with pytest.raises(JobError):
        check(messages, 7)


def test_a_fingerprint_is_of_the_offsets_and_not_of_the_time() -> None:
    one = fingerprint_of(b'v1\n{"batchTimestampMs":1}\n{"s":1}')
    assert one == fingerprint_of(b'v1\n{"batchTimestampMs":2}\n{"s":1}')
    assert one != fingerprint_of(b'v1\n{"batchTimestampMs":1}\n{"s":2}')
    assert fingerprint_of(b"") is None


@pytest.mark.parametrize(
    ("options", "why"),
    [({}, "uri is missing"), ({"uri": "x", "epoch": "3"}, "go together"), ({"uri": "x", "strem": "y"}, "mean stream")],
)
def test_wrong_options(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        SinkOptions.parse(options, streaming=False)


def test_columns() -> None:
    options = SinkOptions.parse({"uri": "x", "stream": "s"}, streaming=True)
    assert layout([("value", "string"), ("topic", "string")], options).stream == "topic"
    for wrong in ([("key", "binary"), ("value", "binary")], [("payload", "int")], [("stream", "string")]):
        with pytest.raises(OptionError):
            layout(wrong, options)
