"""Streams in Spark on a live cluster: read once, followed, written (docs/spark.md)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import bookkeeper.spark
import bookkeeper.sync
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.opening import open_namespace
from bookkeeper.streams.policy import WritePolicy
from tests.support.waiting import wait_until

from .support import LiveCluster

pytestmark = pytest.mark.timeout(300)

T = TypeVar("T")


class Streams:
    """A namespace, for tests without an event loop."""

    def __init__(self, cluster: LiveCluster, path: str) -> None:
        self.where = f"distributedlog-{cluster.uri}?namespace={path}"
        self.do(self._nothing, create=True)

    async def _nothing(self, namespace: Namespace) -> None:
        return None

    def do(self, work: Callable[[Namespace], Awaitable[T]], *, create: bool = False) -> T:
        async def run() -> T:
            async with open_namespace(self.where, create=create) as namespace:
                return await work(namespace)

        return asyncio.run(run())

    def append(self, name: str, payloads: list[bytes], *, roll: int | None = None) -> None:
        async def write(namespace: Namespace) -> None:
            policy = WritePolicy(buffer_bytes=100, roll_records=roll)
            async with namespace.open_writer(name, create=True, policy=policy) as writer:
                for payload in payloads:
                    await writer.append(payload)

        self.do(write)

    def append_at_once(self, name: str, payloads: list[bytes]) -> None:
        """All in one entry: who reads meanwhile sees all of them or none."""

        async def write(namespace: Namespace) -> None:
            async with namespace.open_writer(name, create=True) as writer:
                assert len((await writer.append_batch(payloads)).runs) == 1

        self.do(write)

    def payloads(self, name: str) -> list[bytes]:
        async def read(namespace: Namespace) -> list[bytes]:
            async with namespace.open_reader(name, tail=False) as reader:
                return [record.payload async for record in reader]

        return self.do(read)


@pytest.fixture(scope="module")
def streams(cluster: LiveCluster) -> Streams:
    return Streams(cluster, "/spark")


class Query:
    """A streaming query that can be ended and begun again with its checkpoint; what it read, batch by batch."""

    def __init__(self, frame: Callable[[], DataFrame], checkpoint: Path) -> None:
        self._frame = frame
        self.checkpoint = checkpoint
        self.batches: dict[int, list[bytes]] = {}

    def run(self, *, fail: int | None = None) -> None:
        """All that is there, in as many batches as the options say. `fail`: this batch fails after it was read."""

        def take(batch: DataFrame, number: int) -> None:
            rows = [bytes(row[0]) for row in batch.collect()]
            assert self.batches.setdefault(number, rows) == rows, f"batch {number} read other rows the second time"
            if number == fail:
                raise RuntimeError("planned failure")

        query: StreamingQuery = (
            self._frame()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    @property
    def rows(self) -> list[bytes]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"record %06d" % n for n in range(first, last)]


def following(spark: SparkSession, uri: str, **options: Any) -> Callable[[], DataFrame]:
    texts = {key: str(value) for key, value in options.items()}
    return lambda: spark.readStream.format("bookkeeper").option("uri", uri).options(**texts).load().select("payload")


def test_a_stream_is_read_once(spark: SparkSession, streams: Streams) -> None:
    streams.append("once", numbers(0, 500), roll=120)
    frame = spark.read.format("bookkeeper").options(uri=streams.where, stream="once").load()
    rows = frame.orderBy("segment", "entry_id", "slot").collect()
    assert [bytes(row.payload) for row in rows] == numbers(0, 500)
    assert [row.sequence_id for row in rows] == list(range(500))
    assert len({row.segment for row in rows}) > 3
    assert all(row.timestamp is not None for row in rows)
    assert frame.where("sequence_id < 10").count() == 10
    assert frame.count() == 500, "used twice"

    places = {
        "startingOffsets": json.dumps({"once": rows[123].dlsn}),
        "endingOffsets": json.dumps({"once": {"l": 3, "e": 0}}),
    }
    part = spark.read.format("bookkeeper").options(uri=streams.where, stream="once", rowMode="kafka", **places).load()
    found = part.orderBy("offset").collect()
    stop = next(row.sequence_id for row in rows if row.segment == 3)
    assert [bytes(row.value) for row in found] == numbers(123, stop)
    assert {(row.topic, row.partition, row.key) for row in found} == {("once", 0, None)}


def test_reads_begin_and_end_at_times_and_transaction_ids(spark: SparkSession, streams: Streams) -> None:
    """To the record, also where several records share an entry."""

    async def write(namespace: Namespace) -> None:
        policy = WritePolicy(buffer_bytes=100, roll_records=40)
        async with namespace.open_writer("timed", create=True, policy=policy) as writer:
            for n, payload in enumerate(numbers(0, 100)):
                await writer.append(payload, txid=1000 + 10 * n)

    streams.do(write)

    def read(**options: str) -> list[bytes]:
        frame = spark.read.format("bookkeeper").options(uri=streams.where, stream="timed", **options).load()
        return sorted(bytes(row.payload) for row in frame.select("payload").collect())

    assert read(startingTxid="1231", endingTxid="1500") == numbers(24, 50)
    assert read(startingTimestamp="1230", startingTxid="7", endingOffsetsByTimestamp='{"timed": 1777}') == numbers(
        23, 78
    )
    assert read(startingOffsetsByTimestamp='{"timed": 0}', endingTimestamp="9999") == numbers(0, 100)
    assert read(startingTxid="5000", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(PySparkException, match="no record with transaction id 5000"):
        read(startingTimestamp="5000")


def test_conditions_at_load_time(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """On a read, and on a query: other rows, but the same places."""

    async def write(namespace: Namespace) -> None:
        policy = WritePolicy(buffer_bytes=100, roll_records=40)
        async with namespace.open_writer("chosen", create=True, policy=policy) as writer:
            for n, payload in enumerate(numbers(0, 100)):
                await writer.append(payload, txid=1000 + 10 * n)

    streams.do(write)

    def read(where: str) -> list[bytes]:
        options = {"stream": "chosen", "where": where, "columns": "payload"}
        frame = spark.read.format("bookkeeper").options(uri=streams.where, **options).load()
        assert frame.columns == ["payload"]
        found = sorted(bytes(row.payload) for row in frame.collect())
        assert frame.where("payload = cast('record 000050' as binary)").count() == (b"record 000050" in found)
        assert sorted(bytes(row.payload) for row in frame.collect()) == found, "used twice"
        return found

    segments = streams.do(lambda namespace: namespace.info("chosen")).segments
    first = segments[0].records
    assert read("txid between 1231 and 1500") == numbers(24, 51)
    assert read(f"segment > {segments[0].number} and sequence_id < 70") == numbers(first, 70)
    assert read("timestamp >= '1970-01-01T00:00:01.800Z'") == numbers(80, 100)
    assert read("txid < 1000") == []
    kafka = spark.read.format("bookkeeper").options(uri=streams.where, stream="chosen", rowMode="kafka")
    assert [row.offset for row in kafka.option("where", "sequence_id in (7, 93)").load().collect()] == [7, 93]

    options = {"stream": "chosen", "startingOffsets": "earliest", "maxRecordsPerTrigger": 30}
    query = Query(following(spark, streams.where, where="sequence_id between 20 and 89", **options), tmp_path)
    query.run()
    assert query.rows == numbers(20, 90)
    query.run()
    assert query.rows == numbers(20, 90)


def test_streams_are_found_by_a_pattern_as_they_come(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.append("log-a", numbers(0, 30))
    streams.append("other", numbers(900, 910))
    options = {"streamPattern": "log-.*", "startingOffsets": "latest"}
    query = Query(following(spark, streams.where, **options), tmp_path)
    query.run()
    assert query.rows == []
    streams.append("log-a", numbers(30, 60))
    query.run()
    assert query.rows == numbers(30, 60)

    frame = following(spark, streams.where, **options, minPollInterval="100ms")()
    seen: list[bytes] = []
    running = (
        frame.writeStream.foreachBatch(lambda batch, _: seen.extend(bytes(row[0]) for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    streams.append("log-b", numbers(100, 120))
    wait_until(lambda: len(seen) == 20, "the stream that was made while the query runs is read")
    running.stop()
    assert sorted(seen) == numbers(100, 120)
    streams.append("log-b", numbers(120, 125))
    query.run()
    assert query.rows[-5:] == numbers(120, 125), "it goes on where the other one stopped"
    once = spark.read.format("bookkeeper").options(uri=streams.where, streamPattern="log-.*").load()
    assert once.groupBy("stream").count().orderBy("stream").collect() == [("log-a", 60), ("log-b", 25)]


def test_a_query_reads_each_record_once(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Over rolls, in limited batches, ended and begun again, with a batch that fails after it was read."""
    streams.append("followed", numbers(0, 300), roll=70)
    options = {"stream": "followed", "startingOffsets": "earliest", "maxRecordsPerTrigger": 100}
    query = Query(following(spark, streams.where, **options), tmp_path)
    with pytest.raises(PySparkException, match="planned failure"):
        query.run(fail=1)
    streams.append("followed", numbers(300, 400))
    query.run()
    assert query.rows == numbers(0, 400)
    assert len(query.batches) >= 4
    assert max(map(len, query.batches.values())) <= 110
    before = len(query.batches)
    query.run()
    assert len(query.batches) == before, "nothing is new"


