"""Spark keeps one plan for each load (spec streams §16, F3 and F18). Whatever the features of a read: each use of one
DataFrame gets its own rows, and none of another's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import bookkeeper.spark
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.policy import WritePolicy

from .support import LiveCluster
from .test_streams import Streams, numbers

pytestmark = pytest.mark.timeout(600)

COUNT = 400


@dataclass(frozen=True)
class Data:
    """What is read."""

    ledger: int
    other: int
    uri: str
    streams: str


@pytest.fixture(scope="module")
def data(spark: SparkSession, cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Data:
    shape = {"password": b"p", "custom_metadata": {"kind": b"twice"}}
    ledgers = [cluster.write(numbers(0, COUNT), **shape) for _ in range(2)]
    streams = Streams(cluster, "/twice")

    async def write(namespace: Namespace) -> None:
        policy = WritePolicy(buffer_bytes=100, roll_records=90)
        for name in ("timed", "archived"):
            async with namespace.open_writer(name, create=True, policy=policy) as writer:
                for n, payload in enumerate(numbers(0, COUNT)):
                    await writer.append(payload, txid=1000 + 10 * n)

    streams.do(write)
    keyed = spark.createDataFrame([(str(n % 7), str(n)) for n in range(COUNT)], "key string, payload string")
    keyed.write.format("bookkeeper").options(uri=streams.where, stream="keyed").mode("append").save()
    archive = str(tmp_path_factory.mktemp("archive"))
    done = bookkeeper.spark.offload(spark, streams.where, archive, stream="archived", delete=True, apply=True)
    assert done.deleted
    return Data(ledgers[0], ledgers[1], cluster.uri, streams.where)


Feature = Callable[[Data], tuple[dict[str, Any], tuple[str, ...], int]]
"""Options, the columns that tell rows apart (the last one is what the uses differ in), and how many rows there are."""


def ledger(rows: int = COUNT, **options: Any) -> Feature:
    given = {"password": "p", **options}
    return lambda data: ({"uri": data.uri, "ledgers": data.ledger, **given}, ("ledger_id", "entry_id"), rows)


def ledgers(rows: int, **options: Any) -> Feature:
    return lambda data: ({"uri": data.uri, "password": "p", **options}, ("ledger_id", "entry_id"), rows)


def stream(rows: int = COUNT, name: str = "timed", **options: Any) -> Feature:
    named = {} if "streams" in options or "streamPattern" in options else {"stream": name}
    return lambda data: ({"uri": data.streams, **named, **options}, ("stream", "sequence_id"), rows)


def kafka(rows: int = COUNT, name: str = "timed", **options: Any) -> Feature:
    given = {"stream": name, "rowMode": "kafka", **options}
    return lambda data: ({"uri": data.streams, **given}, ("topic", "offset"), rows)


FEATURES: dict[str, Feature] = {
    "a ledger": ledger(),
    "conditions on entries": ledger(300, where="entry_id >= 100"),
    "conditions on ledgers": lambda data: (
        {"uri": data.uri, "ledgers": "all", "password": "p", "where": f"ledger_id in ({data.ledger}, {data.other})"},
        ("ledger_id", "entry_id"),
        2 * COUNT,
    ),
    "bounds of entries": ledger(51, entriesFrom=50, entriesTo=100),
    "columns of ledgers": ledger(columns="entry_id,ledger_id,bookies"),
    "every copy": ledger(verify="all", columns="ledger_id,entry_id,digest_ok,bad_copies,payload"),
    "passwords of the metadata": lambda data: (
        {"uri": data.uri, "ledgers": f"{data.ledger},{data.other}", "passwords": "metadata"},
        ("ledger_id", "entry_id"),
        2 * COUNT,
    ),
    "custom metadata": ledgers(2 * COUNT, **{"ledgerMetadata.kind": "twice"}),
    "parts of ledgers": ledger(minPartitions=4, maxRecordsPerPartition=90, maxBatchRows=7),
    "a stream": stream(),
    "several streams": stream(2 * COUNT, streams="timed,archived"),
    "a pattern": stream(2 * COUNT, streamPattern="timed|arch.*"),
    "places": stream(COUNT - 90, startingOffsets='{"timed": {"l": 2, "e": 0}}'),
    "an end": stream(90, endingOffsets='{"timed": {"l": 2, "e": 0}}'),
    "times": stream(26, startingTimestamp=1231, endingTimestamp=1500),
    "a time for each": stream(78, endingOffsetsByTimestamp='{"timed": 1777}'),
    "transaction ids": stream(26, startingTxid=1231, endingTxid=1500),
    "conditions on records": stream(26, where="txid > 1231 and txid < 1500"),
    "an archive": stream(name="archived"),
    "nothing but an archive": stream(name="archived", readFrom="archive"),
    "columns of streams": stream(columns="sequence_id,stream,dlsn,txid", txidAsTimestamp="false"),
    "keys": stream(name="keyed", columns="stream,sequence_id,key,headers,payload"),
    "as Kafka": kafka(),
    "as Kafka, with headers": kafka(name="keyed", includeHeaders="true"),
    "as Kafka, from files": kafka(name="archived"),
    "parts of streams": stream(minPartitions=4, maxRecordsPerPartition=50, maxBatchRows=7),
    "the table of ledgers": lambda data: (
        {"uri": data.uri, "table": "ledgers", "ledgersFrom": data.ledger, "ledgersTo": data.other},
        ("state", "ledger_id"),
        data.other - data.ledger + 1,
    ),
}


def load(spark: SparkSession, options: dict[str, Any]) -> DataFrame:
    return spark.read.format("bookkeeper").options(**{key: str(value) for key, value in options.items()}).load()


@pytest.mark.parametrize("feature", FEATURES)
def test_each_use_of_a_dataframe_gets_its_rows(spark: SparkSession, data: Data, feature: str) -> None:
    options, keys, count = FEATURES[feature](data)
    rows = [tuple(row) for row in load(spark, options).select(*keys).collect()]
    assert len(set(rows)) == len(rows) == count
    last = sorted(row[-1] for row in rows)
    cut = last[len(last) // 3]
    low = sum(value < cut for value in last)
    is_low, is_high = f"a.{keys[-1]} < {cut}", f"a.{keys[-1]} >= {cut}"
    same = " and ".join(f"a.{key} = b.{key}" for key in keys)

    frame = load(spark, options)
    frame.createOrReplaceTempView("twice")
    uses = [
        f"select count(*) from twice a where {is_low}",
        "select count(*) from twice",
        f"select count(*) from twice a where {is_high}",
        f"select count(*) from twice a join twice b on {same} where {is_low}",
        f"select count(*) from twice a left anti join (select * from twice a where {is_low}) b on {same}",
    ]
    found = spark.sql("select " + ", ".join(f"({use})" for use in uses)).collect()[0]
    assert tuple(found) == (low, count, count - low, low, count - low)
    few, rest = (frame.alias("a").where(condition).select(*keys) for condition in (is_low, is_high))
    assert sorted(map(tuple, few.collect())) == sorted(row for row in rows if row[-1] < cut)
    assert sorted(map(tuple, few.union(rest).collect())) == sorted(rows)
    spark.catalog.dropTempView("twice")


@pytest.mark.parametrize("kind", ["ledger", "stream", "kafka"])
def test_each_use_in_a_query_gets_its_rows(spark: SparkSession, data: Data, tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {
        "ledger": {"uri": data.uri, "ledgers": data.ledger, "password": "p", "maxEntriesPerTrigger": 150},
        "stream": {"uri": data.streams, "stream": "archived", "maxRecordsPerTrigger": 150},
        "kafka": {"uri": data.streams, "stream": "timed", "rowMode": "kafka"},
    }[kind]
    key = {"ledger": "entry_id", "stream": "sequence_id", "kafka": "offset"}[kind]
    texts = {name: str(value) for name, value in options.items()}
    frame = spark.readStream.format("bookkeeper").options(startingOffsets="earliest", **texts).load()
    both = frame.where(f"{key} < 100").union(frame.where(f"{key} >= 300"))
    seen: dict[str, list[int]] = {}

    def run(name: str, part: DataFrame) -> None:
        def take(batch: DataFrame, _number: int) -> None:
            seen.setdefault(name, []).extend(row[0] for row in batch.select(key).collect())

        writing = part.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / name))
        writing.trigger(availableNow=True).start().awaitTermination()

    run("both", both)
    run("few", frame.where(f"{key} < 100"))
    run("all", frame)
    assert {name: sorted(found) for name, found in seen.items()} == {
        "both": [*range(100), *range(300, COUNT)],
        "few": list(range(100)),
        "all": list(range(COUNT)),
    }
