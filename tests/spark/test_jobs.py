"""Export, scrub and usage on a live cluster, as functions and as commands."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bookkeeper.spark
import bookkeeper.sync
from bookkeeper.cli.upkeep.mending import EXIT_FOUND
from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.errors import ExportError, OptionError
from bookkeeper.spark.jobs.export import exported_paths
from bookkeeper.types import DigestType

from .support import LiveCluster, corrupt, lose, spark_command


def payloads(count: int, tag: str) -> list[bytes]:
    return [b"<%s %d>" % (tag.encode(), n) + bytes([n & 0xFF]) * (n % 57) for n in range(count)]


# --- export --------------------------------------------------------------------------------------


def test_an_export_is_read_back_by_anybody(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    data = {cluster.write(payloads(n, "x"), password=b"p", custom_metadata={"k": b"v"}): n for n in (2000, 1, 0, 7000)}
    heard = []
    first, last = min(data), max(data)
    report = bookkeeper.spark.export(
        spark,
        cluster.uri,
        f"{first}-{last}",
        str(tmp_path / "out"),
        password="p",
        targetPartitionBytes="100k",
        on_progress=heard.append,
    )
    assert (report.ledgers, report.rows, report.damaged_copies, report.lost_entries) == (4, 9001, 0, 0)
    assert (heard[-1].rows, heard[-1].bytes) == (report.rows, report.bytes)
    assert heard[-1].total_rows == report.rows
    frame = spark.read.parquet(str(tmp_path / "out"))
    for ledger_id, count in data.items():
        rows = frame.where(f"ledger_id = {ledger_id}").orderBy("entry_id").collect()
        assert [bytes(row.payload) for row in rows] == payloads(count, "x")
    manifest = tmp_path / "out" / "_manifest"
    ledgers = pq.read_table(manifest / "00000000.ledgers.parquet").to_pylist()
    assert [ledger["ledger_id"] for ledger in ledgers] == sorted(data)
    assert all(ledger["custom_metadata"] == [("k", b"v")] for ledger in ledgers)
    files = pq.read_table(manifest / "00000000.files.parquet").to_pylist()
    assert sum(file["rows"] for file in files) == 9001
    assert len(files) == report.files > 3
    for file in files:
        assert pq.read_metadata(tmp_path / "out" / file["path"]).num_rows == file["rows"]
    assert json.loads((manifest / "00000000.json").read_text())["rows"] == 9001
    with pytest.raises(ExportError, match="finished export"):
        bookkeeper.spark.export(spark, cluster.uri, first, str(tmp_path / "out"), password="p")


def test_many_small_ledgers_share_a_file(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    made = [cluster.write(payloads(n % 4, "small")) for n in range(30)]
    report = bookkeeper.spark.export(spark, cluster.uri, f"{made[0]}-{made[-1]}", str(tmp_path / "out"))
    assert (report.ledgers, report.files) == (30, 1)
    counts = spark.read.parquet(str(tmp_path / "out")).groupBy("ledger_id").count().collect()
    assert {row.ledger_id: row["count"] for row in counts} == {ledger: n % 4 for n, ledger in enumerate(made) if n % 4}


def test_an_export_is_added_to(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = cluster.write(payloads(2000, "a"))
    with bookkeeper.sync.connect(cluster.uri) as bk, bk.create_ledger() as writer:
        writer.append_many(payloads(500, "b"))
        writer.append(b"confirms those before")

        def export(**options: object) -> bookkeeper.spark.ExportReport:
            return bookkeeper.spark.export(
                spark, cluster.uri, f"{first}-", str(out), targetPartitionBytes="50k", append=True, **options
            )

        export()
        kept = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
        third = cluster.write(payloads(300, "c"))
        writer.append_many(payloads(700, "d"))
    second = export()
    assert second.ledgers == 2
    assert second.manifest.endswith("/_manifest/00000001.json")
    assert export().manifest == ""  # nothing is new
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    frame = spark.read.parquet(*exported_paths(str(out)))
    for ledger_id, data in {
        first: payloads(2000, "a"),
        writer.id: [*payloads(500, "b"), b"confirms those before", *payloads(700, "d")],
        third: payloads(300, "c"),
    }.items():
        rows = frame.where(f"ledger_id = {ledger_id}").orderBy("entry_id").collect()
        assert [bytes(row.payload) for row in rows] == data
    with pytest.raises(ExportError, match="exported with columns"):
        export(columns="entry_id,payload")
    # What an export that stopped left behind is gone on with, or made anew.
    cluster.write(payloads(100, "e"))
    stray = out / f"part-{0:019d}-{0:018d}-{0:019d}-{5:018d}.parquet"
    stray.write_bytes(b"torn")
    with pytest.raises(ExportError, match="not empty"):
        export()
    assert export(resume=True).rows == 100
    assert not stray.exists()


def test_an_export_of_some_entries_is_added_to(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    """What was not asked for is not missed when the ledger is closed at last."""
    with bookkeeper.sync.connect(cluster.uri) as bk, bk.create_ledger() as writer:
        writer.append_many(payloads(100, "f"))
        writer.append(b"confirms those before")
        options = {"entriesFrom": 5, "append": True}
        bookkeeper.spark.export(spark, cluster.uri, writer.id, str(tmp_path / "out"), **options)
        writer.append_many(payloads(100, "g"))
    bookkeeper.spark.export(spark, cluster.uri, writer.id, str(tmp_path / "out"), **options)
    rows = spark.read.parquet(*exported_paths(str(tmp_path / "out"))).orderBy("entry_id").select("entry_id").collect()
    assert [row.entry_id for row in rows] == list(range(5, 201))


def test_an_export_that_stopped_goes_on(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    ledger_id = cluster.write(payloads(3000, "y"))
    out = tmp_path / "out"

    def export(**options: object) -> bookkeeper.spark.ExportReport:
        return bookkeeper.spark.export(spark, cluster.uri, ledger_id, str(out), targetPartitionBytes="20k", **options)

    export()
    files = sorted(out.glob("*.parquet"))
    assert len(files) > 3
    shutil.rmtree(out / "_manifest")
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-100])  # torn
    (out / ".left.parquet.tmp").write_bytes(b"")
    kept = files[0].stat().st_mtime_ns
    with pytest.raises(ExportError, match="not empty"):
        export()
    assert export(resume=True).rows == 3000
    assert files[0].stat().st_mtime_ns == kept
    assert sorted(path for path in out.iterdir() if path.is_file() and path.suffix != ".crc") == files
    shutil.rmtree(out / "_manifest")
    with pytest.raises(ExportError, match="not part of this export"):
        bookkeeper.spark.export(spark, cluster.uri, ledger_id, str(out), resume=True)


def test_errors_of_jobs_are_one_line(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> None:
    ledger_id = cluster.write(payloads(100, "lost"))
    with cluster.stopped():
        for bookie in cluster.metadata(ledger_id).last_ensemble[1]:
            corrupt(cluster.bookie(bookie), payloads(100, "lost")[50])
    with pytest.raises(BookKeeperError) as caught:
        bookkeeper.spark.export(spark, cluster.uri, ledger_id, str(tmp_path / "a"))
    assert f"ledger {ledger_id}, entry 50: no replica has a good copy" in str(caught.value)
    assert "\n" not in str(caught.value)
    partial = bookkeeper.spark.export(spark, cluster.uri, ledger_id, str(tmp_path / "b"), failOnDataLoss=False)
    assert (partial.rows, partial.lost_entries) == (99, 1)
    with pytest.raises(OptionError, match="read back"):
        bookkeeper.spark.export(spark, cluster.uri, ledger_id, str(tmp_path / "c"), columns="entry_id")


# --- scrub ---------------------------------------------------------------------------------------


def test_a_scrub_finds_every_planted_fault_and_nothing_else(spark: SparkSession, cluster: LiveCluster) -> None:
    dice = random.Random(1)
    ledgers = {
        cluster.write(payloads(4000, f"whole{n}"), digest=digest, password=b"own"): (f"whole{n}", 4000)
        for n, digest in enumerate((DigestType.CRC32C, DigestType.MAC, DigestType.CRC32))
    }
    ledgers[cluster.write(payloads(2000, "striped"), ensemble_size=4, write_quorum=2)] = ("striped", 2000)
    only = f"{min(ledgers)}-{max(ledgers)}"
    clean = bookkeeper.spark.scrub(spark, cluster.uri, only)
    assert clean.clean, clean.problems
    assert clean.copies == 3 * 12_000 + 2 * 2000

    planted: set[tuple[int, int, str, str]] = set()
    missing: dict[tuple[str, int], list[int]] = {}
    with cluster.stopped():
        while len(planted) < 100:
            ledger_id = dice.choice(list(ledgers))
            tag, count = ledgers[ledger_id]
            entry_id = dice.randrange(count)
            ensemble = cluster.metadata(ledger_id).last_ensemble[1]
            copies = 2 if tag == "striped" else 3
            bookie = ensemble[(entry_id + dice.randrange(copies)) % len(ensemble)]
            if any(fault[:3] == (ledger_id, entry_id, bookie) for fault in planted):
                continue
            if len(planted) % 2:
                corrupt(cluster.bookie(bookie), payloads(entry_id + 1, tag)[entry_id])
                planted.add((ledger_id, entry_id, bookie, "digest_mismatch"))
            else:
                missing.setdefault((bookie, ledger_id), []).append(entry_id)
                planted.add((ledger_id, entry_id, bookie, "missing"))
        for (bookie, ledger_id), entry_ids in missing.items():
            lose(cluster.bookie(bookie), ledger_id, entry_ids)

    report = bookkeeper.spark.scrub(spark, cluster.uri, only, targetPartitionBytes="100k")
    found = {
        (row.ledger_id, entry_id, row.bookie, row.status)
        for row in report.rows.where("bookie is not null and status <> 'ok'").collect()
        for entry_id in range(row.first_entry, row.last_entry + 1)
    }
    assert found == planted
    assert report.copies == clean.copies - 100
    assert report.statuses["digest_mismatch"] == 50
    assert report.statuses["missing"] == 50
    short = {fault[:2] for fault in planted}
    assert report.statuses["underreplicated"] + report.statuses.get("gap", 0) == len(short)


def test_a_scrub_tells_what_it_could_not_ask_from_what_is_not_there(spark: SparkSession, cluster: LiveCluster) -> None:
    ledger_id = cluster.write(payloads(500, "away"))
    victim = cluster.bookie(cluster.metadata(ledger_id).last_ensemble[1][1])
    cluster.kill(victim)
    try:
        report = bookkeeper.spark.scrub(spark, cluster.uri, ledger_id)
    finally:
        cluster.restart(victim)
    assert report.statuses == {"unreachable": 500, "underreplicated": 500}
    assert [problem["bookie"] for problem in report.problems] == [None, victim.id]
    with cluster.stopped():
        lose(victim, ledger_id, list(range(500)))  # a lost disk
    report = bookkeeper.spark.scrub(spark, cluster.uri, ledger_id)
    assert report.statuses == {"missing": 500, "underreplicated": 500}


# --- usage ---------------------------------------------------------------------------------------


def test_usage_adds_up(spark: SparkSession, cluster: LiveCluster) -> None:
    whole = cluster.write([bytes(100)] * 1000)
    striped = cluster.write([bytes(100)] * 1000, ensemble_size=4, write_quorum=2)
    empty = cluster.write([])
    report = bookkeeper.spark.usage(spark, cluster.uri, f"{whole},{striped},{empty}")
    assert (report.ledgers, report.entries, report.bytes) == (3, 2000, 200_000)
    assert report.stored_bytes == 5 * 1000 * (100 + 32 + 4)
    rows = {(row.ledger_id, row.bookie): row for row in report.rows.collect()}
    assert {bookie: rows[whole, bookie].bytes for bookie in cluster.metadata(whole).last_ensemble[1]} == dict.fromkeys(
        cluster.metadata(whole).last_ensemble[1], 100_000
    )
    assert sum(row.entries for (ledger_id, _), row in rows.items() if ledger_id == striped) == 2000
    assert all(row.estimated == (ledger_id == striped) for (ledger_id, _), row in rows.items() if row.entries)
    assert [each["ledger_id"] for each in report.largest] == [whole, striped, empty]
    assert {each["bookie"] for each in report.bookies} == {bookie.id for bookie in cluster.bookies}


# --- commands ------------------------------------------------------------------------------------


def command(cluster: LiveCluster, *arguments: str) -> tuple[int, str, str]:
    return spark_command(*arguments, uri=cluster.uri)


def test_dry_runs_start_no_spark(cluster: LiveCluster, tmp_path: Path) -> None:
    ledger_id = str(cluster.write(payloads(100, "dry")))
    code, out, _ = command(cluster, "export", str(tmp_path / "x"), "-l", ledger_id, "--dry-run", "--json")
    assert code == 0
    assert json.loads(out) == {"ledgers": 1, "entries": 100, "bytes": 3289, "tasks": 1}
    assert not (tmp_path / "x").exists()
    assert command(cluster, "scrub", "-l", ledger_id, "-n")[:2] == (
        0,
        "1 ledger with 100 entries, 3.3 KB of payload, in 1 task would be checked, every copy\n",
    )
    assert command(cluster, "usage", "-l", ledger_id, "-n")[1] == "1 ledger would be looked at\n"


def test_mistakes_are_one_line(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(cluster, "scrub", "-l", "nine")[::2] == (
        2,
        "error: ledgers='nine': 'nine' is neither an id, nor a range such as 10-20\n",
    )
    code, _, told = command(cluster, "scrub", "-l", "424242", "-n")
    assert (code, told) == (1, "error: there is no such ledger in the metadata store (ledger 424242)\n")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    ledger_id = str(cluster.write([]))
    code, _, told = command(cluster, "usage", "-l", ledger_id)
    assert code == 1
    assert told.startswith("error: Spark needs Java, and JAVA_HOME=/nowhere has no java: install a JDK 17")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else object())
    code, _, told = command(cluster, "usage", "-l", ledger_id)
    assert (code, told) == (
        1,
        "error: Spark support needs the Python package pyarrow: pip install 'bookkeeper-ledger[spark]'\n",
    )


def test_a_session_that_is_there_does_not_become_another(cluster: LiveCluster, spark: SparkSession) -> None:
    ledger_id = str(cluster.write(payloads(3, "there")))
    for other in (["--master", "local[7]"], ["--conf", "spark.sql.shuffle.partitions=3"]):
        code, _, told = command(cluster, "usage", "-l", ledger_id, *other)
        assert code == 1
        assert told.startswith("error: this process has a Spark session on local[2] already")
    assert command(cluster, "usage", "-l", ledger_id, "--master", "local[2]")[0] == 0
    assert spark.range(3).count() == 3, "it goes on"


def test_a_scrub_as_a_command(cluster: LiveCluster, tmp_path: Path, spark: SparkSession) -> None:
    ledger_id = cluster.write(payloads(300, "command"))
    with cluster.stopped():
        lose(cluster.bookie(cluster.metadata(ledger_id).last_ensemble[1][0]), ledger_id, [7])
    out = tmp_path / "rows"
    scrub = ["scrub", "-l", str(ledger_id), "--output", str(out), "--master", "local[1]", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "bookkeeper", "spark", *scrub],
        env={**os.environ, "BOOKKEEPER_URI": cluster.uri},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_FOUND, done.stderr
    report = json.loads(done.stdout)
    assert report["statuses"] == {"missing": 1, "underreplicated": 1}
    assert spark.read.parquet(str(out)).where("status = 'missing'").count() == 1
