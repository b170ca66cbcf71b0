"""What tasks write, and what the driver makes of it, once (spec streams §17.6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pyarrow as pa
import pytest

from bookkeeper.spark.errors import JobError, OptionError
from bookkeeper.spark.writing.committing import check, commit, end_runs
from bookkeeper.spark.writing.fingerprint import fingerprint_of
from bookkeeper.spark.writing.framing import Framing
from bookkeeper.spark.writing.shapes import Column, Fields, rows_of
from bookkeeper.spark.writing.sink_options import Layout, SinkOptions, layout
from bookkeeper.spark.writing.tasks import Batch, TaskWriter, Written
from bookkeeper.streams.errors import EpochConflictError, StagingLostError, TxidOrderError
from bookkeeper.streams.formats.codec import Compression
from bookkeeper.streams.formats.keyed import Codec, KeyedRecord
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.publishing.staging import encode_run, load_run
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


async def test_a_batch_without_rows_counts(namespace: Namespace) -> None:
    """Else two copies of a checkpoint go on, one that found no rows and one that found some, and write those twice."""
    first, other, following = replace(BATCH, run="0a"), replace(BATCH, run="0b"), replace(BATCH, epoch=8, run="0c")
    await commit(namespace, 7, [await written(namespace, first, 0)], fingerprint="no rows")
    with pytest.raises(EpochConflictError):
        await commit(namespace, 7, [await written(namespace, other, 0, "a")], fingerprint="some")
    await commit(namespace, 8, [await written(namespace, following, 0, "a")], fingerprint="what follows")
    await commit(namespace, 8, [await written(namespace, replace(following, run="0d"), 0)], fingerprint="what follows")
    assert len(await contents(namespace, "a")) == 3


@pytest.mark.parametrize("rows", [0, 1])
async def test_a_run_is_heard_of_while_a_task_waits_for_rows(namespace: Namespace, rows: int) -> None:
    """Its next ones, or its first ones: the run is that of other tasks then."""
    path = (await namespace.stage("sink", 7, query="query", run="0a")).path
    tree = namespace.client.context.driver.tree
    task = TaskWriter(namespace, BATCH, beat_seconds=0.02)
    await task.begin()
    await task.add([("a", [b"x"] * rows)])
    for _ in range(2):
        silent = replace(await load_run(tree, path), time=5)
        await tree.write(path, encode_run(silent), silent.version)
        while (await load_run(tree, path)).time == 5:
            await asyncio.sleep(0.01)
    await task.finish(0)
    silent = await load_run(tree, path)
    await asyncio.sleep(0.05)
    assert await load_run(tree, path) == silent, "a task that is over says no more"


async def test_a_task_of_any_length_says_once_that_its_run_is_alive(namespace: Namespace) -> None:
    tree = namespace.client.context.driver.tree
    path = (await namespace.stage("sink", 7, query="query", run="0a")).path
    run = replace(await load_run(tree, path), time=5)
    await tree.write(path, encode_run(run), run.version)
    task = TaskWriter(namespace, BATCH)
    await task.begin()
    while (await load_run(tree, path)).time == 5:
        await asyncio.sleep(0.01)
    await task.abort()


async def test_a_task_whose_run_was_given_up_ends_with_its_next_rows(namespace: Namespace) -> None:
    task = TaskWriter(namespace, BATCH, beat_seconds=0.02)
    await task.begin()
    await task.add([("a", [b"x"])])
    await namespace.collect_staged(lost_after=-1)

    async def wait_for_rows() -> None:
        while True:
            await task.add([])
            await asyncio.sleep(0.01)

    with pytest.raises(StagingLostError):
        await wait_for_rows()
    await task.abort()
    assert [ledger async for ledger in namespace.client.list_ledgers()] == []


async def test_a_batch_whose_run_was_given_up_is_not_published(namespace: Namespace) -> None:
    message = await written(namespace, BATCH, 0, "a")
    await namespace.collect_staged(lost_after=-1)
    with pytest.raises(StagingLostError):
        await commit(namespace, 7, [message])
    assert await namespace.last_published("sink") is None


async def test_a_task_writes_to_so_many_streams_only(namespace: Namespace) -> None:
    task = TaskWriter(namespace, BATCH, max_ledgers=1)
    await task.begin()
    with pytest.raises(OptionError, match="maxLedgersPerTask"):
        await task.add([("a", [b"x"]), ("b", [b"y"])])
    await task.abort()
    assert [ledger async for ledger in namespace.client.list_ledgers()] == []


async def write(namespace: Namespace, epoch: int, *rows: tuple[str, Fields]) -> None:
    """A batch of one task."""
    task = TaskWriter(namespace, replace(BATCH, epoch=epoch, run=f"{epoch:02x}"))
    await task.begin()
    try:
        await task.add(rows)
        await commit(namespace, epoch, [await task.finish(0)])
    except (OptionError, TxidOrderError):
        await task.abort()
        raise


async def test_rows_have_the_transaction_ids_that_they_bring(namespace: Namespace) -> None:
    """And those of several partitions are merged with them."""
    messages = []
    for part in range(3):
        task = TaskWriter(namespace, BATCH)
        await task.begin()
        await task.add([("a", Fields("value", [b"x", b"y"], txids=[10 * part, 10 * part + 1]))])
        messages.append(await task.finish(part))
    await commit(namespace, 7, messages)
    async with namespace.open_reader("a", tail=False) as reader:
        assert [record.txid async for record in reader] == [0, 1, 10, 11, 20, 21]
    assert len((await namespace.info("a")).segments) == 1


@pytest.mark.parametrize(
    ("txids", "why"),
    [
        ([5, 4], "row 2 of the task: transaction id 4 comes after 5"),
        ([5, None], "row 2 of the task: None is no transaction id"),
        ([-1, 0], "row 1 of the task: -1 is no transaction id"),
        ([2, 3], "row 1 of the task: transaction id 2 comes after 3"),
    ],
)
async def test_transaction_ids_that_fall_are_refused_with_their_row(
    namespace: Namespace, txids: list[int], why: str
) -> None:
    """In a task, and behind what the stream has."""
    await write(namespace, 0, ("a", Fields("value", [b"x"], txids=[3])))
    with pytest.raises(TxidOrderError, match=f"stream a, {why}"):
        await write(namespace, 1, ("a", Fields("value", [b"x", b"y"], txids=txids)))
    assert await contents(namespace, "a") == [b"x"]


async def test_transaction_ids_that_fall_from_partition_to_partition_are_refused(namespace: Namespace) -> None:
    messages = []
    for part, txid in enumerate((9, 5)):
        task = TaskWriter(namespace, BATCH)
        await task.begin()
        await task.add([("a", Fields("value", [b"x"], txids=[txid]))])
        messages.append(await task.finish(part))
    with pytest.raises(TxidOrderError, match="begins with transaction id 5, and one before it ends with 9"):
        await commit(namespace, 7, messages)
    assert not await namespace.exists("a")


async def test_a_new_stream_has_keys_if_its_first_rows_do(namespace: Namespace) -> None:
    keyed = Fields("value", [b"v", None], [b"k", b"gone"], [[("h", b"1")], ()], [5, None])
    await namespace.create("empty")
    for epoch, name in enumerate(("a", "empty")):
        await write(namespace, epoch, (name, keyed), ("nothing", Fields("value", [], [])))
        assert await namespace.codec(name) is Codec.KV1
        assert [KeyedRecord.decode(payload) for payload in await contents(namespace, name)] == [
            KeyedRecord(b"v", b"k", (("h", b"1"),), 5),
            KeyedRecord(None, b"gone"),
        ]
    await write(namespace, 2, ("a", Fields("value", [b"KV\x01 a value that looks like one with a key"])))
    last = (await contents(namespace, "a"))[-1]
    assert KeyedRecord.decode(last).value == b"KV\x01 a value that looks like one with a key"
    assert not await namespace.exists("nothing")


async def test_a_stream_without_keys_takes_none(namespace: Namespace) -> None:
    await write(namespace, 0, ("a", Fields("value", [b"x"])))
    await write(namespace, 1, ("a", Fields("value", [b"y"], [None], [()], [7])))
    assert await contents(namespace, "a") == [b"x", b"y"]
    assert await namespace.codec("a") is Codec.RAW
    for fields, why in (
        (Fields("value", [b"x"], [b"k"]), "rows have a key"),
        (Fields("value", [b"x"], None, [[("h", None)]]), "rows have a key"),
        (Fields("value", [b"x", None]), "1 rows have null for value"),
    ):
        with pytest.raises(OptionError, match=why):
            await write(namespace, 2, ("a", fields))
    assert len(await contents(namespace, "a")) == 2


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
    kafka = [
        ("key", "string"),
        ("value", "binary"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
    ]
    assert layout(kafka, options) == Layout("value", None, "key", None, "timestamp")
    for wrong in (
        [("key", "int"), ("value", "binary")],
        [("payload", "binary"), ("offset", "bigint")],
        [("payload", "binary"), ("headers", "map<string,string>")],
        [("payload", "int")],
        [("stream", "string")],
        [("payload", "binary"), ("txid", "int")],
    ):
        with pytest.raises(OptionError):
            layout(wrong, options)


async def test_a_column_of_values_is_written_as_its_objects_are(namespace: Namespace) -> None:
    """Enough of them at once become entries without objects; few, and those with keys, as any others."""
    large = [bytes([n % 251]) * (n % 700) for n in range(1000)]
    task = TaskWriter(namespace, BATCH)
    await task.begin()
    for values in ([b"first"], large, [b"small", b"ones"], large[:500]):
        rows = pa.record_batch([pa.array(values, pa.binary())], names=["payload"])
        await task.add(rows_of(rows, Layout("payload", None), "a"))
    await commit(namespace, BATCH.epoch, [await task.finish(0)])
    assert await contents(namespace, "a") == [b"first", *large, b"small", b"ones", *large[:500]]
    (segment,) = (await namespace.info("a")).segments
    assert segment.records == 1503
    missing = pa.record_batch([pa.array([b"x" * 100_000, None])], names=["payload"])
    with pytest.raises(OptionError, match="1 rows have null for payload"):
        await Framing(namespace).payloads("a", rows_of(missing, Layout("payload", None), "a")[0][1])


def test_a_column_is_a_sequence() -> None:
    column = Column(pa.array([b"a", None, b"c"], pa.binary()))
    assert (len(column), list(column), column[0], column[1:]) == (3, [b"a", None, b"c"], b"a", [None, b"c"])
