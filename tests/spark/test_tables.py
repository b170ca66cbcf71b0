"""Metadata as tables, on a live cluster and in Spark (docs/spark.md)."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bookkeeper.streams.namespace import Namespace

from .support import LiveCluster
from .test_streams import Streams, numbers

pytestmark = pytest.mark.timeout(300)


def table(spark: SparkSession, uri: str, name: str, **options: str) -> DataFrame:
    return spark.read.format("bookkeeper").options(uri=uri, table=name, **options).load()


def test_ledgers_fragments_and_bookies(spark: SparkSession, cluster: LiveCluster) -> None:
    ids = [cluster.write(numbers(0, count), custom_metadata={"kind": b"tabled"}) for count in (0, 7, 20)]
    ledgers = table(spark, cluster.uri, "ledgers", **{"ledgerMetadata.kind": "tabled"})
    rows = ledgers.orderBy("ledger_id").collect()
    assert [(row.ledger_id, row.state, row.entries, row.bytes) for row in rows] == [
        (ledger_id, "closed", count, count * 13) for ledger_id, count in zip(ids, (0, 7, 20), strict=True)
    ]
    assert all(bytes(row.custom_metadata["kind"]) == b"tabled" and row.created is not None for row in rows)
    assert ledgers.where("entries = 7").count() == 1, "used twice"

    fragments = table(spark, cluster.uri, "fragments", ledgers=f"{ids[2]}").collect()
    metadata = cluster.metadata(ids[2])
    assert [(row.first_entry, row.last_entry, row.bookies) for row in fragments] == [
        (0, 19, [str(bookie) for bookie in metadata.ensembles[0]])
    ]
    bookies = table(spark, cluster.uri, "bookies", columns="bookie,state").orderBy("bookie").collect()
    assert bookies == [(name, "writable") for name in sorted(one.id for one in cluster.bookies)]


def test_streams_segments_and_sinks(spark: SparkSession, cluster: LiveCluster) -> None:
    streams = Streams(cluster, "/tabled")
    streams.append("a", numbers(0, 100), roll=30)
    streams.append("b/c", numbers(0, 5))

    async def truncate(namespace: Namespace) -> None:
        await namespace.truncate("a", (await namespace.info("a")).segments[1].first)

    streams.do(truncate)
    frame = spark.createDataFrame([("b/c", b"x")], "stream string, payload binary")
    counted = {"uri": streams.where, "sinkId": "nightly", "epoch": "4"}
    frame.write.format("bookkeeper").options(**counted).mode("append").save()

    found = table(spark, streams.where, "streams").orderBy("stream").collect()
    infos = {row.stream: row for row in found}
    assert {name: row.records for name, row in infos.items()} == {"a": 100, "b/c": 6}
    segments = table(spark, streams.where, "segments").orderBy("stream", "segment").collect()
    of_a = [row for row in segments if row.stream == "a"]
    assert len(of_a) == infos["a"].segments
    assert [row.truncation for row in of_a[:2]] == ["truncated", "active"]
    assert [row.sequence_id for row in of_a] == [sum(row.records for row in of_a[:n]) for n in range(len(of_a))]
    assert {row.state for row in segments} == {"completed"}
    sinks = table(spark, streams.where, "sinks").collect()
    assert [(row.sink, row.epoch, row.state, row.streams) for row in sinks] == [("nightly", 4, "done", ["b/c"])]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"table": "tables"}, "is none of ledgers, fragments, bookies, streams, segments, sinks"),
        ({"table": "bookies", "ledgers": "5"}, "ledgers: it does not go with table=bookies"),
        ({"table": "ledgers", "columns": "ledger"}, "has no column 'ledger'"),
    ],
)
def test_what_is_wrong(spark: SparkSession, cluster: LiveCluster, options: dict[str, str], why: str) -> None:
    with pytest.raises(PySparkException, match=why):
        spark.read.format("bookkeeper").options(uri=cluster.uri, **options).load().count()
