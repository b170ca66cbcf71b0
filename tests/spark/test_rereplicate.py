"""Re-replication on Spark, beside whoever else repairs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import bookkeeper.spark
import bookkeeper.sync
from bookkeeper.cli.app import app
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.spark.jobs.rereplicate import RereplicatePlan

from .support import LiveCluster


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Five bookies, of which some will be lost."""
    running = LiveCluster(tmp_path_factory.mktemp("losing"), 5)
    yield running
    running.close()


def payloads(count: int, tag: int) -> list[bytes]:
    return [b"<%d %d>" % (tag, n) + bytes([n & 0xFF]) * (n % 57) for n in range(count)]


async def marked(driver: MetadataDriver) -> list[int]:
    return [mark.ledger_id async for mark in driver.underreplication.list()]


def test_what_lost_bookies_held_is_copied(spark: SparkSession, losing: LiveCluster, tmp_path: Path) -> None:
    shapes = [(3, 3), (4, 2), (2, 2), (4, 3)]
    ledgers = {}
    for number in range(12):
        ensemble, write = shapes[number % 4]
        shape = {"ensemble_size": ensemble, "write_quorum": write, "ack_quorum": 2, "password": b"own"}
        ledgers[losing.write(payloads(100 * (number % 5), number), **shape)] = number
    lost = [losing.bookies[0].id]
    concerned = [one for one in ledgers if lost[0] in str(losing.metadata(one).ensembles)]
    losing.kill(losing.bookies[0])

    def command(*arguments: str) -> dict[str, object]:
        result = CliRunner().invoke(app, ["spark", "rereplicate", *lost, "-u", losing.uri, "--json", *arguments])
        assert result.exit_code == 0, result.stderr
        return dict(json.loads(result.stdout))

    plan = command()
    assert plan["ledgers"] == len(concerned)
    assert all(lost[0] in str(losing.metadata(one).ensembles) for one in concerned)  # nothing was changed

    held, repaired = threading.Event(), threading.Event()

    async def hold(driver: MetadataDriver) -> None:
        for ledger_id in concerned:
            await driver.underreplication.mark(ledger_id, lost)
        lock = await driver.underreplication.acquire(concerned[0])
        held.set()
        await asyncio.to_thread(repaired.wait)
        await lock.release()

    holder = threading.Thread(target=lambda: losing.with_store(hold))
    holder.start()
    held.wait()
    heard: list[object] = []
    try:
        first = bookkeeper.spark.rereplicate(spark, losing.uri, lost, on_progress=heard.append)
    finally:
        repaired.set()
        holder.join()
    assert not first.done
    assert [problem["ledger_id"] for problem in first.problems] == [concerned[0]]
    assert first.statuses == {"locked": 1, "moved": len(concerned) - 1}
    assert heard[-1].rows == first.copies
    assert losing.with_store(marked) == [concerned[0]]

    second = bookkeeper.spark.rereplicate(spark, losing.uri, lost, at_once=1, rate=50 << 20)
    assert second.done
    assert second.statuses == {"moved": 1}
    assert second.copies == second.plan.total_copies
    assert losing.with_store(marked) == []
    assert command("--output", str(tmp_path / "rows"))["ledgers"] == 0
    with bookkeeper.sync.connect(losing.uri) as bk:
        for ledger_id, number in ledgers.items():
            assert lost[0] not in str(losing.metadata(ledger_id).ensembles)
            with bk.open_ledger(ledger_id, password=b"own", recover=False) as reader:
                got = [entry.data for entry in reader.read(0, reader.last_add_confirmed)] if number % 5 else []
                assert got == payloads(100 * (number % 5), number)
    only = ",".join(map(str, ledgers))
    scrubbed = bookkeeper.spark.scrub(spark, losing.uri, only)
    assert scrubbed.clean, scrubbed.problems


def test_open_ledgers_are_left_to_their_writers(spark: SparkSession, losing: LiveCluster) -> None:
    with bookkeeper.sync.connect(losing.uri) as bk:
        writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        writer.append(b"one")
        drained = list(losing.metadata(writer.id).last_ensemble[1])[:1]
        report = bookkeeper.spark.rereplicate(spark, losing.uri, drained, writer.id)
        assert (report.done, report.plan.open, report.statuses) == (True, 1, {})
        assert not losing.metadata(writer.id).closed
        report = bookkeeper.spark.rereplicate(spark, losing.uri, drained, writer.id, recover_open=True)
        assert report.statuses == {"moved": 1}
    metadata = losing.metadata(writer.id)
    assert metadata.closed
    assert metadata.last_entry_id == 0
    assert drained[0] not in metadata.last_ensemble[1]


def test_units_are_of_about_one_size_and_the_largest_come_first() -> None:
    plan = RereplicatePlan(("b:1",))
    for ledger_id, size in enumerate([5, 100, 7, 90, 0]):
        plan.ledgers.append(ledger_id)
        plan.copies.append(1)
        plan.sizes.append(size)
    assert plan.units(100) == [[1], [3, 2], [0, 4]]
