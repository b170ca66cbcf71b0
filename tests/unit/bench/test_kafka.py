"""What the comparison with Kafka makes of its figures; no broker is needed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.kafka import brokers, processes, report
from bench.kafka.rows import CLIENTS, RATE, ROWS, Theirs, chosen, work_of


@pytest.fixture
def figures() -> report.Figures:
    """Ours are four times as good, whatever is measured."""
    found = report.Figures(ROWS, defaultdict(list))
    for row in ROWS:
        ours, theirs = (400.0, 100.0) if row.more_is_better else (1.0, 4.0)
        for value in (ours / 2, ours, ours * 9):
            found.note(row, report.OURS, {row.figure: value, "max_rss": 5_000_000})
        for system in report.SYSTEMS:
            found.note(row, system, {row.figure: theirs, "max_rss": 7_000_000})
    return found


def test_a_ratio_above_one_is_in_our_favour(figures: report.Figures) -> None:
    for row in ROWS:
        assert [figures.ratio(row, system) for system in report.SYSTEMS] == [4.0] * 4
    assert figures.ratio(ROWS[0], "nobody") is None


def test_the_table_and_the_picture_have_every_row(figures: report.Figures) -> None:
    lines = list(report.table(figures))
    assert len(lines) == 2 + len(ROWS)
    assert {line.count("|") for line in lines} == {len(report.SYSTEMS) + 4}
    drawn = "\n".join(report.picture(figures))
    ElementTree.fromstring(drawn)
    assert all(row.name in drawn for row in ROWS)
    assert figures.as_dict()["rows"][0]["ratios"]["confluent, synced"] == 4.0
    list(report.picture(report.Figures([], defaultdict(list))))


def test_rows_bring_along_what_they_read() -> None:
    read = next(row for row in ROWS if row.reads_of)
    assert [row.name for row in chosen([read.name])] == [read.reads_of, read.name]
    assert chosen([]) == list(ROWS)
    with pytest.raises(KeyError):
        chosen(["no such row"])


def test_their_topic_is_written_before_it_is_read() -> None:
    work = list(work_of([row for row in ROWS if row.theirs.what == "read"]))
    for client in CLIENTS:
        assert [each for name, each in work if name == client] == [Theirs("write"), Theirs("read")]


def test_programs_say_what_they_found_and_failed_ones_why(tmp_path: Path) -> None:
    found = processes.run("-c", "print('{\"rate\": 7}')")
    assert found["rate"] == 7
    assert found["max_rss"] > 1_000_000
    with pytest.raises(RuntimeError, match="no such thing"):
        processes.run("-c", "raise SystemExit('no such thing')")
    settings = brokers._configure(tmp_path, 1, list(range(100, 106)), True).read_text()
    assert "log.flush.interval.messages=1" in settings
    assert "listeners=PLAINTEXT://127.0.0.1:101,CONTROLLER://127.0.0.1:104" in settings
    assert {row.figure for row in ROWS} == {RATE, "p50_ms"}
