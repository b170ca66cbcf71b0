"""Many runs, spread over processes, and what came of them together."""

from __future__ import annotations

import gc
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from .harm.nemesis import FAULTS
from .run import Report, run_seed
from .swarm import Options

RUNS_PER_PROCESS = 500
"""A process ends after so many, and takes with it what Python has not given back."""

BATCH = 2 * RUNS_PER_PROCESS
"""Seeds between two looks at the clock."""


@dataclass
class Summary:
    """Sums over the runs so far."""

    runs: int = 0
    virtual_seconds: float = 0.0
    steps: int = 0
    ledgers: int = 0
    appended: int = 0
    reads: int = 0
    recoveries: int = 0
    compared: int = 0
    under_replicated: int = 0
    real_seconds: float = 0.0
    injected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    cancellations: int = 0
    """Operations that were cancelled."""
    cancelled: dict[str, int] = field(default_factory=dict)
    """Operation, and where it waited -> how many times it was cancelled there."""
    seen: dict[str, int] = field(default_factory=dict)
    """Rare event -> number of runs that saw it."""
    first_seen: dict[str, int] = field(default_factory=dict)
    """Rare event -> the first seed, in order of arrival, that saw it."""
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    """Seed, violation, configuration."""

    def add(self, report: Report) -> None:
        self.runs += 1
        for name in ("virtual_seconds", "steps", "ledgers", "appended", "reads", "recoveries", "compared"):
            setattr(self, name, getattr(self, name) + getattr(report, name))
        self.under_replicated += report.under_replicated
        for kind, count in report.injected.items():
            self.injected[kind] = self.injected.get(kind, 0) + count
        for place, count in report.cancelled.items():
            self.cancellations += count
            self.cancelled[place] = self.cancelled.get(place, 0) + count
        for name in report.seen:
            self.seen[name] = self.seen.get(name, 0) + 1
            self.first_seen.setdefault(name, report.seed)
        if report.violation is not None:
            self.failures.append((report.seed, report.violation, report.description))

    @property
    def rate(self) -> float:
        """Virtual seconds per real second."""
        return self.virtual_seconds / self.real_seconds if self.real_seconds else 0.0

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def lines(self, replay: str) -> Iterator[str]:
        """The summary for people. `replay` with a seed behind it is the command that runs that seed again."""
        yield (
            f"{self.runs:,} runs in {self.real_seconds:,.0f} s: {self.virtual_seconds:,.0f} virtual seconds "
            f"({self.rate:,.0f} per second), {self.steps:,} callbacks"
        )
        yield (
            f"{self.ledgers:,} ledgers, {self.appended:,} entries acknowledged, {self.reads:,} read, "
            f"{self.recoveries:,} recoveries, {self.compared:,} entries compared with their bookie's promises"
        )
        yield ""
        yield "faults injected"
        for kind, count in self.injected.items():
            yield f"  {count:9,}  {kind}"
        yield ""
        if self.cancelled:
            yield f"{self.cancellations:,} operations cancelled at {len(self.cancelled)} awaits"
            for place in sorted(self.cancelled, key=lambda place: (-self.cancelled[place], place)):
                yield f"  {self.cancelled[place]:9,}  {place}"
            yield ""
        yield "rare events: runs that saw them, first seed"
        for name in sorted(self.seen, key=lambda name: (-self.seen[name], name)):
            yield f"  {self.seen[name]:9,}  {self.first_seen[name]:7}  {name}"
        yield ""
        if not self.failures:
            yield "no violation"
        for seed, violation, description in sorted(self.failures):
            yield f"VIOLATION  seed {seed}: {violation}"
            yield f"           {description}"
            yield f"           replay: {replay}{seed}"


def run_many(
    seeds: Iterable[int],
    options: Options,
    jobs: int,
    progress: Callable[[Summary], None],
    *,
    hours: float | None = None,
    stop_after: int = 0,
    cancellations: int = 0,
) -> Summary:
    """Run the seeds on `jobs` processes; `progress` is called after each run.

    Ends before the seeds do when `hours` are over, or after `stop_after` failures or `cancellations`, if given.
    """
    summary = Summary()
    started = time.monotonic()
    left = iter(seeds)
    # New interpreters, not copies of this one: what this one has imported or patched shall not matter.
    with multiprocessing.get_context("spawn").Pool(jobs, _prepare, maxtasksperchild=RUNS_PER_PROCESS) as pool:
        while batch := [(seed, options) for seed in islice(left, BATCH)]:
            for report in pool.imap_unordered(_run, batch):
                summary.add(report)
                summary.real_seconds = time.monotonic() - started
                progress(summary)
                if stop_after and len(summary.failures) >= stop_after:
                    return summary
                if cancellations and summary.cancellations >= cancellations:
                    return summary
            if hours is not None and summary.real_seconds >= hours * 3600:
                break
    return summary


def _prepare() -> None:
    gc.collect()
    gc.freeze()  # the modules; so that collections look at what runs have left only


def _run(task: tuple[int, Options]) -> Report:
    return run_seed(*task)


def shrink(seed: int, options: Options, on_step: Callable[[str], None]) -> tuple[Options, Report]:
    """Leave out elements of the plan for as long as the run still fails; returns what is left and its report."""
    report = run_seed(seed, options)
    if report.violation is None:
        return options, report
    candidates = [number for number in range(len(report.plan)) if number not in options.skip]
    size = max(1, len(candidates) // 2)
    while True:
        for start in range(0, len(candidates), size):
            attempt = _without(options, candidates[start : start + size])
            tried = run_seed(seed, attempt)
            if tried.violation is not None:
                options, report = attempt, tried
                candidates = [number for number in candidates if number not in options.skip]
                on_step(f"{len(candidates)} faults left: {tried.violation.splitlines()[0]}")
                break
        else:
            if size == 1:
                return options, report
            size = size // 2


def _without(options: Options, numbers: Sequence[int]) -> Options:
    fields: Mapping[str, Any] = vars(options)
    return Options(**{**fields, "skip": options.skip | frozenset(numbers)})
