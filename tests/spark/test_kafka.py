"""A job that was written for Spark's Kafka source and sink runs on streams: other format, other options, same rows.

The jobs are those of Spark's own *Structured Streaming + Kafka Integration Guide*: batch and streaming, source and
sink, with a topic for all rows and with one for each, with headers. `Places` holds all that differs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from .support import LiveCluster
from .test_streams import Streams

pytestmark = pytest.mark.timeout(300)

KAFKA_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
MESSAGES = "key string, value string, headers array<struct<key:string,value:binary>>, timestamp timestamp"
WHEN = datetime(2021, 3, 4, 5, 6, 7, 89000, tzinfo=UTC)


class Places(NamedTuple):
    """What a job says of where its data are. For Kafka: format kafka, and other names of options."""

    format: str
    common: dict[str, str]

    def source(self, **options: str) -> dict[str, str]:
        return {**self.common, "rowMode": "kafka", **options}

    def sink(self, **options: str) -> dict[str, str]:
        return {**self.common, "commitTimeout": "60", **options}


@pytest.fixture(scope="module")
def streams(cluster: LiveCluster) -> Streams:
    return Streams(cluster, "/kafka")


@pytest.fixture(scope="module")
def places(streams: Streams) -> Places:
    return Places("bookkeeper", {"uri": streams.where})


def read(spark: SparkSession, places: Places, **options: str) -> DataFrame:
    return spark.read.format(places.format).options(**places.source(**options)).load()


def strings(frame: DataFrame) -> list[tuple[str | None, str | None]]:
    rows = frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    return sorted(((row.key, row.value) for row in rows), key=str)


def test_batch_jobs(spark: SparkSession, places: Places) -> None:
    messages = [(None if n % 5 == 0 else f"k{n}", f"v{n}") for n in range(40)]
    df = spark.createDataFrame(messages, "key string, value string")
    # Write key-value data to a specific topic, and then to topics that are named in the data.
    df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").write.format(places.format).options(
        **places.sink(stream="topic1")
    ).mode("append").save()
    df.selectExpr("concat('topic', length(value)) as topic", "key", "value").write.format(places.format).options(
        **places.sink()
    ).mode("append").save()

    one = read(spark, places, stream="topic1", startingOffsets="earliest", endingOffsets="latest")
    assert one.schema.simpleString() == spark.createDataFrame([], KAFKA_SCHEMA).schema.simpleString()
    assert strings(one) == sorted(messages, key=str)
    rows = one.orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(40))
    assert {(row.topic, row.partition) for row in rows} == {("topic1", 0)}
    several = read(spark, places, streams="topic2,topic3")
    assert strings(several.where("topic = 'topic2'")) == sorted((m for m in messages if len(m[1]) == 2), key=str)
    assert strings(read(spark, places, streamPattern="topic[23]")) == sorted(messages, key=str)


def test_streaming_jobs(spark: SparkSession, places: Places, tmp_path: Path) -> None:
    """From one topic to others, with headers, by a query that copies all columns but the topic."""
    headers = [("trace", bytearray(b"1")), ("gone", None)]
    given = [("a", "x", headers, WHEN), ("b", None, None, None), (None, "y", [], None)]
    frame = spark.createDataFrame(given, MESSAGES).coalesce(1)
    frame.write.format(places.format).options(**places.sink(stream="input")).mode("append").save()

    df = (
        spark.readStream.format(places.format)
        .options(**places.source(stream="input", includeHeaders="true", startingOffsets="earliest"))
        .load()
    )
    written = df.drop("topic").writeStream.format(places.format).options(**places.sink(stream="output"))
    query = written.option("checkpointLocation", str(tmp_path / "a")).trigger(availableNow=True).start()
    query.awaitTermination()
    routed = df.selectExpr("coalesce(CAST(key AS STRING), 'none') AS topic", "key", "value").writeStream
    routed = routed.format(places.format).options(**places.sink()).option("checkpointLocation", str(tmp_path / "b"))
    routed.trigger(availableNow=True).start().awaitTermination()

    ours = read(spark, places, stream="output", includeHeaders="true").orderBy("offset").collect()
    found = [(row.key, row.value, row.headers and [tuple(each) for each in row.headers]) for row in ours]
    assert found == [(b"a", b"x", headers), (b"b", None, None), (None, b"y", None)]
    times = [row.timestamp.astimezone(UTC) for row in ours]
    assert times[0] == WHEN
    source = read(spark, places, stream="input").orderBy("offset").collect()
    assert times == [row.timestamp.astimezone(UTC) for row in source], "copied with the record"
    assert [row.topic for row in read(spark, places, streams="a,b,none").orderBy("topic").collect()] == [
        "a",
        "b",
        "none",
    ]


def test_native_columns_have_the_key_too(spark: SparkSession, streams: Streams, places: Places) -> None:
    frame = spark.createDataFrame([("k", "v")], "key string, payload string")
    frame.write.format("bookkeeper").options(**places.sink(stream="native")).mode("append").save()
    options = {"uri": streams.where, "stream": "native"}
    native = spark.read.format("bookkeeper").options(**options)
    assert native.load().select("payload").collect() == [(b"v",)]
    assert native.option("columns", "key,payload,headers").load().collect() == [(b"k", b"v", None)]
    assert native.schema("key binary").load().collect() == [(b"k",)]


def test_rows_that_would_lose_their_key_are_refused(spark: SparkSession, streams: Streams, places: Places) -> None:
    streams.append("raw", [b"KV\x01 is a value, for the stream has no keys"])
    assert read(spark, places, stream="raw", includeHeaders="true").collect()[0][:2] == (
        None,
        b"KV\x01 is a value, for the stream has no keys",
    )
    frame = spark.createDataFrame([("k", "v")], "key string, value string")
    with pytest.raises(PySparkException, match="stream raw has records without keys") as caught:
        frame.write.format("bookkeeper").options(**places.sink(stream="raw")).mode("append").save()
    assert "Traceback (most" not in str(caught.value)
    with pytest.raises(PySparkException, match="what Kafka's source and sink call so is streams here"):
        read(spark, places, subscribe="topic1").collect()