def test_a_start_at_the_end_is_kept_though_nothing_was_read(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    streams.append("latest", numbers(0, 10))
    query = Query(following(spark, streams.where, stream="latest"), tmp_path)
    query.run()
    assert query.rows == []
    streams.append("latest", numbers(10, 30))
    query.run()
    assert query.rows == numbers(10, 30)


def test_ledgers_are_followed(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    with bookkeeper.sync.connect(cluster.uri) as bk:
        writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        writer.append_many(numbers(0, 50))
        options = {"ledgers": writer.id, "startingOffsets": "earliest", "maxEntriesPerTrigger": 20}
        query = Query(following(spark, cluster.uri, **options), tmp_path)
        query.run()
        assert query.rows in (numbers(0, 49), numbers(0, 50)), "the last one may not be confirmed yet"
        writer.append_many(numbers(50, 70))
        writer.close(drain=True)
    query.run()
    assert query.rows == numbers(0, 70)
    assert max(map(len, query.batches.values())) <= 20


@pytest.mark.parametrize("harm", ["truncated", "made anew"])
def test_what_is_gone_is_an_error_or_left_out(spark: SparkSession, streams: Streams, tmp_path: Path, harm: str) -> None:
    name = harm.replace(" ", "-")
    streams.append(name, numbers(0, 200), roll=40)
    options = {"stream": name, "startingOffsets": "earliest"}
    strict = Query(following(spark, streams.where, maxRecordsPerTrigger=40, **options), tmp_path / "a")
    with pytest.raises(PySparkException, match="planned failure"):
        strict.run(fail=2)

    async def truncate(namespace: Namespace) -> None:
        segments = (await namespace.info(name)).segments
        await namespace.truncate(name, segments[-2].first)

    async def delete(namespace: Namespace) -> None:
        await namespace.delete(name)

    streams.do(truncate if harm == "truncated" else delete)
    if harm == "made anew":
        streams.append(name, numbers(500, 520))
    with pytest.raises(PySparkException, match=f"{name}: .*{harm}.*failOnDataLoss=false"):
        strict.run()
    lenient = Query(following(spark, streams.where, failOnDataLoss="false", **options), strict.checkpoint)
    lenient.run()
    assert lenient.rows[-1] == (b"record 000199" if harm == "truncated" else b"record 000519")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"stream": "nowhere"}, "there is no stream nowhere"),
        ({"stream": "once", "ledgers": "5"}, "ledgers: it is for ledgers"),
        ({"stream": "once", "startingOffsets": '{"other": -1}'}, "startingOffsets names other"),
        ({"ledgers": "all"}, "named one by one"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    spark: SparkSession, streams: Streams, cluster: LiveCluster, tmp_path: Path, options: dict[str, str], why: str
) -> None:
    uri = streams.where if "stream" in options else cluster.uri
    with pytest.raises(PySparkException, match=why) as caught:
        Query(following(spark, uri, **options), tmp_path).run()
    assert "Traceback (most" not in str(caught.value)


