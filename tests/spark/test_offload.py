"""Segments in Parquet files, and reads that follow them (docs/spark.md, spec streams §18)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bookkeeper.spark
from bookkeeper.errors import Unsupported
from bookkeeper.spark.errors import ArchiveError
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.formats.keyed import Codec
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.retention.policies import StreamPolicy

from .support import LiveCluster, spark_command
from .test_streams import Query, Streams, following, numbers

pytestmark = pytest.mark.timeout(300)

MODES = (
    {},
    {"columns": "payload,dlsn,slot,timestamp,headers,key", "txidAsTimestamp": "false"},
    {"rowMode": "kafka", "includeHeaders": "true"},
)
"""Options of reads whose rows must not change."""


@pytest.fixture(scope="module")
def streams(cluster: LiveCluster) -> Streams:
    return Streams(cluster, "/archived")


def rows(spark: SparkSession, streams: Streams, name: str, **options: str) -> list[Any]:
    """All rows of a stream, in its order."""
    place = ["offset"] if "rowMode" in options else ["segment", "entry_id", "slot"]
    columns = options.pop("columns", None)
    if columns is not None:
        options["columns"] = ",".join(dict.fromkeys([*columns.split(","), *place]))
    frame = spark.read.format("bookkeeper").options(uri=streams.where, stream=name, **options).load()
    return list(frame.orderBy(*place).collect())


def everything(spark: SparkSession, streams: Streams, name: str) -> list[list[Any]]:
    return [rows(spark, streams, name, **mode) for mode in MODES]


def offload(spark: SparkSession | None, streams: Streams, archive: Path, name: str, **options: Any) -> Any:
    return bookkeeper.spark.offload(spark, streams.where, str(archive), stream=name, **options)


def live(streams: Streams, name: str) -> list[int]:
    """Segments whose ledgers are there."""

    async def look(namespace: Namespace) -> list[int]:
        return [segment.number for segment in (await namespace.info(name)).segments]

    return streams.do(look)


def test_a_stream_reads_the_same_before_and_after(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.append("clicks", numbers(0, 1000), roll=150)
    before = everything(spark, streams, "clicks")
    assert len(before[0]) == 1000

    planned = offload(None, streams, tmp_path, "clicks")
    assert not planned.applied
    assert len(planned.planned) == len(live(streams, "clicks"))
    assert not list(tmp_path.rglob("*")), "nothing is written unless it is said"

    report = offload(spark, streams, tmp_path, "clicks", apply=True)
    assert report.rows == 1000
    assert everything(spark, streams, "clicks") == before, "in both places, read once"
    archived = rows(spark, streams, "clicks", readFrom="archive")
    assert archived == before[0]
    assert offload(spark, streams, tmp_path, "clicks", apply=True).planned == []

    report = offload(spark, streams, tmp_path, "clicks", apply=True, delete=True)
    assert [each["segment"] for each in report.deleted] == live_before(before)[:-1]
    assert live(streams, "clicks") == live_before(before)[-1:], "the newest completed segment always stays"
    assert everything(spark, streams, "clicks") == before
    assert streams.payloads("clicks") == [], "other readers do not know of the files"

    streams.append("clicks", numbers(1000, 1100))
    assert [bytes(row.payload) for row in rows(spark, streams, "clicks")] == numbers(0, 1100)
    assert [row.sequence_id for row in rows(spark, streams, "clicks")] == list(range(1100))
    parquet = spark.read.parquet(*(each["uri"] for each in json.loads(json.dumps(listed(tmp_path)))))
    assert parquet.count() == 1000, "anybody may read the files"


def live_before(before: list[list[Any]]) -> list[int]:
    return sorted({row.segment for row in before[0]})


def listed(archive: Path) -> list[dict[str, str]]:
    return [{"uri": str(path)} for path in sorted(archive.rglob("*.parquet"))]


def test_a_part_of_a_stream_begins_and_ends_in_files(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    async def write(namespace: Namespace) -> None:
        policy = WritePolicy(buffer_bytes=100, roll_records=40)
        async with namespace.open_writer("parts", create=True, policy=policy) as writer:
            for n, payload in enumerate(numbers(0, 200)):
                await writer.append(payload, txid=1000 + 10 * n)

    streams.do(write)
    whole = rows(spark, streams, "parts")

    def part(**options: str) -> list[bytes]:
        return [bytes(row.payload) for row in rows(spark, streams, "parts", **options)]

    asked = (
        {"startingTxid": "1555", "endingTxid": "2000"},
        {
            "startingOffsets": json.dumps({"parts": whole[33].dlsn}),
            "endingOffsets": json.dumps({"parts": whole[77].dlsn}),
        },
        {"startingTxid": "2900"},
        {"startingTxid": "2150", "targetPartitionBytes": "1"},  # a task for each entry
    )
    before = [part(**options) for options in asked]
    assert before[0] == numbers(56, 100)
    assert before[1] == numbers(33, 77)
    offload(spark, streams, tmp_path, "parts", apply=True, delete=True)
    assert [part(**options) for options in asked] == before


def test_keys_and_headers_come_back(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    async def create(namespace: Namespace) -> None:
        await namespace.create("keyed")
        await namespace.set_policy(StreamPolicy(codec=Codec.KV1), "keyed")

    streams.do(create)
    frame = spark.range(100).selectExpr(
        "cast(if(id % 3 = 0, null, concat('k', id)) as binary) as key",
        "cast(if(id % 7 = 0, null, concat('v', id)) as binary) as value",
        "if(id % 2 = 0, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) as headers",
    )
    frame.write.format("bookkeeper").options(uri=streams.where, stream="keyed").mode("append").save()
    before = everything(spark, streams, "keyed")
    offload(spark, streams, tmp_path, "keyed", apply=True)
    for mode, expected in zip(MODES, before, strict=True):
        assert rows(spark, streams, "keyed", readFrom="archive", **mode) == expected


def test_a_query_goes_on_from_files_to_ledgers(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.append("followed", numbers(0, 300), roll=50)
    query = Query(
        following(spark, streams.where, stream="followed", startingOffsets="earliest", maxRecordsPerTrigger=70),
        tmp_path / "state",
    )
    with pytest.raises(Exception, match="planned failure"):
        query.run(fail=1)
    offload(spark, streams, tmp_path / "files", "followed", apply=True, delete=True)
    query.run()
    assert query.rows == numbers(0, 300)
    streams.append("followed", numbers(300, 350))
    query.run()
    assert query.rows == numbers(0, 350)


def test_only_what_is_old_enough_and_read_goes(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.append("young", numbers(0, 300), roll=50)
    segments = live(streams, "young")
    assert offload(None, streams, tmp_path, "young", older_than=3600).planned == []
    assert len(offload(None, streams, tmp_path, "young", keep=2).planned) == len(segments) - 2

    async def subscribe(namespace: Namespace) -> None:
        await namespace.subscriptions("young").commit("reader", DLSN(segments[2], 0, 0))

    streams.do(subscribe)
    report = offload(spark, streams, tmp_path, "young", apply=True, delete=True)
    assert [each["segment"] for each in report.deleted] == segments[:2]
    assert live(streams, "young") == segments[2:]


def test_a_file_that_is_gone_or_damaged_is_said(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.append("fragile", numbers(0, 200), roll=100)
    offload(spark, streams, tmp_path, "fragile", apply=True)
    first = sorted(tmp_path.rglob("*.parquet"))[0]
    data = first.read_bytes()
    first.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with pytest.raises(Exception, match=r"offloaded to .*parquet cannot be read"):
        rows(spark, streams, "fragile", readFrom="archive")
    first.unlink()
    with pytest.raises(Exception, match=r"offloaded to .*parquet cannot be read"):
        rows(spark, streams, "fragile", readFrom="archive")
    with pytest.raises(ArchiveError, match="cannot be read"):
        offload(spark, streams, tmp_path, "fragile", apply=True, delete=True)
    assert live(streams, "fragile") == [1, 2], "a ledger goes only if its file is there"
    assert len(rows(spark, streams, "fragile")) == 200, "the ledgers are there"


def test_a_job_that_was_killed_is_begun_again(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Of a killed task there is a temporary file, a damaged one, or a whole one that the index does not name."""
    streams.append("killed", numbers(0, 300), roll=100)
    other = tmp_path / "other"
    offload(spark, streams, other, "killed", apply=True)  # the same stream in another place: its files are copied
    archive, made = tmp_path / "archive", sorted(other.rglob("*.parquet"))

    async def forget(namespace: Namespace) -> None:
        await namespace.offloads("killed").clear()

    streams.do(forget)
    directory = archive / "killed"
    directory.mkdir(parents=True)
    (directory / ".left.parquet.tmp").write_bytes(b"half")
    whole = directory / made[0].name
    whole.write_bytes(made[0].read_bytes())
    there = whole.stat().st_mtime_ns
    (directory / made[1].name).write_bytes(made[1].read_bytes()[:-20])
    report = offload(spark, streams, archive, "killed", apply=True)
    assert report.rows == 300
    assert whole.stat().st_mtime_ns == there, "what is whole is taken as it is"
    assert [bytes(row.payload) for row in rows(spark, streams, "killed", readFrom="archive")] == numbers(0, 300)

    streams.do(lambda namespace: namespace.delete("killed"))
    streams.append("killed", numbers(500, 510), roll=100)
    assert [bytes(row.payload) for row in rows(spark, streams, "killed")] == numbers(500, 510), "another life"


