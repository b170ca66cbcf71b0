"""Streams in Spark on a live cluster: read once, followed, written (docs/spark.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import bookkeeper.sync
from bookkeeper.streams.namespace import Namespace, open_namespace
from bookkeeper.streams.policy import WritePolicy

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


@pytest.fixture(autouse=True)
def ended(spark: SparkSession) -> Iterator[None]:
    """No query is left running."""
    yield
    for query in spark.streams.active:
        query.stop()
