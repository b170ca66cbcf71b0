"""What is kept of comparisons, and what is told of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.compare import ceiling, history

NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def report(ratio: float = 2.0, **conditions: Any) -> dict[str, Any]:
    results = [
        {"what": "add: rate", "ratio": ratio, "of_ceiling": {"java": 0.1, "ours": 0.2}},
        {"what": "read: rate", "ratio": 0.5},
    ]
    alike = {"machine": "m", "peer": "4.17.3", "quick": True, "seconds": 3.0, "warm": 8.0}
    more = {"pairs": 1, "ceiling_mb_per_s": [50.0, 60.0], "failures": [{"what": "tail", "who": "ours", "why": "w"}]}
    return {**alike, **more, "results": results, **conditions}


def run(commit: str, ratio: float = 2.0, **conditions: Any) -> dict[str, Any]:
    return history.entry(report(ratio, **conditions), commit, NOW)


def test_a_run_is_read_as_it_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert history.read(path) == []
    runs = [run("a"), run("b", 3.0)]
    for each in runs:
        history.append(path, each)
    assert history.read(path) == runs
    assert runs[0]["date"] == "2026-02-03T04:05:06+00:00"
    assert runs[0]["ratios"] == {"add: rate": 2.0, "read: rate": 0.5}
    assert runs[0]["of_ceiling"] == {"add: rate": 0.2}
    assert runs[0]["failed"] == ["tail"]


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"commit": "a"}'])
def test_what_is_no_run_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(json.dumps(run("a")) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"history.jsonl, line 2"):
        history.read(path)


@pytest.mark.parametrize("condition", history.ALIKE)
def test_only_runs_alike_are_compared(condition: str) -> None:
    first, second, odd = run("a"), run("b"), run("c", **{condition: "another"})
    assert history.last_alike([first, second, odd], run("d")) == second
    assert history.last_alike([odd], run("d")) is None


def test_a_run_of_other_rows_is_passed_over() -> None:
    other = {**run("b"), "ratios": {"tail: p50_ms": 1.0}}
    assert history.last_alike([run("a"), other], run("c")) == run("a")


def test_changes_name_then_now_and_the_difference() -> None:
    title, add, read = history.changes(run("b", 3.0), run("a", 2.0))
    assert "since a" in title
    assert add.split() == ["add:", "rate", "3.00", "was", "2.00", "+50", "%"]
    assert read.endswith("+0 %")


def test_the_chart_has_a_line_for_each_ratio_asked_for(tmp_path: Path) -> None:
    runs = [run("aaaa1111"), run("bbbb2222", 3.0)]
    svg = "{http://www.w3.org/2000/svg}"
    drawn = ElementTree.fromstring(history.chart(runs))
    assert len(drawn.findall(f"{svg}polyline")) == 2
    assert len(drawn.findall(f"{svg}circle")) == 4
    assert {"aaaa1111", "bbbb2222"} <= {text.text for text in drawn.findall(f"{svg}text")}
    assert len(ElementTree.fromstring(history.chart(runs, "read")).findall(f"{svg}polyline")) == 1
    with pytest.raises(ValueError, match="tail"):
        history.chart(runs, "tail")


def test_the_command_draws_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, svg = tmp_path / "history.jsonl", tmp_path / "history.svg"
    with pytest.raises(SystemExit, match="no runs"):
        history.main(["--history", str(path)])
    for each in (run("a"), run("b", 3.0)):
        history.append(path, each)
    history.main(["--history", str(path), "--svg", str(svg)])
    assert "+50 %" in capsys.readouterr().out
    assert svg.read_text() == history.chart(history.read(path))


def test_the_ceiling_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    assert ceiling.measure(tmp_path, seconds=0.05) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_part_of_the_ceiling_is_that_of_the_best_run_and_the_greatest_ceiling() -> None:
    line = {"java": [1000.0, 500.0], "ours": [2000.0, 5000.0]}
    assert ceiling.parts(line, 10_000, [50.0, 100.0], "java", "ours") == {"java": 0.1, "ours": 0.5}
