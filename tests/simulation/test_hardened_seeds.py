"""Seeds with the harm of `simulation.hardships`, hostile peers and impatient programs, one kind after another."""

from __future__ import annotations

import dataclasses

import pytest

from bookkeeper.simulation.run import Report, run_seed
from bookkeeper.simulation.swarm import IMPATIENTS, Options

PROGRAMS = {"writers": 2, "followers": 2, "browsers": 1, "readers": 1}
TWO_OF_EACH = {"journalDirectories": "/journal1,/journal2", "ledgerDirectories": "/ledgers1,/ledgers2"}
UNREST = ("kill bookie", "isolate bookie", "stop bookie cleanly", "expire session", "kill client")

HARSH = Options(hardening=True, calm=False, programs=PROGRAMS)

KINDS = {
    "nothing fails in a calm run, whatever time it takes": Options(hardening=True, calm=True),
    "gaps of an advanced writer are filled, however many wait": Options(
        hardening=True, calm=True, flavours=("advanced",)
    ),
    "nobody suffers for hostile peers": dataclasses.replace(HARSH, fault_count=0, programs={**PROGRAMS, "hostiles": 3}),
    "a reserved ledger has one writer": dataclasses.replace(
        HARSH, faults=("store loses requests", "store loses answers"), fault_count=8, programs={"claimers": 3}
    ),
    "a full ledger disk or index ends no bookie": dataclasses.replace(
        HARSH, faults=("index is full", "ledger disk is full", "kill bookie"), fault_count=6
    ),
    "directories that change places are noticed": dataclasses.replace(
        HARSH, faults=("swap directories",), fault_count=6, settings=TWO_OF_EACH
    ),
    "a lost mount is noticed": dataclasses.replace(
        HARSH, faults=("lose a mount", "kill bookie"), fault_count=8, settings={"diskCheckInterval": 500}
    ),
    "damaged marks and index logs are noticed": dataclasses.replace(
        HARSH, faults=("flip a bit of a mark", "flip a bit of an index log"), fault_count=8, quorums=(3, 3, 2)
    ),
    "resolvers and policies may fail": dataclasses.replace(
        HARSH, faults=UNREST, fault_count=12, quorums=(3, 3, 2), programs={**PROGRAMS, "readers": 3}
    ),
    "indexes may be slow, or stop their machine": dataclasses.replace(
        HARSH, faults=("index is slow", "index stops the machine", "freeze bookie"), fault_count=8
    ),
    "everything together": Options(hardening=True),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", KINDS)
def test_nothing_is_violated_and(what: str, seed: int) -> None:
    passes(run_seed(seed, KINDS[what]))


def test_a_hundred_operations_are_cancelled_and_nothing_hangs_leaks_or_is_lost() -> None:
    """SR-8, SR-11: `make cancellations` does a thousand. FX-23."""
    cancelled = 0
    for seed in range(20):
        report = run_seed(seed, Options(programs=IMPATIENTS))
        passes(report)
        cancelled += sum(report.cancelled.values())
        if cancelled >= 100:
            return
    pytest.fail(f"only {cancelled} operations were cancelled")


def passes(report: Report) -> None:
    assert report.violation is None, f"seed {report.seed}: {report.violation}\n{report.description}"
