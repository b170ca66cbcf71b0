"""Records that the metadata store has lost are written again from what the bookies hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bookkeeper.spark
import bookkeeper.sync
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.spark.errors import JobError, OptionError
from bookkeeper.spark.jobs.rebuild import Known, rebuild
from bookkeeper.spark.options import ReadOptions
from bookkeeper.types import DigestType

from .support import LiveCluster, lose, settle, spark_command
from .test_streams import Streams, numbers


@pytest.fixture(scope="module")
def wiped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Five bookies that collect no garbage."""
    running = LiveCluster(tmp_path_factory.mktemp("wiped"), 5, {"gcWaitTime": 3_000_000})
    yield running
    running.close()


def payloads(count: int, tag: int) -> list[bytes]:
    return [b"<%d %d>" % (tag, n) + bytes([n & 0xFF]) * (n % 57) for n in range(count)]


async def wipe(driver: MetadataDriver) -> None:
    async for found in driver.ledgers.ranges():
        for ledger_id in found.ids:
            await driver.ledgers.remove(ledger_id)


def options(cluster: LiveCluster, ids: str) -> ReadOptions:
    return ReadOptions.parse({"uri": cluster.uri, "ledgers": ids})


def a_ledger_whose_bookie_dies(cluster: LiveCluster) -> int:
    """With an ensemble change; its writer is gone."""
    with bookkeeper.sync.connect(cluster.uri) as bk:
        writer = bk.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2, password=b"secret")
        writer.append_many(payloads(300, 99)[:100])
        victim = cluster.bookie(cluster.metadata(writer.id).last_ensemble[1][0])
        cluster.kill(victim)
        try:
            for payload in payloads(300, 99)[100:]:
                writer.append(payload)
        finally:
            cluster.restart(victim)
        writer.close()
        assert len(cluster.metadata(writer.id).ensembles) > 1
        settle(bk, writer.id, False)
        return writer.id


def test_everything_reads_back_after_the_store_was_wiped(
    spark: SparkSession, wiped: LiveCluster, tmp_path: Path
) -> None:
    shapes = [(3, 3, DigestType.CRC32C), (4, 2, DigestType.MAC), (5, 3, DigestType.CRC32), (1, 1, DigestType.DUMMY)]
    ledgers = {}
    for number in range(8):
        ensemble, quorum, digest = shapes[number % 4]
        password = b"secret" if number % 2 else b""
        shape = {"ensemble_size": ensemble, "write_quorum": quorum, "ack_quorum": 1, "digest": digest}
        ledgers[wiped.write(payloads(1 + 50 * number, number), password=password, **shape)] = (
            payloads(1 + 50 * number, number),
            password,
        )
    ledgers[a_ledger_whose_bookie_dies(wiped)] = (payloads(300, 99), b"secret")
    stranger = wiped.write(payloads(20, 5), password=b"never told")
    kept = wiped.write(payloads(20, 6))
    ids = f"{min(ledgers)}-{kept + 50}"
    before = {ledger_id: wiped.metadata(ledger_id) for ledger_id in [*ledgers, stranger, kept]}
    wiped.with_store(wipe)

    async def put_back(driver: MetadataDriver) -> None:
        await driver.ledgers.create(kept, before[kept])

    wiped.with_store(put_back)
    with pytest.raises(JobError, match="5 bookies run, and 6 are expected"):
        rebuild(spark, options(wiped, ids), Known(expected=6))
    with pytest.raises(OptionError, match="which ids"):
        rebuild(spark, options(wiped, "all"), Known())
    dry = bookkeeper.spark.rebuild(spark, wiped.uri, ids, bookies=5, passwords=[b"wrong", b"secret"])
    assert dry.statuses == {"present": 1, "proposed": len(ledgers) + 1}
    assert wiped.metadata(kept).ensembles == before[kept].ensembles
    with pytest.raises(bookkeeper.BookKeeperError):
        wiped.metadata(min(ledgers))

    passwords = tmp_path / "passwords"
    passwords.write_text("wrong\nsecret\n")
    arguments = ["--bookies", "5", "--passwords", str(passwords), "--apply"]
    code, out, told = spark_command("rebuild", ids, *arguments, uri=wiped.uri)
    assert code == 1, told
    assert f"ledger {stranger} is undecided: none of the passwords is its own" in told
    assert f"present: 1, rebuilt: {len(ledgers)}, undecided: 1" in out

    with bookkeeper.sync.connect(wiped.uri) as bk:
        for ledger_id, (data, password) in ledgers.items():
            now, then = wiped.metadata(ledger_id), before[ledger_id]
            assert (now.closed, now.last_entry_id, now.length) == (True, then.last_entry_id, then.length)
            assert (now.digest_type, now.password) == (then.digest_type, password)
            if then.last_entry_id > 10:
                assert (now.ensemble_size, now.write_quorum) == (then.ensemble_size, then.write_quorum)
            with bk.open_ledger(ledger_id, password=password) as reader:
                assert [entry.data for entry in reader.read(0, reader.last_add_confirmed)] == data
    scrubbed = bookkeeper.spark.scrub(spark, wiped.uri, ",".join(map(str, ledgers)))
    assert not scrubbed.statuses.keys() - {"missing", "underreplicated"}, scrubbed.problems


