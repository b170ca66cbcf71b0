"""`make bench-kafka`: see the package. Needs Maven, a JDK 17+, confluent-kafka and aiokafka.

    python -m bench.kafka                      everything, once: below ten minutes
    python -m bench.kafka --list
    python -m bench.kafka --row "one record at a time" --rounds 3
    python -m bench.kafka --rounds 3 --json kafka.json --svg kafka.svg --table kafka.md

Each round measures us, Kafka with its appends synced to disk, and Kafka without, one after the other; nothing else runs
meanwhile. The figures are the medians of all rounds. A ratio above 1 is in our favour.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import brokers, report
from .processes import run
from .rows import ROWS, Row, chosen, work_of

OURS, SYNCED, UNSYNCED = "ours", "synced", "not synced"
STREAMS = 10_000


class Round:
    """One measurement of every row that was asked for."""

    def __init__(self, rows: Sequence[Row], seconds: float, figures: report.Figures) -> None:
        self.rows = rows
        self.seconds = seconds
        self.figures = figures

    def measure(self, directory: Path, *, alone: bool) -> None:
        """Us, and Kafka in both ways; `alone`: only us."""
        with bookies(directory / "ours") as uri:
            self._measure_ours(uri)
        for system, sync in () if alone else ((SYNCED, True), (UNSYNCED, False)):
            with brokers.running(directory / system.replace(" ", "-"), sync=sync) as bootstrap:
                self._measure_theirs(bootstrap, system)

    def _measure_ours(self, uri: str) -> None:
        environ = {"BOOKKEEPER_URI": uri}
        names: dict[str, str] = {}
        for number, row in enumerate(self.rows):
            names[row.name] = f"s{number}"
            words = [
                {"NAME": names[row.name], "READ": names.get(row.reads_of, "")}.get(word, word) for word in row.ours
            ]
            took = [] if "read" in words else ["--seconds", str(self.seconds)]
            _say(f"ours: {row.name}")
            found = run("-m", "bookkeeper", "bench", *words, *took, "--json", environ=environ)
            found["rate"] = found["entries_per_second"]
            self.figures.note(row, OURS, found)
        if len(self.rows) == len(ROWS):
            _say("ours: fail-over, many streams")
            self.figures.alone["fail-over"].append(run("-m", "bench.kafka.owner", "fail-over", environ=environ))
            self.figures.alone["many"].append(run("-m", "bench.kafka.owner", "many", str(STREAMS), environ=environ))

    def _measure_theirs(self, bootstrap: str, system: str) -> None:
        for client, work in work_of(self.rows):
            topic = f"{client}-write-100" if work.what == "read" else f"{client}-{work.what}-{work.size}"
            _say(f"Kafka, {system}, {client}: {work.what} {work.size} B")
            found = run(
                *("-m", "bench.kafka.theirs", bootstrap, client, work.what, "--topic", topic),
                *("--size", str(work.size), "--seconds", str(self.seconds)),
            )
            for row in self.rows:
                if row.theirs == work:
                    self.figures.note(row, f"{client}, {system}", found)


@contextmanager
def bookies(directory: Path) -> Iterator[str]:
    """Three of ours; the cluster's address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bookkeeper", "localbookie", "3", "--dir", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith("metadataServiceUri="):
            raise RuntimeError("our bookies did not start")
        uri = line.strip().partition("=")[2]
        subprocess.run(
            [sys.executable, "-m", "bookkeeper", "bookies", "list", "--wait", "3", "--uri", uri],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        yield uri
    finally:
        process.terminate()  # an interrupt is ignored in the background of a shell
        process.wait(60)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement of writes")
    parser.add_argument("--row", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--list", action="store_true", help="what the rows are called")
    parser.add_argument("--alone", action="store_true", help="without Kafka")
    parser.add_argument("--directory", type=Path, help="where data goes; a temporary folder otherwise")
    report.add_outputs(parser)
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(row.name for row in ROWS))
        return 0
    try:
        rows = chosen(arguments.row)
    except KeyError as error:
        parser.error(f"there is no row {error}; --list tells them")
    figures = report.Figures(rows, defaultdict(list))
    for number in range(arguments.rounds):
        directory = Path(tempfile.mkdtemp(prefix="bench-kafka-", dir=arguments.directory))
        _say(f"round {number + 1} of {arguments.rounds}, {os.cpu_count()} processors")
        try:
            Round(rows, arguments.seconds, figures).measure(directory, alone=arguments.alone)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    report.write(figures, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
