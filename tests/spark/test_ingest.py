"""Files and tables become records of streams, once (docs/spark.md)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bookkeeper.spark
from bookkeeper.spark.errors import JobError, OptionError

from .support import LiveCluster, spark_command
from .test_streams import Streams, numbers

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def streams(cluster: LiveCluster) -> Streams:
    return Streams(cluster, "/ingested")


def lines(directory: Path, name: str, payloads: list[bytes]) -> None:
    """A file that is complete when it has its name."""
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{name}"
    hidden.write_bytes(b"".join(payload + b"\n" for payload in payloads))
    hidden.rename(directory / name)


def test_lines_are_ingested_once_and_new_files_later(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    files, checkpoint = tmp_path / "files", tmp_path / "state"
    for part in range(3):
        lines(files, f"{part}.txt", numbers(100 * part, 100 * part + 100))

    def run() -> bookkeeper.spark.IngestReport:
        return bookkeeper.spark.ingest(
            spark, streams.where, "lines", str(files), checkpoint=str(checkpoint), reading={"maxFilesPerTrigger": "2"}
        )

    first = run()
    assert (first.rows, first.batches) == (300, 2)
    assert run().rows == 0
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # the driver died before Spark knew that the batch was published
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    lines(files, "3.txt", numbers(300, 350))
    run()
    assert sorted(streams.payloads("lines")) == numbers(0, 350)


def test_parquet_becomes_json_or_what_the_sql_says(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    spark.range(50).selectExpr("id", "concat('n', id) as name").write.parquet(str(tmp_path / "rows"))
    for stream, payload in (("as-json", None), ("as-sql", "name")):
        bookkeeper.spark.ingest(
            spark,
            streams.where,
            stream,
            str(tmp_path / "rows"),
            format="parquet",
            checkpoint=str(tmp_path / stream),
            payload=payload,
        )
    rows = sorted((json.loads(each) for each in streams.payloads("as-json")), key=lambda row: row["id"])
    assert rows == [{"id": n, "name": f"n{n}"} for n in range(50)]
    assert sorted(streams.payloads("as-sql")) == sorted(b"n%d" % n for n in range(50))


def test_a_table_over_jdbc_is_ingested_once(spark: SparkSession, streams: Streams) -> None:
    url = "jdbc:derby:memory:ingested;create=true"
    spark.range(20).selectExpr("cast(id as int) as n").write.jdbc(url, "numbers")

    def run(epoch: int) -> bookkeeper.spark.IngestReport:
        reading = {"url": url}
        return bookkeeper.spark.ingest(
            spark, streams.where, "table", "numbers", format="jdbc", sink_id="numbers", epoch=epoch, reading=reading
        )

    assert run(1).rows == 20
    run(1)
    assert sorted(json.loads(each)["n"] for each in streams.payloads("table")) == list(range(20))


def test_what_is_wrong(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    def run(**wrong: object) -> None:
        bookkeeper.spark.ingest(spark, streams.where, "x", str(tmp_path), **wrong)  # type: ignore[arg-type]

    with pytest.raises(OptionError, match="needs a checkpoint"):
        run()
    with pytest.raises(OptionError, match="needs a sink id and an epoch"):
        run(format="jdbc", checkpoint="/c")
    with pytest.raises(OptionError, match="is none of text"):
        run(format="xml")
    shutil.rmtree(tmp_path)
    with pytest.raises(JobError, match="PATH_NOT_FOUND"):
        run(format="parquet", checkpoint="/c")


def command(*arguments: str) -> str:
    code, out, told = spark_command("ingest", *arguments)
    assert code == 0, told
    return out


def test_the_command_shows_first_and_then_ingests(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    files = tmp_path / "files"
    lines(files, "0.json", [b'{"id": %d, "name": "n%d"}' % (n, n) for n in range(30)])
    given = (str(files), "commanded", "-N", streams.where, "-f", "json", "--checkpoint", str(tmp_path / "state"))
    shown = command(*given, "--payload", "concat(id, ' ', name)", "--dry-run")
    assert shown.splitlines()[:2] == ["columns: id bigint, name string", "records of commanded, the first ones:"]
    assert sorted(shown.splitlines()[2:]) == [f"{n} n{n}" for n in range(5)]
    assert not (tmp_path / "state").exists()
    report = json.loads(command(*given, "--payload", "concat(id, ' ', name)", "--json"))
    assert (report["rows"], report["batches"]) == (30, 1)
    assert sorted(streams.payloads("commanded")) == sorted(b"%d n%d" % (n, n) for n in range(30))