def test_a_query_waits_for_enough_and_tells_how_far_it_is(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """And retention keeps what it has not read."""
    streams.append("slow", numbers(0, 60), roll=20)
    options = {"stream": "slow", "startingOffsets": "earliest", "maxRecordsPerTrigger": 30, "minPollInterval": "100ms"}
    patient = {"minEntriesPerTrigger": 15, "maxTriggerDelay": "1000s", "sourceId": "dashboard"}
    seen: list[bytes] = []
    query = (
        following(spark, streams.where, **options, **patient)()
        .writeStream.foreachBatch(lambda batch, _: seen.extend(bytes(row[0]) for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )

    def behind() -> int | None:
        progress = query.lastProgress
        return None if progress is None else bookkeeper.spark.lag(streams.where, progress).get("slow")

    wait_until(lambda: behind() is not None and len(seen) + (behind() or 0) == 60, "lag and what was read add up")
    read = len(seen)
    assert 0 < read <= 60
    streams.append("slow", numbers(60, 500))
    wait_until(lambda: len(seen) == 500 or (behind() or 99) < 15, "so few are left that it waits")
    query.stop()
    assert sorted(seen) == numbers(0, len(seen))
    position = streams.do(lambda namespace: namespace.subscriptions("slow").get("dashboard"))
    assert position is not None
    assert position.segment > 0


def test_tasks_have_so_many_records_at_most(spark: SparkSession, streams: Streams, cluster: LiveCluster) -> None:
    streams.append("many", numbers(0, 300))
    frame = spark.read.format("bookkeeper").options(uri=streams.where, stream="many", maxRecordsPerPartition="60")
    sizes = frame.load().select("txid").rdd.glom().map(len).collect()
    assert sum(sizes) == 300
    assert max(sizes) <= 90, "an estimate from the average entry"
    ledger = cluster.write(numbers(0, 100))
    raw = spark.read.format("bookkeeper").options(uri=cluster.uri, ledgers=str(ledger), maxRecordsPerPartition="30")
    assert sorted(raw.load().rdd.glom().map(len).collect()) == [25, 25, 25, 25]


def test_a_run_that_ends_with_what_is_there_misses_a_stream_that_is_gone(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    for name in ("stays", "goes"):
        streams.append(name, numbers(0, 10))
    query = Query(following(spark, streams.where, streams="stays,goes", startingOffsets="earliest"), tmp_path)
    query.run()
    assert sorted(query.rows) == sorted(numbers(0, 10) * 2)
    streams.do(lambda namespace: namespace.delete("goes"))
    with pytest.raises(PySparkException, match="there is no stream goes"):
        query.run()


def test_a_stream_is_waited_for(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """By a read, and by a query, which then goes on without."""
    options = {"stream": "later", "waitForStream": "2min", "startingOffsets": "earliest"}
    frame = spark.read.format("bookkeeper").options(uri=streams.where, **options).load().select("payload")
    query = Query(following(spark, streams.where, **options), tmp_path)
    counts: list[int] = []
    tasks = [threading.Thread(target=lambda: counts.append(frame.count())), threading.Thread(target=query.run)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(2.0)
        assert task.is_alive(), "it has not failed, for it waits"

    streams.append_at_once("later", numbers(0, 10))
    for task in tasks:
        task.join()
    assert counts in ([0], [10]), "it was there when the first record was, or just before"
    again = spark.read.format("bookkeeper").options(uri=streams.where, **options).load().select("payload")
    for _ in range(2):
        assert sorted(bytes(row.payload) for row in again.collect()) == numbers(0, 10)
    query.run()
    assert query.rows == numbers(0, 10)
    with pytest.raises(PySparkException, match="there is no stream never"):
        spark.read.format("bookkeeper").options(uri=streams.where, stream="never", waitForStream="100ms").load().count()


# --- writing ---


def frame_of(spark: SparkSession, rows: list[tuple[str, bytes]], parts: int = 3) -> DataFrame:
    return spark.createDataFrame(rows, "stream string, payload binary").repartition(parts)


def leftovers(streams: Streams) -> list[str]:
    """Runs that are still there, and ledgers that are no segments."""

    async def find(namespace: Namespace) -> list[str]:
        found = []
        sinks = await namespace._tree.children(f"{namespace.path}/.sinks", fresh=True)
        for sink in sinks.names if sinks is not None else ():
            runs = await namespace._tree.children(f"{namespace.path}/.sinks/{sink}/staging", fresh=True)
            found += [f"{sink}: {run}" for run in (runs.names if runs is not None else ())]
        return found

    return streams.do(find)


def test_a_batch_write_is_visible_at_once_and_not_repeated(spark: SparkSession, streams: Streams) -> None:
    rows = [(("w1", "w2")[n % 2], payload) for n, payload in enumerate(numbers(0, 600))]
    counted = {"uri": streams.where, "commitTimeout": "60", "sinkId": "nightly", "epoch": "4", "compression": "lz4"}
    frame = frame_of(spark, rows)
    for _ in range(2):
        frame.write.format("bookkeeper").options(**counted).mode("append").save()
    for name in ("w1", "w2"):
        assert sorted(streams.payloads(name)) == sorted(payload for target, payload in rows if target == name)
    with pytest.raises(PySparkException, match="has published epoch 4: 3 comes too late"):
        frame.write.format("bookkeeper").options(**{**counted, "epoch": "3"}).mode("append").save()
    uncounted = frame.selectExpr("cast(payload as string) as value").write.format("bookkeeper")
    uncounted.options(uri=streams.where, stream="w3", commitTimeout="60").mode("append").save()
    assert sorted(streams.payloads("w3")) == numbers(0, 600)
    assert leftovers(streams) == []


def test_small_segments_of_a_batch_are_merged(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """In the order of the partitions; and those of a query, batch by batch."""

    def segments(name: str) -> int:
        return streams.do(lambda namespace: _segments_of(namespace, name))

    frame = spark.range(0, 900, 1, 6).selectExpr("format_string('record %06d', id) as value")
    for name, options, count in (("small", {}, 1), ("each", {"mergeTargetBytes": "0"}, 6)):
        writing = frame.write.format("bookkeeper").options(uri=streams.where, stream=name, **options)
        writing.mode("append").save()
        assert streams.payloads(name) == numbers(0, 900)
        assert segments(name) == count
    frame.write.format("bookkeeper").options(uri=streams.where, stream="small").mode("append").save()
    assert streams.payloads("small") == numbers(0, 900) * 2, "used twice"

    for _ in range(2):
        copying(spark, streams, "small", tmp_path)
    batches = len(list((tmp_path / "commits").glob("[0-9]*")))
    assert batches >= 2
    assert segments("small-copy") <= batches, "one each, though two tasks write"
    assert sorted(streams.payloads("small-copy")) == sorted(numbers(0, 900) * 2)
    assert leftovers(streams) == []


async def _segments_of(namespace: Namespace, name: str) -> int:
    return len((await namespace.info(name)).segments)


def test_rows_bring_their_transaction_ids(spark: SparkSession, streams: Streams) -> None:
    frame = spark.range(0, 200, 1, 4).selectExpr("id * 10 as txid", "format_string('record %06d', id) as payload")
    options = {"uri": streams.where, "stream": "numbered"}
    frame.write.format("bookkeeper").options(**options).mode("append").save()
    with pytest.raises(
        PySparkException, match=r"stream numbered, row 1 of the task: transaction id \d+ comes after 1990"
    ):
        frame.write.format("bookkeeper").options(**options).mode("append").save()
    frame.selectExpr("txid + 2000 as txid", "payload").write.format("bookkeeper").options(**options).mode(
        "append"
    ).save()
    read = spark.read.format("bookkeeper").options(**options, columns="txid,sequence_id").load()
    assert [row.txid for row in read.orderBy("sequence_id").collect()] == [10 * n for n in range(400)]
    fallen = frame.repartition(1).selectExpr("100000 - txid as txid", "payload").write.format("bookkeeper")
    with pytest.raises(PySparkException, match=r"row 2 of the task: transaction id .* sort the rows by txid"):
        fallen.options(uri=streams.where, stream="falling").mode("append").save()


def test_appended_rows_are_visible_at_once_and_perhaps_twice(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """A task that is killed had appended some; the write that is repeated appends all."""
    rows, die = 200, tmp_path / "die"

    def killed_once(batches: Iterator[Any]) -> Iterator[Any]:
        """Rows that are too large to wait in a buffer of Spark's. Before the last ones it waits until it is to die."""
        for batch in batches:
            ids = batch.column(0).to_pylist()
            if ids[0] >= rows - 20 and not die.with_suffix(".done").exists():
                wait_until(die.exists, "it may die")
                die.rename(die.with_suffix(".done"))
                os.kill(os.getpid(), signal.SIGKILL)
            yield pa.RecordBatch.from_pydict({"payload": [b"record %06d" % n + bytes(10_000) for n in ids]})

    frame = spark.range(0, rows, 1, 1).mapInArrow(killed_once, "payload binary")
    options = {"uri": streams.where, "stream": "live", "delivery": "at-least-once"}
    early: list[bytes] = []

    def write() -> None:
        frame.write.format("bookkeeper").options(**options).mode("append").save()

    def there() -> list[bytes]:
        if not streams.do(lambda namespace: namespace.exists("live")):
            return []
        return [payload[:13] for payload in streams.payloads("live")]

    def watch() -> None:
        wait_until(lambda: len(there()) >= 20, "rows are there while their task is running")
        early.extend(there())
        die.touch()

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    watching = threading.Thread(target=watch)  # not the write: Spark knows the source in this thread only
    try:
        watching.start()
        with pytest.raises(Py4JJavaError, match="Python worker exited unexpectedly"):
            write()
        watching.join()
        write()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(early) >= 20
    found = there()
    assert set(found) == set(numbers(0, rows))
    assert all(found.count(row) == 2 for row in early), "at least once, not exactly"
    assert found[-rows:] == numbers(0, rows), "in order"


def test_a_query_appends_to_several_streams(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Its tasks want the same ones at once."""
    streams.append("mixed", numbers(0, 120), roll=40)
    frame = following(spark, streams.where, stream="mixed", startingOffsets="earliest")().repartition(2)
    routed = frame.selectExpr("payload", "concat('live-', substring(cast(payload as string), -1, 1) % 2) as stream")
    for _ in range(2):
        query = routed.writeStream.format("bookkeeper").options(uri=streams.where, delivery="at-least-once")
        query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    for odd in range(2):
        assert sorted(streams.payloads(f"live-{odd}")) == numbers(0, 120)[odd::2]
    assert leftovers(streams) == []


def test_overwriting_replaces_what_is_there_at_once(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """By a batch write, and by each batch of a query with outputMode complete; not by one without rows."""
    streams.append("whole", numbers(0, 50), roll=20)
    streams.append("beside", numbers(0, 5))
    options = {"uri": streams.where, "commitTimeout": "60"}
    frame = frame_of(spark, [("whole", payload) for payload in numbers(50, 80)])
    for _ in range(2):
        frame.write.format("bookkeeper").options(**options, sinkId="daily", epoch="1").mode("overwrite").save()
    assert sorted(streams.payloads("whole")) == numbers(50, 80)
    assert streams.payloads("beside") == numbers(0, 5)
    with pytest.raises(PySparkException, match="no rows to overwrite anything with"):
        frame.limit(0).write.format("bookkeeper").options(**options).mode("overwrite").save()
    assert sorted(streams.payloads("whole")) == numbers(50, 80)

    for sum_of in (30, 31):
        counted = following(spark, streams.where, stream="whole", startingOffsets="earliest")().groupBy().count()
        query = counted.selectExpr("cast(count as string) as payload").writeStream.format("bookkeeper")
        query = query.options(stream="total", **options).outputMode("complete").trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
        assert streams.payloads("total") == [b"%d" % sum_of]
        streams.append("whole", numbers(80, 81))


def test_a_batch_write_that_fails_leaves_nothing(spark: SparkSession, streams: Streams) -> None:
    rows = [("broken", payload) for payload in numbers(0, 50)] + [("broken", bytes(2 << 20))]
    with pytest.raises(PySparkException, match=r"stream broken, row .*2097152 bytes are too many"):
        frame_of(spark, rows).write.format("bookkeeper").options(uri=streams.where).mode("append").save()
    assert not streams.do(lambda namespace: namespace.exists("broken"))

    def collected() -> bool:
        """Other tasks of the write may have begun after it was aborted: what those leave is collected."""
        streams.do(lambda namespace: namespace.collect_staged(lost_after=-1))
        return leftovers(streams) == []

    wait_until(collected, "nothing is left of the write")


def copying(spark: SparkSession, streams: Streams, source: str, checkpoint: Path, **options: str) -> None:
    """A query from one stream to another, to the end of what is there."""
    frame = following(
        spark, streams.where, stream=source, startingOffsets="earliest", maxRecordsPerTrigger=100
    )().repartition(2)
    writing = frame.writeStream.format("bookkeeper").options(
        uri=streams.where, stream=f"{source}-copy", commitTimeout="60", **options
    )
    query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_a_query_writes_each_record_once(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Also if its driver dies after a batch was published, and before Spark knew."""
    streams.append("source", numbers(0, 250))
    copying(spark, streams, "source", tmp_path / "state")
    assert sorted(streams.payloads("source-copy")) == numbers(0, 250)
    commits = sorted((tmp_path / "state" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    streams.append("source", numbers(250, 300))
    copying(spark, streams, "source", tmp_path / "state")
    assert sorted(streams.payloads("source-copy")) == numbers(0, 300)
    assert leftovers(streams) == []


def test_a_checkpoint_that_was_put_back_is_refused(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Once by the number of the epoch, once by what it was made from."""
    streams.append("back", numbers(0, 10))
    copying(spark, streams, "back", tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "old")
    shutil.copytree(tmp_path / "state", tmp_path / "older")
    streams.append("back", numbers(10, 20))
    copying(spark, streams, "back", tmp_path / "state")
    streams.append("back", numbers(20, 30))
    with pytest.raises(PySparkException, match="with other data"):
        copying(spark, streams, "back", tmp_path / "old")
    copying(spark, streams, "back", tmp_path / "state")
    with pytest.raises(PySparkException, match="comes too late"):
        copying(spark, streams, "back", tmp_path / "older")
    assert sorted(streams.payloads("back-copy")) == numbers(0, 30)
    assert leftovers(streams) == []


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ("payload, 1 as n", {"stream": "x"}, "n cannot be written"),
        ("payload", {}, "give the option stream"),
        ("1 as payload", {"stream": "x"}, "binary or string"),
        ("payload", {"stream": "x", "sinkId": "y"}, "go together"),
        ("payload", {"stream": "x", "strem": "y"}, "did you mean stream"),
        ("payload", {"stream": "x", "delivery": "at-least-once", "sinkId": "a", "epoch": "1"}, "nothing is counted"),
        ("cast(null as binary) as payload", {"stream": "x"}, "rows have null"),
    ],
)
def test_wrong_writes_are_told_in_one_line(
    spark: SparkSession, streams: Streams, columns: str, options: dict[str, str], why: str
) -> None:
    frame = frame_of(spark, [("x", b"y")], 1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=why) as caught:
        frame.write.format("bookkeeper").options(uri=streams.where, **options).mode("append").save()
    assert "Traceback (most" not in str(caught.value)


@pytest.fixture(autouse=True)
def ended(spark: SparkSession) -> Iterator[None]:
    """No query is left running."""
    yield
    for query in spark.streams.active:
        query.stop()
