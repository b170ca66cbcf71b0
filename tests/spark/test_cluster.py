"""A real Spark cluster (master, two workers, executors as processes of their own), and kill -9 of its executors and of
bookies while they read. `make test-spark` does it 20 times on more data."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bookkeeper.spark
from bookkeeper.spark import read_ledgers
from bookkeeper.spark.launch import spark_session
from tests.support.waiting import wait_until

from .support import CHECKSUM_SQL, FULL, Killer, LiveCluster, SparkCluster, checksum, kill_one

ROUNDS = 20 if FULL else 3
ENTRIES = 1_000_000 if FULL else 200_000


@pytest.fixture(scope="module")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    running = SparkCluster(tmp_path_factory.mktemp("standalone") / "spark")
    yield running
    running.close()


@pytest.fixture(scope="module")
def remote(executors: SparkCluster) -> Iterator[SparkSession]:
    """A session on that cluster."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "20",
    }
    with spark_session("tests", executors.url, settings) as session:
        yield session


def test_reading_and_jobs_on_a_standalone_cluster(
    remote: SparkSession, executors: SparkCluster, cluster: LiveCluster, tmp_path: Path
) -> None:
    data = [b"%d of many" % n for n in range(50_000)]
    ledger_id = cluster.write(data, password=b"p")
    frame = read_ledgers(remote, cluster.uri, ledger_id, password="p", minPartitions=6)
    assert frame.selectExpr(CHECKSUM_SQL).collect()[0][0] == checksum(data)
    assert len(executors.executors()) == 2
    report = bookkeeper.spark.export(remote, cluster.uri, ledger_id, str(tmp_path / "out"), password="p")
    assert report.rows == len(data)
    assert bookkeeper.spark.scrub(remote, cluster.uri, ledger_id).clean
    assert bookkeeper.spark.usage(remote, cluster.uri, ledger_id).entries == len(data)


@pytest.mark.timeout(1800)
def test_executors_and_a_bookie_killed_while_they_read(
    remote: SparkSession, executors: SparkCluster, cluster: LiveCluster
) -> None:
    dice = random.Random(7)
    ledger_id = cluster.write(b"%d " % n + bytes(100) for n in range(ENTRIES))
    expected = checksum(b"%d " % n + bytes(100) for n in range(ENTRIES))
    members = [cluster.bookie(name) for name in cluster.metadata(ledger_id).last_ensemble[1]]
    struck = 0
    for _ in range(ROUNDS):
        wait_until(lambda: len(executors.executors()) == 2, "two executors")
        victim = dice.choice(members)
        strikes = [lambda: kill_one(executors.executors(), dice), lambda victim=victim: cluster.kill(victim)]
        dice.shuffle(strikes)
        frame = read_ledgers(remote, cluster.uri, ledger_id, minPartitions=12)
        with Killer(strikes, dice, within=2.0) as killer:
            row = frame.selectExpr("count(*)", "sum(length(payload))", CHECKSUM_SQL).collect()[0]
        struck += killer.done
        assert tuple(row) == (ENTRIES, sum(len(b"%d " % n) + 100 for n in range(ENTRIES)), expected)
        if not victim.running:
            cluster.restart(victim)
    assert struck >= ROUNDS, "the kills came too late: the reads were over"
