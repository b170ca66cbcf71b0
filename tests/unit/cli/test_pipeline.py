"""What `bookkeeper spark demo-pipeline` compares the pipeline's results with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookkeeper.cli.local.pipeline import PARTS, PipelineInput, archived, kind_of, window_count
from bookkeeper.cli.local.pipeline_demo import PipelineRun


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"def f():", "def"),
        (b"\t if x:", "if"),
        (b"define", "other"),
        (b"", "other"),
        (b"\xff", "other"),
        (b"for", "for"),
    ],
)
def test_lines_are_counted_by_their_first_word(line: bytes, kind: str) -> None:
    assert kind_of(line) == kind


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(lines=st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=100))
def test_files_hold_the_records_and_windows_count_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    directory = tmp_path_factory.mktemp("pipeline")
    made = PipelineInput.of((line + b"\n" for line in lines), directory)
    files = [path.read_bytes() for part in ("input", "end") for path in sorted((directory / part).iterdir())]
    assert len(files) <= PARTS + 1
    assert Counter(b"".join(files).split(b"\n")[:-1]) == made.records
    assert made.records.total() == len(lines) + 1
    assert sum(count for _, _, count, _ in made.windows) == len(lines)
    assert {start % made.part for _, start, _, _ in made.windows} == {0}


def test_only_files_that_the_sink_has_committed_are_read(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    row = {"kind": "def", "start": 10, "lines": 2, "bytes": 7}
    output = tmp_path / "parquet"
    (output / "_spark_metadata").mkdir(parents=True)
    for name in ("committed", "of-a-task-that-died"):
        pq.write_table(pa.Table.from_pylist([row]), output / f"{name}.parquet")
    entry = json.dumps({"path": (output / "committed.parquet").as_uri(), "action": "add"})
    (output / "_spark_metadata" / "0").write_text(f"v1\n{entry}")
    (output / "_spark_metadata" / "9.compact").write_text(f"v1\n{entry}")
    assert archived(tmp_path) == Counter({window_count(json.dumps(row).encode()): 1})


def test_what_is_there_twice_and_what_is_missing_is_counted() -> None:
    run = PipelineRun(0.0)
    run.compare("records", Counter("aab"), Counter("abc"))
    run.compare("rows", Counter("a"), Counter("a"))
    assert (run.duplicates, run.lost) == (1, 1)
