"""The short form of `make demo-pipeline`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_the_pipeline_loses_and_doubles_nothing_when_all_that_can_die_is_killed(tmp_path: Path) -> None:
    source = tmp_path / "input.txt"
    source.write_bytes(b"".join(b"%s line %d \xff\r\n" % ((b"def", b"  if", b"x")[n % 3], n) for n in range(3000)))
    chart = tmp_path / "chart.png"
    done = subprocess.run(
        [sys.executable, "-m", "bookkeeper", "spark", "demo-pipeline", str(source), "--chart", str(chart)],
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    for killed in ("a Python worker", "bookie 127", "the driver and its Java"):
        assert killed in said
    assert said.endswith("duplicates = 0, lost = 0")
    assert chart.stat().st_size > 10_000