def test_what_was_overwritten_does_not_come_back(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.append("replaced", numbers(0, 200), roll=100)
    offload(spark, streams, tmp_path, "replaced", apply=True)
    frame = spark.range(3).selectExpr("cast(id as string) as payload").selectExpr("cast(payload as binary) as payload")
    frame.write.format("bookkeeper").options(uri=streams.where, stream="replaced").mode("overwrite").save()
    assert [bytes(row.payload) for row in rows(spark, streams, "replaced")] == [b"0", b"1", b"2"]
    streams.append("moved", numbers(0, 10))
    offload(spark, streams, tmp_path, "moved", apply=True)
    with pytest.raises(Unsupported, match="Parquet"):
        streams.do(lambda namespace: namespace.rename("moved", "elsewhere"))


def test_the_command(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.append("told", numbers(0, 100), roll=50)

    def run(*arguments: str) -> str:
        files = str(tmp_path / "files")
        code, out, told = spark_command("offload", files, "told", "--namespace", streams.where, *arguments)
        assert code == 0, told
        return out

    assert "would be" in run()
    report = json.loads(run("--apply", "--delete", "--json"))
    assert report["rows"] == 100
    assert [each["segment"] for each in report["deleted"]] == [1]
    assert pq.read_table(report["offloaded"][0]["uri"]).num_rows == 50
