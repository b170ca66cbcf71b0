"""Which seeds catch deliberate mistakes: the command of `mutations.py` and `hardened_mutations.py`."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bookkeeper.simulation.run import run_seed

from .mutations import MUTATIONS


@dataclass(frozen=True)
class Finding:
    """Which seed caught a mutation, and how."""

    name: str
    seed: int | None
    violation: str

    @property
    def place(self) -> str:
        return "-" if self.seed is None else str(self.seed)

    @property
    def summary(self) -> str:
        """The first line, at most."""
        return self.violation.splitlines()[0] if self.violation else "not found"


def search(task: tuple[str, int, int]) -> Finding:
    """Try `count` seeds from `first` on."""
    name, first, count = task
    found = MUTATIONS[name]
    logging.disable(logging.CRITICAL)
    with found.applied():
        for seed in range(first, first + count):
            report = run_seed(seed, found.options)
            if report.violation is not None:
                return Finding(name, seed, report.violation)
    return Finding(name, None, "")


def main() -> int:
    parser = argparse.ArgumentParser(description="Look for the first seed that catches each mutation.")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=300, help="how many to try for each")
    parser.add_argument("--only", action="append", default=[], help="part of a name")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/testing.md at the end")
    arguments = parser.parse_args()
    names = [name for name in MUTATIONS if not arguments.only or any(part in name for part in arguments.only)]
    findings: dict[str, Finding] = {}
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, gc.freeze, maxtasksperchild=4) as pool:
        tasks: Sequence[tuple[str, int, int]] = [(name, arguments.first, arguments.seeds) for name in names]
        for finding in pool.imap_unordered(search, tasks):
            findings[finding.name] = finding
            print(f"{finding.name:48} {finding.place:>5}  {finding.summary}", flush=True)
    missed = sum(finding.seed is None for finding in findings.values())
    print(f"{len(names) - missed} of {len(names)} caught")
    if arguments.markdown:
        print("\n".join(table([findings[name] for name in names])))
    return 1 if missed else 0


def table(findings: Sequence[Finding]) -> Iterator[str]:
    """Rows for people."""
    yield "| mistake | rule | seed | what the seed shows |"
    yield "|---|---|---|---|"
    for finding in findings:
        yield f"| {finding.name} | {MUTATIONS[finding.name].rule} | {finding.place} | {finding.summary} |"
