"""Two attempts of one task write at once, as Spark lets them on two hosts: exactly once, and nothing is left behind
(spec streams §20). A copy of a task is begun on another host only: so the second worker is on 127.0.0.2."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

import bookkeeper.sync
from bookkeeper.spark.launch import spark_session
from tests.support.waiting import wait_until

from .support import LiveCluster, SparkCluster
from .test_streams import Streams, leftovers
from .test_tables import table

pytestmark = pytest.mark.timeout(600)

ROWS, PARTS = 4000, 4
SLOW = 1
"""The partition whose first attempt stops half-way."""
PATIENCE = 120.0

Part = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    running = SparkCluster(tmp_path_factory.mktemp("speculation") / "spark", ("127.0.0.1", "127.0.0.2"))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1",
        "spark.speculation.quantile": "0.5",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",  # so that rows reach the writer before their task stops
    }
    try:
        with spark_session("tests", running.url, settings) as session:
            yield session
    finally:
        running.close()


def race(place: Path, winner: str) -> Part:
    """Rows of a task. The first attempt of one stops half-way, until another one has begun; then the loser waits for
    ever, or until it is killed."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        in_race = context.partitionId() == SLOW
        for number, batch in enumerate(batches):
            ids = batch.column(0).to_pylist()
            yield pa.RecordBatch.from_arrays([pa.array([b"%d " % one + bytes(1000) for one in ids])], ["payload"])
            if in_race and number == 5:
                (place / f"attempt{attempt}").touch()
                other = place / f"attempt{1 - min(attempt, 1)}"
                loses = (attempt > 0) == (winner == "original")
                deadline = time.monotonic() + PATIENCE
                while (loses or not other.exists()) and time.monotonic() < deadline:
                    time.sleep(0.05)

    return rows


@pytest.mark.parametrize("winner", ["original", "copy"])
def test_of_two_attempts_one_counts(remote: SparkSession, cluster: LiveCluster, tmp_path: Path, winner: str) -> None:
    streams = Streams(cluster, f"/speculation-{winner}")
    with bookkeeper.sync.connect(cluster.uri) as bk:
        before = set(bk.list_ledgers())
    frame = remote.range(0, ROWS, 1, PARTS).mapInArrow(race(tmp_path, winner), "payload binary")
    where = {"uri": streams.where, "stream": "raced", "sinkId": "race", "epoch": "1", "mergeTargetBytes": "0"}
    frame.write.format("bookkeeper").options(**where).mode("append").save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt0", "attempt1"], "both attempts wrote"

    read = Counter(int(payload.split()[0]) for payload in streams.payloads("raced"))
    assert read == Counter(range(ROWS))

    def collected() -> bool:
        """The attempt that lost may go on for a moment; what it leaves is collected."""
        streams.do(lambda namespace: namespace.collect_staged(lost_after=-1))
        return leftovers(streams) == []

    wait_until(collected, "nothing staged is left")
    segments = {row.ledger_id for row in table(remote, streams.where, "segments").collect()}
    assert len(segments) == PARTS
    with bookkeeper.sync.connect(cluster.uri) as bk:
        assert set(bk.list_ledgers()) - before == segments, "a ledger that is nobody's"
