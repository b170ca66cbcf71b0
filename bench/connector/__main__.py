"""Streams as Spark's source and sink, beside Spark's own for Kafka and for files. Needs Maven and a JDK 17+.

    python -m bench.connector --quick              below ten minutes
    python -m bench.connector --rounds 3 --json connector.json --svg connector.svg --table connector.md
    python -m bench.connector --only ours --only "Kafka, synced" --size 1000
    python -m bench.connector --batches

Each system is measured alone, with nothing of the others running. Two tasks write rows from Parquet files in one go;
then a streaming query with Trigger.AvailableNow reads all of them into a sink that counts rows and bytes, and adds up
checksums, which are compared with the input's. The figures are medians; a ratio above 1 is in our favour. Our writes
are exactly once (an epoch of a sink), those of Spark's Kafka sink at least once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

from bookkeeper.spark.launch import spark_session

from . import kafka, overhead, report
from .data import Input
from .measuring import round_of
from .systems import OURS, SYNCED, TASKS, UNSYNCED, started

SIZES = {100: 5_000_000, 1000: 2_000_000}
"""Bytes of a row, and rows."""
QUICK = 2
"""So many times less of it."""


def measure(systems: Sequence[str], sizes: Sequence[int], rounds: int, part: int, directory: Path) -> report.Figures:
    """All of these systems, one after the other."""
    settings = {"spark.driver.memory": "2g"}
    about: dict[str, object] = {"spark": pyspark.__version__, "processors": os.cpu_count(), "rounds": rounds}
    if {SYNCED, UNSYNCED}.intersection(systems):
        version, jars = kafka.connector()
        about["connector"] = version
        settings["spark.jars"] = ",".join(map(str, jars))
    figures = report.Figures(about=about)
    inputs = [Input.make(directory / f"input-{size}", SIZES[size] // part, size, TASKS) for size in sizes]
    warm = Input.make(directory / "input", SIZES[100] // 10, 100, TASKS)
    with spark_session("bench", f"local[{TASKS}]", settings) as spark:
        for system in systems if inputs else ():
            print(system, file=sys.stderr, flush=True)
            with started(system, directory / "-".join(re.findall(r"\w+", system))) as running:
                for what, size, rate in round_of(spark, running, warm, inputs, directory, rounds):
                    print(f"  {what}, {size} B: {rate:,.0f} rows/s", file=sys.stderr, flush=True)
                    figures.note((what, size), system, rate)
        if OURS in systems:
            print("micro-batches", file=sys.stderr, flush=True)
            about["micro_batches"] = overhead.measure(spark, directory)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.connector", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured (1)")
    parser.add_argument("--quick", action="store_true", help="half of the rows")
    parser.add_argument(
        "--only", action="append", choices=list(report.COLOURS), help="only this system; may be repeated"
    )
    parser.add_argument("--size", type=int, action="append", choices=list(SIZES), help="only rows of so many bytes")
    parser.add_argument("--batches", action="store_true", help="only what a micro-batch costs by itself")
    parser.add_argument("--directory", type=Path, help="where data go; a temporary folder otherwise")
    report.add_outputs(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-connector-", dir=arguments.directory) as name:
        figures = measure(
            arguments.only or list(report.COLOURS),
            [] if arguments.batches else arguments.size or list(SIZES),
            arguments.rounds,
            QUICK if arguments.quick else 1,
            Path(name),
        )
    if figures.keys:
        report.write(figures, arguments)
    for line in overhead.lines(figures.about.get("micro_batches", {})):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
