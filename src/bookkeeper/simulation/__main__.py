"""The simulation as a command.

python -m bookkeeper.simulation --seeds 1000 --first 0     many seeds, in parallel; exits with 1 if one fails
python -m bookkeeper.simulation --hours 8 --first 100000   seeds from there on, until time is up
python -m bookkeeper.simulation --cancellations 1000       so many operations cancelled at drawn awaits, over many seeds
python -m bookkeeper.simulation --seed 42                  one seed, with a readable trace
python -m bookkeeper.simulation --seed 42 --shrink         one that fails, with as few faults as possible
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from itertools import count
from pathlib import Path

from .campaign import Summary, run_many, shrink
from .harm.hardships import HARDSHIPS
from .harm.losses import GONE, LOSSES, ROT
from .harm.nemesis import FAULTS
from .run import Report, Run
from .swarm import HARDENING, IMPATIENTS, Options

SHORT = "make simulate SEED="
"""Replays a run without options."""


def main() -> int:
    """Returns the exit code."""
    arguments = _parser().parse_args()
    options = options_of(arguments)
    if arguments.seed is None:
        return _many(arguments, options)
    if arguments.shrink:
        options, _ = shrink(arguments.seed, options, print)
    machines = tuple(arguments.machine)
    run = Run(arguments.seed, options, show=print, machines=machines, until=arguments.until)
    print(run.report.description)
    return _show(run.execute(), options)


def options_of(arguments: argparse.Namespace) -> Options:
    """What the command says of each run."""
    return Options(
        seconds=arguments.seconds,
        faults=tuple(arguments.fault) or None,
        fault_count=arguments.fault_count,
        skip=frozenset(arguments.skip),
        corrupt_network=arguments.corrupt_network,
        hardening=arguments.hardening,
        calm=arguments.calm,
        losing=arguments.losing,
        healing=arguments.healing,
        scrubbing=arguments.scrubbing,
        programs=IMPATIENTS if arguments.cancellations or arguments.impatient else None,
    )


def replay_command(options: Options) -> str:
    """The command that runs one seed with these options and shows it, up to the seed."""
    words = [
        *(["--seconds", f"{options.seconds}"] if options.seconds is not None else []),
        *(word for kind in options.faults or () for word in ("--fault", kind)),
        *(["--fault-count", f"{options.fault_count}"] if options.fault_count is not None else []),
        *(word for number in sorted(options.skip) for word in ("--skip", f"{number}")),
        *(["--corrupt-network"] if options.corrupt_network else []),
        *([f"--{'' if options.hardening else 'no-'}hardening"] if options.hardening != HARDENING else []),
        *([f"--{'' if options.calm else 'no-'}calm"] if options.calm is not None else []),
        *(["--losing"] if options.losing else []),
        *(["--healing"] if options.healing else []),
        *(["--scrubbing"] if options.scrubbing else []),
        *(["--impatient"] if options.programs is not None else []),
    ]
    return f"python -m bookkeeper.simulation {shlex.join(words)} --seed " if words else SHORT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bookkeeper.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--hours", type=float, help="run for so long, instead of so many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--cancellations", type=int, default=0, help="run until so many operations were cancelled")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write the summary there, too")
    parser.add_argument("--stop-after", type=int, default=0, help="end after so many failures")
    parser.add_argument("--seed", type=int, help="run this one seed and show what happens")
    parser.add_argument("--until", type=float, help="with --seed: stop at this virtual second")
    parser.add_argument("--machine", action="append", default=[], help="with --seed: show only this machine")
    parser.add_argument("--impatient", action="store_true", help="with --seed: the programs of --cancellations")
    parser.add_argument("--shrink", action="store_true", help="with --seed: look for the faults that matter")
    parser.add_argument("--skip", type=int, action="append", default=[], help="leave out this fault of the plan")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        choices=(*FAULTS, *HARDSHIPS, *dict.fromkeys(LOSSES), GONE, ROT),
        help="only faults of this kind",
    )
    parser.add_argument("--fault-count", type=int, help="how many faults")
    parser.add_argument("--seconds", type=float, help="virtual seconds of work and harm")
    parser.add_argument("--corrupt-network", action="store_true", help="flip bits in what is sent")
    parser.add_argument(
        "--hardening",
        action=argparse.BooleanOptionalAction,
        default=HARDENING,
        help="also what is in simulation/harm/hardships.py",
    )
    parser.add_argument(
        "--calm",
        action=argparse.BooleanOptionalAction,
        help="with --hardening: only (or no) runs in which nothing may fail",
    )
    parser.add_argument(
        "--losing", action="store_true", help="bookies lose what they acknowledged, and repair themselves"
    )
    parser.add_argument("--healing", action="store_true", help="with autorecovery, and bookies that are lost for good")
    parser.add_argument("--scrubbing", action="store_true", help="entry logs rot, and bookies mend them")
    return parser


def _many(arguments: argparse.Namespace, options: Options) -> int:
    told = 0
    cancellations = arguments.cancellations
    endless = arguments.hours is not None or cancellations
    goal = f"of {arguments.seeds} seeds"
    if endless:
        goal = f"seeds for {cancellations} cancellations" if cancellations else f"seeds in {arguments.hours:g} hours"

    def progress(summary: Summary) -> None:
        nonlocal told
        for seed, violation, _ in summary.failures[told:]:
            print(f"seed {seed}: {violation}", file=sys.stderr, flush=True)
        told = len(summary.failures)
        if sys.stderr.isatty() or summary.runs % 100 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(
                f"{summary.runs} {goal}, {summary.rate:,.0f} virtual seconds per second, {told} violations",
                end=end,
                file=sys.stderr,
                flush=True,
            )

    summary = run_many(
        count(arguments.first) if endless else range(arguments.first, arguments.first + arguments.seeds),
        options,
        arguments.jobs,
        progress,
        hours=arguments.hours,
        stop_after=arguments.stop_after,
        cancellations=cancellations,
    )
    for line in summary.lines(replay_command(options)):
        print(line)
    if arguments.json is not None:
        arguments.json.write_text(summary.as_json())
    return 1 if summary.failures else 0


def _show(report: Report, options: Options) -> int:
    print()
    print(f"seed {report.seed}: {report.violation or 'no violation'}")
    print(
        f"{report.virtual_seconds:.1f} virtual seconds, {report.steps:,} callbacks, {report.ledgers} ledgers, "
        f"{report.appended} entries acknowledged, {report.reads} read, trace {report.trace_hash}"
    )
    if options.skip:
        print(f"left out: {' '.join(f'--skip {number}' for number in sorted(options.skip))}")
    return 0 if report.violation is None else 1


if __name__ == "__main__":
    sys.exit(main())
