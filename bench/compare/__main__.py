"""Apache BookKeeper and this one on the same machine, in turn: `make bench-compare`, `make bench-quick`.

All have a ZooKeeper root in one server, three bookies with fsync on, one client process; ledgers are 3/3/2. Each
measurement is a pair, Java's and ours one after the other, first one first and then the other; a pair is repeated
`--pairs` times. What counts is the ratio within a pair; the report has its median, least and greatest. Of several
versions of Java's (`--peers`) the better one counts in each pair, each with its own client; Java's client on our
bookies is the newest one's.

Nothing is measured while bookies work off what they were given, garbage collection included: reads come first, and
what a measurement of writes wrote is deleted and collected before the next one begins.

    python -m bench.compare --quick                   the rows that matter, one short pair each: below ten minutes
    python -m bench.compare --list                    what the rows are called
    python -m bench.compare --row "add 100 B, 1 ledger, v2" --pairs 3
    python -m bench.compare --pairs 3 --seconds 10 --json compare.json --svg compare.svg     everything

A ratio above 1 is in our favour, whatever was measured: rates are ours / Java's, times and memory Java's / ours.
A run adds a line to bench/history.jsonl and tells what changed since the last one like it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from kazoo.client import KazooClient

from bookkeeper.metadata.zookeeper.local_server import LocalZooKeeper
from tests.interop.support import peer
from tests.interop.support.cluster import JAVA, OURS

from . import ceiling, history
from .clients import Clients
from .pairs import Comparison
from .report import add_outputs, lines_of, show, write
from .rows import Row, choose, rows
from .systems import Clusters

ATTEMPTS, QUICK_ATTEMPTS = 3, 1
ROUNDS, QUICK_ROUNDS = 5, 2
QUICK = {"pairs": 1, "seconds": 3.0, "warm": 8.0}
WHOLE = {"pairs": 3, "seconds": 10.0, "warm": 30.0}
PEERS = "4.17.3,4.18.0"


def compare(arguments: argparse.Namespace, address: str, directory: Path) -> dict[str, Any]:
    """Measure the rows that were asked for; the report."""
    began = time.monotonic()
    zk = KazooClient(address, timeout=60)
    zk.start()
    clusters = Clusters(zk, address, directory, settings_of(arguments))
    clients = Clients(clusters, arguments.seconds, arguments.warm, QUICK_ROUNDS if arguments.quick else ROUNDS)
    wanted = chosen(arguments, clients)
    ceilings = [ceiling.measure(directory)]
    try:
        comparison = Comparison(
            {version: clusters.start(JAVA, version) for version in arguments.peers.split(",")},
            clusters.start(OURS),
            arguments.pairs,
            QUICK_ATTEMPTS if arguments.quick else ATTEMPTS,
            arguments.quick,
        )
        missing = [row.name for place, row in enumerate(wanted) if not comparison.measure(row, place)]
    finally:
        clusters.end()
        zk.stop()
        zk.close()
    ceilings.append(ceiling.measure(directory))
    return {
        "machine": history.machine(),
        "peer": arguments.peers,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "quick": arguments.quick,
        "pairs": arguments.pairs,
        "seconds": arguments.seconds,
        "warm": arguments.warm,
        "settings": settings_of(arguments),
        "took_seconds": round(time.monotonic() - began),
        "ceiling_mb_per_s": [round(each, 1) for each in ceilings],
        "results": with_goals(lines_of(comparison.results), wanted, ceilings),
        "failures": comparison.failures,
        "missing": missing,
    }


def with_goals(lines: list[dict[str, Any]], wanted: list[Row], ceilings: list[float]) -> list[dict[str, Any]]:
    """The lines, with the ratio that is asked for and the part of the disk's ceiling, where there is such a thing."""
    found = {row.name: row for row in wanted}
    for line in lines:
        name, _, figure = line["what"].rpartition(": ")
        row = found[name]
        if figure in row.goals:
            line["goal"] = row.goals[figure]
        if figure == "rate" and row.entry_bytes:
            line["of_ceiling"] = ceiling.parts(line, row.entry_bytes, ceilings, JAVA, OURS)
    return lines


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings of bookies that were asked for, by name."""
    settings = {}
    for given in arguments.set:
        name, equals, value = given.partition("=")
        if not (name and equals):
            sys.exit(f"--set {given}: NAME=VALUE is expected, such as dbStorage_directIOEntryLogger=true")
        settings[name] = value
    return settings


def chosen(arguments: argparse.Namespace, clients: Clients) -> list[Row]:
    try:
        return choose(rows(clients), quick=arguments.quick, names=arguments.row, only=arguments.only)
    except ValueError as error:
        sys.exit(str(error))


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """The report of a run in directories of its own, with a ZooKeeper server of its own; nothing of them stays."""
    for version in arguments.peers.split(","):
        peer.set_up(version)
    # The server's end is waited for whatever ends the run: Ctrl-C comes as an exception here, not within a loop.
    with tempfile.TemporaryDirectory(prefix="compare-", dir=arguments.directory) as temporary, asyncio.Runner() as loop:
        server = LocalZooKeeper(Path(temporary) / "zookeeper")
        loop.run(server.start())
        try:
            return compare(arguments, server.address, Path(temporary))
        finally:
            loop.run(server.stop())


def remember(report: dict[str, Any], path: Path) -> None:
    """Add the run to the history; say what changed since the last one like it."""
    runs = history.read(path)
    run = history.entry(report, history.commit(), datetime.now(UTC))
    before = history.last_alike(runs, run)
    history.append(path, run)
    if before is not None:
        print("\n".join(["", *history.changes(run, before)]))


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, help="pairs of runs, Java's and ours, of each row (3; quick: 1)")
    parser.add_argument("--seconds", type=float, help="measured time of one run (10; quick: 3)")
    parser.add_argument("--warm", type=float, help="time before Java's client is measured (30; quick: 8)")
    parser.add_argument("--peers", default=PEERS, help="versions of Java's, with commas, the stable line first")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--row", action="append", default=[], help="this row; may be given again")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of all bookies; may be given again"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the rows, * for those of a quick run")
    parser.add_argument("--quick", action="store_true", help="the rows that matter, one short pair each")
    parser.add_argument("--directory", type=Path, help="where the clusters' directories are made")
    parser.add_argument("--history", type=Path, default=history.PATH, help="the file that the run is added to")
    add_outputs(parser)
    arguments = parser.parse_args(argv)
    for name, value in (QUICK if arguments.quick else WHOLE).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def _ended(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main(argv: list[str]) -> None:
    arguments = arguments_of(argv)
    names = Clients.__new__(Clients)  # rows only hold its methods
    if arguments.list:
        for row in choose(rows(names)):
            print(f"{'*' if row.quick else ' '} {row.name}")
        return
    chosen(arguments, names)  # a wrong name is told before anything is started
    signal.signal(signal.SIGTERM, _ended)
    try:
        report = measured(arguments)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started has ended")
    show(report)
    write(report, arguments)
    remember(report, arguments.history)
    print(f"\n{report['took_seconds']} seconds")
    if report["missing"]:
        sys.exit(f"no figures, a pair failed in each attempt: {'; '.join(report['missing'])}")


if __name__ == "__main__":
    main(sys.argv[1:])