def test_lost_copies_are_told(spark: SparkSession, wiped: LiveCluster) -> None:
    gap, thin = (wiped.write(payloads(100, tag)) for tag in (70, 71))
    with wiped.stopped():
        for name in wiped.metadata(gap).last_ensemble[1]:
            lose(wiped.bookie(name), gap, [40])
        lose(wiped.bookie(wiped.metadata(thin).last_ensemble[1][0]), thin, [50, 51])
    before = wiped.metadata(thin)
    wiped.with_store(wipe)
    report = rebuild(spark, options(wiped, f"{gap},{thin}"), Known(expected=5), apply=True)
    assert report.undecided == [{"ledger_id": gap, "detail": "no bookie lists entry 40, and some list later ones"}]
    assert (report.statuses, report.inferred) == ({"rebuilt": 1, "undecided": 1}, 1)
    ended = rebuild(spark, options(wiped, str(gap)), Known(expected=5, end_at_gaps=True), apply=True)
    assert ended.statuses == {"rebuilt": 1}
    assert wiped.metadata(gap).last_entry_id == 39
    assert set(wiped.metadata(thin).last_ensemble[1]) == set(before.last_ensemble[1])
    scrubbed = bookkeeper.spark.scrub(spark, wiped.uri, thin)
    assert scrubbed.statuses == {"missing": 2, "underreplicated": 2}
    assert bookkeeper.spark.mend(spark, wiped.uri, scrubbed).done
    assert bookkeeper.spark.scrub(spark, wiped.uri, thin).clean


def test_a_stream_reads_the_same_after_rebuild_and_offload(
    spark: SparkSession, wiped: LiveCluster, tmp_path: Path
) -> None:
    streams = Streams(wiped, "/wiped")
    streams.append("clicks", numbers(0, 1000), roll=150)
    frame = spark.createDataFrame([(payload,) for payload in numbers(1000, 1300)], "payload binary")
    frame.write.format("bookkeeper").options(uri=streams.where, stream="clicks").mode("append").save()

    def rows() -> list[Any]:
        read = spark.read.format("bookkeeper").options(uri=streams.where, stream="clicks").load()
        return list(read.orderBy("segment", "entry_id", "slot").collect())

    before = rows()
    assert sorted(bytes(row.payload) for row in before) == numbers(0, 1300)
    ids = sorted({row.ledger_id for row in before})
    wiped.with_store(wipe)
    with pytest.raises(PySparkException, match="ledger"):
        rows()

    rebuilt = bookkeeper.spark.rebuild(spark, wiped.uri, ",".join(map(str, ids)), bookies=5, apply=True)
    assert rebuilt.statuses == {"rebuilt": len(ids)}, rebuilt.undecided
    assert rows() == before
    done = bookkeeper.spark.offload(spark, streams.where, str(tmp_path), stream="clicks", delete=True, apply=True)
    assert done.rows == 1300
    assert len(done.deleted) == len(ids) - 1
    assert rows() == before
