"""The report of the comparison with Apache BookKeeper: what several runs come to together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.compare import report as compare_report
from bench.compare.report import HIGHER, LOWER, Figure, lines_of, together
from tests.interop.support.cluster import JAVA, OURS


def run(rate: list[tuple[float, float]], delay: list[tuple[float, float]], **conditions: Any) -> dict[str, Any]:
    """A report whose figures have these pairs, Java's first."""
    figures = {
        "add: rate": Figure(HIGHER, {JAVA: [java for java, _ in rate], OURS: [ours for _, ours in rate]}),
        "tail: p50_ms": Figure(LOWER, {JAVA: [java for java, _ in delay], OURS: [ours for _, ours in delay]}),
    }
    alike = {"peer": "4.17.3", "python": "3.11.7", "cpus": 2, "pairs": len(rate), "seconds": 5.0, "warm": 30.0}
    return {**alike, "results": lines_of(figures), "failures": [{"what": "add", "who": JAVA}], **conditions}


def test_each_pair_of_each_run_counts_alike() -> None:
    report = together([run([(10, 20)], [(6, 2)]), run([(10, 5), (10, 40)], [(8, 2), (2, 4)])])
    rate, delay = report["results"]
    assert (rate["what"], rate["ratio"], rate["least"], rate["greatest"]) == ("add: rate", 2.0, 0.5, 4.0)
    assert (delay["what"], delay["ratio"], delay["least"], delay["greatest"]) == ("tail: p50_ms", 3.0, 0.5, 4.0)
    assert report["pairs"] == 3
    assert len(report["failures"]) == 2


def test_one_run_is_its_own_report() -> None:
    only = run([(10, 20)], [(6, 2)])
    assert together([only]) == only


@pytest.mark.parametrize("condition", compare_report.CONDITIONS)
def test_runs_that_were_not_alike_are_not_counted_together(condition: str) -> None:
    with pytest.raises(ValueError, match=condition):
        together([run([(1, 1)], [(1, 1)]), run([(1, 1)], [(1, 1)], **{condition: "another"})])


def test_a_figure_that_a_run_lacks_is_named() -> None:
    short = run([(1, 1)], [(1, 1)])
    short["results"].pop()
    with pytest.raises(ValueError, match="tail: p50_ms"):
        together([run([(1, 1)], [(1, 1)]), short])


def test_the_command_writes_what_it_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [tmp_path / "one.json", tmp_path / "two.json"]
    for path in runs:
        path.write_text(json.dumps(run([(10, 20)], [(2, 4)])))
    outputs = {name: tmp_path / f"together.{name}" for name in ("json", "svg", "table")}
    compare_report.main([*map(str, runs), *(f"--{name}={path}" for name, path in outputs.items())])
    assert json.loads(outputs["json"].read_text()) == together([compare_report.read(path) for path in runs])
    assert "2 pairs" in outputs["svg"].read_text()
    assert "| add | **2.00** (2.00 to 2.00) |" in outputs["table"].read_text()
    assert "0.50 (0.50 to 0.50)" in outputs["table"].read_text()
    assert "a run failed: java: add" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["# not JSON", "[]", '{"pairs": 3}', None])
def test_a_file_that_is_no_run_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "odd.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit, match=r"odd\.json"):
        compare_report.main([str(path)])
