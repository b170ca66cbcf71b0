"""A scrub looks at a sample, or at what is new; it goes on where it was when it died, and hands over what it found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import bookkeeper.spark
import bookkeeper.sync
from bookkeeper.spark.errors import JobError, OptionError
from tests.support.waiting import wait_until

from .support import LiveCluster, corrupt, lose, spark_command


def payloads(count: int, tag: str) -> list[bytes]:
    return [b"<%s %d>" % (tag.encode(), n) + bytes([n & 0xFF]) * (n % 57) for n in range(count)]


def ledgers_of(report: bookkeeper.spark.ScrubReport) -> set[int]:
    return {row.ledger_id for row in report.rows.select("ledger_id").distinct().collect()}


def test_a_sample(spark: SparkSession, cluster: LiveCluster) -> None:
    made = [cluster.write(payloads(500, f"sample{n}")) for n in range(10)]
    only = f"{made[0]}-{made[-1]}"
    looked = [ledgers_of(bookkeeper.spark.scrub(spark, cluster.uri, only, sample="3", seed=seed)) for seed in (1, 1, 2)]
    assert [len(some) for some in looked] == [3, 3, 3]
    assert looked[0] == looked[1] != looked[2]
    assert set.union(*looked) <= set(made)

    holder = cluster.bookie(cluster.metadata(made[4]).last_ensemble[1][0])
    with cluster.stopped():
        lose(holder, made[4], [77, 401])
    report = bookkeeper.spark.scrub(spark, cluster.uri, only, sample_entries="10%")
    found = {(row["first_entry"], row["bookie"]) for row in report.problems if row["status"] == "missing"}
    assert found == {(77, holder.id), (401, holder.id)}  # what is not listed is found, whatever was drawn
    assert report.statuses == {"missing": 2, "underreplicated": 2}
    assert 3 * 10 * 40 <= report.copies <= 3 * 10 * 52
    assert report.entries == 10 * 50


def test_what_is_new_since_the_last_scrub(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    first = cluster.write(payloads(300, "old"))
    damaged = cluster.write(payloads(300, "damaged"))
    with cluster.stopped():
        corrupt(cluster.bookie(cluster.metadata(damaged).last_ensemble[1][0]), payloads(300, "damaged")[8])
    with bookkeeper.sync.connect(cluster.uri) as bk, bk.create_ledger() as writer:
        writer.append_many(payloads(200, "open"))
        writer.append(b"confirms those before")

        def scrub(**more: Any) -> bookkeeper.spark.ScrubReport:
            return bookkeeper.spark.scrub(spark, cluster.uri, f"{first}-", state=str(tmp_path / "state"), **more)

        assert ledgers_of(scrub(since="last")) == {first, damaged, writer.id}
        assert ledgers_of(scrub(since="last")) == {damaged, writer.id}
        writer.append_many(payloads(200, "more"))
    new = cluster.write(payloads(10, "new"))
    found = scrub(since="last")
    assert ledgers_of(found) == {damaged, writer.id, new}
    assert bookkeeper.spark.mend(spark, cluster.uri, found).done
    scrub(since="last", sample_entries="50%")  # it has not seen it whole: that does not make it old
    assert ledgers_of(scrub(since="last")) == {damaged}
    assert scrub(since="last").entries == 0
    assert ledgers_of(scrub(since="1h")) == {first, damaged, writer.id, new}
    with pytest.raises(OptionError, match="since=last needs a state"):
        bookkeeper.spark.scrub(spark, cluster.uri, since="last")


def test_a_scrub_that_is_killed_goes_on(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    ledger_id = cluster.write(payloads(30_000, "killed"))
    state = tmp_path / "state"
    scrub = ["scrub", "-l", str(ledger_id), "--state", str(state), "-o", "targetPartitionBytes=20k"]
    environment = {**os.environ, "BOOKKEEPER_URI": cluster.uri}
    command = [sys.executable, "-m", "bookkeeper", "spark", *scrub, "--master", "local[1]"]
    driver = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    rows = state / "00000000" / "rows"
    wait_until(lambda: len(list(rows.glob("0*.parquet"))) > 3, "some tasks are done", 120)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    done = {path.name: path.stat().st_mtime_ns for path in rows.glob("0*.parquet")}
    units = json.loads((state / "00000000" / "plan.json").read_text())["units"]
    assert 3 < len(done) < units

    with pytest.raises(JobError, match="was asked for other things"):
        bookkeeper.spark.scrub(spark, cluster.uri, ledger_id, state=str(state), sample="1")
    report = bookkeeper.spark.scrub(spark, cluster.uri, ledger_id, state=str(state), targetPartitionBytes="20k")
    assert report.clean, report.problems
    assert (report.entries, report.copies) == (30_000, 90_000)
    assert {name: (rows / name).stat().st_mtime_ns for name in done} == done  # those were not read again
    assert len(list(rows.iterdir())) == units
    assert json.loads((state / "00000000" / "report.json").read_text())["good_copies"] == 90_000


def test_findings_are_handed_over(cluster: LiveCluster, tmp_path: Path, spark: SparkSession) -> None:
    ledger_id = cluster.write(payloads(300, "handed"))
    holder = cluster.bookie(cluster.metadata(ledger_id).last_ensemble[1][0])
    with cluster.stopped():
        lose(holder, ledger_id, [7, 8, 200])
    state = str(tmp_path / "state")
    assert not bookkeeper.spark.scrub(spark, cluster.uri, ledger_id, state=state).clean

    def mend(*arguments: str) -> tuple[int, str, str]:
        return spark_command("mend", *arguments, uri=cluster.uri)

    code, out, told = mend(state, "--json")
    assert code == 0, told
    assert json.loads(out) == {"ledgers": 1, "copies": 3, "bookies": {holder.id: {"missing": 3}}}
    assert not bookkeeper.spark.scrub(spark, cluster.uri, ledger_id).clean  # nothing was changed
    code, out, told = mend(state, "--apply")
    assert (code, out) == (0, "repair: mended: 2; 3 copies written, 184 B\n"), told
    assert bookkeeper.spark.scrub(spark, cluster.uri, ledger_id).clean
    code, _, told = mend(str(tmp_path / "nowhere"))
    assert code == 1
    assert told.startswith("error: ")
    assert "nowhere" in told.splitlines()[0]


def test_mistakes_are_one_line(cluster: LiveCluster, tmp_path: Path) -> None:
    def command(*arguments: str) -> tuple[int, str]:
        code, _, told = spark_command("scrub", *arguments, uri=cluster.uri)
        return code, told

    wrong = "is neither a share such as 5% or 0.05, nor a number such as 500"
    assert command("--sample", "half") == (2, f"error: sample='half' {wrong}\n")
    assert command("--since", "last") == (
        2,
        "error: since=last needs a state: the directory that says what the last scrubs have seen\n",
    )
    ledger_id = str(cluster.write(payloads(10, "dry")))
    state = tmp_path / "state"
    assert command("-l", ledger_id, "--state", str(state), "--since", "last", "--dry-run")[0] == 0
    assert not state.exists()
