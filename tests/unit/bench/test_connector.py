"""What the comparison with Spark's Kafka connector makes of its figures; neither Spark nor a broker is started."""

from __future__ import annotations

import json
import zlib
from argparse import Namespace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from bench.connector import kafka, overhead, report
from bench.connector.data import Input, added, values
from bench.connector.planning import ledger, segment
from bench.connector.systems import JSON, OURS, PARQUET, SYNCED, UNSYNCED
from bookkeeper.streams.formats.segment import decode_segment, encode_segment


@pytest.fixture
def figures() -> report.Figures:
    """Ours are three times as fast as Kafka with its appends synced, and half as fast as Parquet."""
    found = report.Figures(about={"spark": "1.2.3"})
    for what in ("source", "sink"):
        for size in (1000, 100):
            for rate in (100_000, 300_000, 2_000_000):
                found.note((what, size), OURS, rate)
            found.note((what, size), SYNCED, 100_000)
            found.note((what, size), PARQUET, 600_000)
    return found


def test_a_ratio_above_one_is_in_our_favour(figures: report.Figures) -> None:
    assert figures.keys == [("sink", 100), ("sink", 1000), ("source", 100), ("source", 1000)]
    for key in figures.keys:
        ratios = [figures.ratio(key, system) for system in (SYNCED, UNSYNCED, PARQUET, JSON)]
        assert ratios == [3.0, None, 0.5, None]


def test_every_row_is_in_the_table_in_the_picture_and_in_the_json(figures: report.Figures, tmp_path: Path) -> None:
    files = {kind: tmp_path / kind for kind in ("json", "table", "svg")}
    report.write(figures, Namespace(**files))
    lines = files["table"].read_text().splitlines()
    assert lines[2] == "| sink, 100 B | 300,000 rows/s | 30 MB/s | 3.00 |  | 0.50 |  |"
    assert {line.count("|") for line in lines} == {8}
    drawn = files["svg"].read_text()
    ElementTree.fromstring(drawn)
    assert all(f"{what}, {size} B" in drawn for what, size in figures.keys)
    said = json.loads(files["json"].read_text())
    assert said["spark"] == "1.2.3"
    assert said["rows"][1]["mb_per_second"][SYNCED] == [100.0]
    assert said["rows"][1]["ratios"] == {SYNCED: 3.0, UNSYNCED: None, PARQUET: 0.5, JSON: None}


def test_without_kafka_there_is_nothing_to_draw() -> None:
    alone = report.Figures()
    alone.note(("sink", 100), OURS, 5.0)
    ElementTree.fromstring("\n".join(report.picture(alone)))
    assert list(report.table(alone))[2] == "| sink, 100 B | 5 rows/s | 0 MB/s |  |  |  |  |"


def test_the_input_adds_up(tmp_path: Path) -> None:
    rows = Input.make(tmp_path / "in", 1001, 60, 2)
    written = [value for file in sorted(rows.path.iterdir()) for value in pq.read_table(file)["value"].to_pylist()]
    assert written == values(0, 1001, 60)
    assert len(set(written)) == 1001
    assert rows.totals == (1001, 60_060, sum(map(zlib.crc32, written)))
    assert added(rows.totals, (1, 2, 3)) == (1002, 60_062, rows.totals[2] + 3)


def test_what_a_micro_batch_costs_beyond_sparks_own() -> None:
    batches = [{"triggerExecution": ms, "addBatch": ms / 2} for ms in (100.0, 300.0, 120.0)]
    found = {"rate": overhead.median(batches[:1]), "stream": overhead.median(batches)}
    assert found["stream"] == {"addBatch": 60.0, "triggerExecution": 120.0}
    assert overhead.beyond(found) == 20.0
    assert list(overhead.lines(found))[-1] == "beyond Spark's own: 20 ms"
    assert list(overhead.lines({})) == []


def test_only_jars_that_spark_lacks_are_added(tmp_path: Path) -> None:
    names = [
        "spark-sql-kafka-0-10_2.13-9.jar",
        "kafka-clients-9.jar",
        "scala-library-2.13.1.jar",
        "spark-tags_2.13-9.jar",
    ]
    for name in names:
        (tmp_path / name).touch()
    assert {jar.name for jar in kafka.needed(tmp_path)} == set(names[:2])


def test_made_up_segments_follow_each_other() -> None:
    one, two = segment(1), segment(2)
    assert decode_segment(encode_segment(one)) == one
    assert two.sequence_id == one.sequence_id + one.records
    assert ledger(2).last_entry_id == two.last_entry
