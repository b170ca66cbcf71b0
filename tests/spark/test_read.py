"""The data source on a live cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StructField, StructType

import bookkeeper.spark
import bookkeeper.sync
from bookkeeper.config import ClientConfiguration
from bookkeeper.spark import read_ledgers
from bookkeeper.types import DigestType

from .support import CHECKSUM_SQL, LiveCluster, checksum, corrupt


def payloads(count: int, tag: str = "") -> list[bytes]:
    return [b"%s %d " % (tag.encode(), n) + bytes([n & 0xFF]) * (n % 97) for n in range(count)]


def read(spark: SparkSession, cluster: LiveCluster, ledgers: object, **options: object) -> DataFrame:
    return read_ledgers(spark, cluster.uri, str(ledgers), **options)


def contents(frame: DataFrame) -> list[bytes]:
    return [bytes(row.payload) for row in frame.orderBy("ledger_id", "entry_id").select("payload").collect()]


def failure(action: Callable[[], object]) -> str:
    """What the driver is told: one line of ours, no traceback of a worker."""
    with pytest.raises(PySparkException) as caught:
        action()
    text = str(caught.value)
    assert "Traceback" not in text
    return text


def silent(cluster: LiveCluster) -> bookkeeper.sync.BookKeeper:
    """A client whose writers do not announce their LAC when they are quiet: so a reader sees what the next entry
    confirms, however long it takes until it looks."""
    return bookkeeper.sync.connect(cluster.uri, config=ClientConfiguration(explicitLacInterval=0))


def test_every_column_of_every_entry(spark: SparkSession, cluster: LiveCluster) -> None:
    data = payloads(5000)
    ledger_id = cluster.write(data)
    rows = read(spark, cluster, ledger_id).orderBy("entry_id").collect()
    assert [row.entry_id for row in rows] == list(range(5000))
    assert {row.ledger_id for row in rows} == {ledger_id}
    assert [bytes(row.payload) for row in rows] == data
    total = 0
    for row, payload in zip(rows, data, strict=True):
        total += len(payload)
        assert row.length == total
        assert row.last_confirmed < row.entry_id
    ensemble = cluster.metadata(ledger_id).last_ensemble[1]
    more = read(spark, cluster, ledger_id, columns="entry_id,bookies,bad_copies,digest_ok", verify="all")
    for row in more.orderBy("entry_id").limit(6).collect():
        first = row.entry_id % 3
        assert row.bookies == [*ensemble[first:], *ensemble[:first]]
        assert row.bad_copies == []
        assert row.digest_ok


@pytest.mark.parametrize("digest", list(DigestType))
def test_every_digest_and_striped_ledgers(spark: SparkSession, cluster: LiveCluster, digest: DigestType) -> None:
    data = payloads(3000, digest.value)
    whole = cluster.write(data, digest=digest, password=b"secret")
    striped = cluster.write(data, digest=digest, password=b"secret", ensemble_size=4, write_quorum=2)
    for ledger_id in (whole, striped):
        assert contents(read(spark, cluster, ledger_id, password="secret")) == data


def test_entries_of_all_sizes_in_small_batches(spark: SparkSession, cluster: LiveCluster) -> None:
    data = [bytes([n & 0xFF]) * size for n, size in enumerate([0, 1, 100_000, 7, 0, 3_000_000, 5, 5, 5, 4096, 4095, 0])]
    ledger_id = cluster.write(data)
    options = {"maxBatchBytes": "64k", "maxBatchRows": 2, "targetPartitionBytes": "1m", "readConcurrency": 2}
    assert contents(read(spark, cluster, ledger_id, **options)) == data
    assert contents(read(spark, cluster, ledger_id, **{"bk.protocol": "v3"})) == data


def test_ledgers_by_list_range_and_custom_metadata(spark: SparkSession, cluster: LiveCluster) -> None:
    teams = [b"b", b"a"] * 3
    made = [cluster.write([b"%d" % n], custom_metadata={"team": team, "run": b"7"}) for n, team in enumerate(teams)]
    empty = cluster.write([])

    def found(**options: object) -> list[int]:
        options = {"uri": cluster.uri, **options}
        frame = spark.read.format("bookkeeper").options(**{k: str(v) for k, v in options.items()}).load()
        return [row.ledger_id for row in frame.select("ledger_id").distinct().orderBy("ledger_id").collect()]

    assert found(ledgers=f"{made[0]},{made[2]},{empty}") == [made[0], made[2]]
    assert found(ledgers=f"{made[1]}-{made[3]}") == made[1:4]
    assert found(ledgersFrom=made[4], ledgersTo=empty + 1000) == made[4:]
    mine = {"ledgersFrom": made[0], "ledgerMetadata.team": "a"}
    assert found(**mine) == made[1::2]
    assert found(**mine, **{"ledgerMetadata.run": "8"}) == []
    assert spark.read.format("bookkeeper").option("uri", cluster.uri).load(str(made[0])).count() == 1
    spark.sql(f"create temporary view v using bookkeeper options (uri '{cluster.uri}', ledgers '{made[0]}')")
    assert spark.sql("select cast(payload as string) as text from v").collect()[0].text == "0"


def test_columns_and_schema(spark: SparkSession, cluster: LiveCluster) -> None:
    ledger_id = cluster.write(payloads(10))
    frame = read(spark, cluster, ledger_id, columns="payload, entry_id")
    assert frame.columns == ["payload", "entry_id"]
    assert frame.count() == 10
    reader = spark.read.format("bookkeeper").option("uri", cluster.uri)
    assert reader.schema("payload binary, ledger_id bigint").load(str(ledger_id)).columns == ["payload", "ledger_id"]
    wrong = reader.schema("payload string").load(str(ledger_id))
    assert "cannot be read as string" in failure(wrong.count)


def test_work_is_split_by_bytes_and_fragments_and_small_ledgers_are_packed(
    spark: SparkSession, cluster: LiveCluster
) -> None:
    def partitions(**options: object) -> int:
        return read(spark, cluster, **options).rdd.getNumPartitions()

    large = cluster.write([bytes(10_000)] * 1000)
    assert partitions(ledgers=large) == 1
    assert partitions(ledgers=large, targetPartitionBytes="2m") == 5
    assert partitions(ledgers=large, minPartitions=8) >= 8
    small = [cluster.write([b"x"] * 10) for _ in range(6)]
    assert partitions(ledgers=f"{small[0]}-{small[-1]}") == 1


def test_conditions_at_load_time_decide_what_is_read(spark: SparkSession, cluster: LiveCluster) -> None:
    data = payloads(4000)
    first = cluster.write(data)
    second = cluster.write(data)
    both = f"{first}-{second}"

    def where(text: str, ledgers: str = both, **options: object) -> DataFrame:
        return read(spark, cluster, ledgers, where=text, **options)

    one = where(f"ledger_id = {second} and entry_id >= 100 and entry_id < 200", minPartitions=8)
    assert 8 <= one.rdd.getNumPartitions() <= 16
    assert contents(one) == data[100:200]
    some = where(f"ledger_id = {first} and entry_id in (5, 6, 3999, 70000)")
    assert contents(some) == [*data[5:7], data[3999]]
    assert where("ledger_id < 0").count() == 0
    # Nothing else is even planned: a password that fits only one of them does no harm to the other.
    secret = cluster.write(data, password=b"p")
    assert where(f"ledger_id = {second}", f"{second},{secret}").count() == 4000
    assert read(spark, cluster, f"{second},{secret}", passwords="metadata").count() == 8000
    assert read(spark, cluster, f"{second},{secret}", passwords=f'{{"{secret}": "p"}}').count() == 8000


def test_a_dataframe_used_twice_gives_each_use_its_rows(spark: SparkSession, cluster: LiveCluster) -> None:
    """Spark keeps one plan for each load. Nothing a query does may change what another one reads."""
    data = payloads(4000)
    ledger_id = cluster.write(data)
    bookkeeper.spark.enable(spark)
    for options in (
        {},
        {"where": "entry_id >= 0"},
        {"columns": "entry_id,length"},
        {"verify": "all"},
        {"minPartitions": 4},
    ):
        frame = read(spark, cluster, ledger_id, **options)
        frame.createOrReplaceTempView("twice")
        few, some = frame.where("entry_id < 10"), frame.where("entry_id >= 100 and entry_id < 120")
        assert (few.count(), frame.count(), some.count(), few.count()) == (10, 4000, 20, 10)
        assert few.union(some).count() == 30
        assert few.join(frame.where("entry_id < 5").select("entry_id"), "entry_id", "left_anti").count() == 5
        assert few.alias("a").join(some.alias("b"), F.expr("a.entry_id + 100 = b.entry_id")).count() == 10
        query = "select (select count(*) from twice where entry_id < 10), (select count(*) from twice)"
        assert tuple(spark.sql(query).collect()[0]) == (10, 4000)
        cached = frame.cache()
        assert (cached.where("entry_id = 7").count(), cached.limit(3).count(), cached.distinct().count()) == (
            1,
            3,
            4000,
        )
        cached.unpersist()
    spark.catalog.dropTempView("twice")


def test_the_first_action_fixes_what_a_dataframe_reads(spark: SparkSession, cluster: LiveCluster) -> None:
    with silent(cluster) as bk, bk.create_ledger() as writer:
        writer.append_many([b"x"] * 10)
        writer.append(b"carries the confirmation of those before")
        frame = read(spark, cluster, writer.id)
        assert frame.count() == 10
        writer.append_many([b"y"] * 10)
        writer.append(b"carries the confirmation of those before")
        assert frame.count() == 10
        assert read(spark, cluster, writer.id).count() >= 21


def test_what_ledgers_cannot_be_is_told_in_one_line(spark: SparkSession, cluster: LiveCluster) -> None:
    ledger_id = cluster.write(payloads(10))
    options = f"uri '{cluster.uri}', ledgers '{ledger_id}'"
    assert "CREATE TEMPORARY VIEW" in failure(lambda: spark.sql(f"create table t using bookkeeper options ({options})"))
    frame = read(spark, cluster, ledger_id)
    assert "length cannot be written" in failure(
        lambda: frame.write.format("bookkeeper").option("uri", cluster.uri).mode("append").save()
    )
    payload = frame.select("payload")
    assert "give the option stream" in failure(
        lambda: payload.write.format("bookkeeper").option("uri", cluster.uri).mode("append").save()
    )
    required = StructType([StructField("payload", BinaryType(), nullable=False)])
    assert "without NOT NULL" in failure(
        spark.read.format("bookkeeper").option("uri", cluster.uri).schema(required).load(str(ledger_id)).count
    )


def test_entry_bounds_as_options(spark: SparkSession, cluster: LiveCluster) -> None:
    data = payloads(300)
    ledger_id = cluster.write(data)
    assert contents(read(spark, cluster, ledger_id, entriesFrom=10, entriesTo=12)) == data[10:13]


def test_a_ledger_that_is_being_written(spark: SparkSession, cluster: LiveCluster) -> None:
    data = payloads(500)
    with silent(cluster) as bk:
        writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        writer.append_many(data)
        assert read(spark, cluster, writer.id, openLedgers="skip").count() == 0
        writer.append(b"carries the confirmation of those before")
        assert contents(read(spark, cluster, writer.id)) == data
        writer.append(b"nobody fenced me")
        recovered = contents(read(spark, cluster, writer.id, openLedgers="recover"))
        assert recovered[500:] == [b"carries the confirmation of those before", b"nobody fenced me"]
        with pytest.raises(bookkeeper.BKError):
            writer.append(b"now they did")


def test_errors_are_told_at_the_driver(spark: SparkSession, cluster: LiveCluster) -> None:
    ledger_id = cluster.write(payloads(10), password=b"p")

    def told(**options: object) -> str:
        given = {"uri": cluster.uri, **options}
        return failure(lambda: spark.read.format("bookkeeper").options(**given).load().count())

    assert "did you mean ledgers?" in told(ledger=1)
    assert "contradicts" in told(ledgers=ledger_id, ledgersFrom=1)
    assert "the client has no such setting" in told(ledgers=ledger_id, **{"bk.nonsense": 1})
    assert "no such ledger in the metadata store (ledger 987654)" in told(ledgers=987654)
    assert f"the password is wrong (ledger {ledger_id})" in told(ledgers=ledger_id, password="q")
    assert "is unknown" in told(uri="ftp://x", ledgers=1)
    assert "needs verify=all" in told(ledgers=1, columns="digest_ok")
    assert read(spark, cluster, f"{ledger_id},987654", password="p", failOnDataLoss=False).count() == 10


def test_one_damaged_copy_is_passed_over_and_counted_and_all_of_them_fail_the_query(
    spark: SparkSession, cluster: LiveCluster
) -> None:
    data = [b"damaged? %d" % n for n in range(2000)]
    ledger_id = cluster.write(data)
    ensemble = cluster.metadata(ledger_id).last_ensemble[1]
    with cluster.stopped():
        for bookie in ensemble:
            corrupt(cluster.bookie(bookie), data[77])
        corrupt(cluster.bookie(ensemble[1]), data[1500])
    frame = read(spark, cluster, ledger_id, entriesFrom=100, columns="entry_id,payload,bad_copies", verify="all")
    assert [row.asDict() for row in frame.where("size(bad_copies) > 0").collect()] == [
        {"entry_id": 1500, "payload": data[1500], "bad_copies": [ensemble[1]]}
    ]
    assert contents(read(spark, cluster, f"{ledger_id}", entriesFrom=100).where("true")) == data[100:]
    text = failure(lambda: read(spark, cluster, ledger_id).count())
    assert f"ledger {ledger_id}, entry 77: no replica has a good copy" in text
    for bookie in ensemble:
        assert f"bookie {bookie}: damaged, entry's digest is wrong" in text
    assert contents(read(spark, cluster, ledger_id, failOnDataLoss=False)) == [*data[:77], *data[78:]]


def test_a_bookie_that_is_down(spark: SparkSession, cluster: LiveCluster) -> None:
    data = payloads(20_000)
    safe = cluster.write(data)
    alone = cluster.write(data, ensemble_size=1, write_quorum=1, ack_quorum=1)
    victim = cluster.bookie(cluster.metadata(alone).last_ensemble[1][0])
    cluster.kill(victim)
    try:
        assert read(spark, cluster, safe).selectExpr(CHECKSUM_SQL).collect()[0][0] == checksum(data)
        started = time.monotonic()
        text = failure(lambda: read(spark, cluster, alone).count())
        assert f"ledger {alone}, entry 0: no good copy within reach. bookie {victim.id}: " in text
        assert time.monotonic() - started < 60
    finally:
        cluster.restart(victim)
    assert read(spark, cluster, alone).agg(F.count("*")).collect()[0][0] == 20_000
