"""Commands about sets of bookies: write sets, acks, coverage, recovery reads (spec client §4, §10.3)."""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.errors import (
    BookieUnavailableError,
    NoSuchEntryError,
    NoSuchLedgerError,
    ReadError,
    RequestTimeoutError,
)
from bookkeeper.quorum.coverage import OK, AckSet, CoverageSet
from bookkeeper.quorum.distribution import Distribution, quorum_coverage
from bookkeeper.quorum.reading import EntryRead
from bookkeeper.quorum.recovery import Fail, LedgerRecovery
from bookkeeper.types import BookieId

CODES = {
    "OK": OK,
    "NE": NoSuchEntryError.code,
    "NL": NoSuchLedgerError.code,
    "NA": BookieUnavailableError.code,
    "TO": RequestTimeoutError.code,
}
NAMES = {code: name for name, code in CODES.items()} | {ReadError.code: "read error"}


def _quorum(text: str) -> Distribution:
    return Distribution(*(int(part) for part in text.split("/")))


def _letters(values: list[bool]) -> str:
    return " ".join("yes" if value else "no" for value in values)


def write_sets(quorum: str, last: str) -> list[str]:
    """`write-sets E/Wq/Aq LAST`: the ensemble indexes of entries 0 to LAST."""
    schedule = _quorum(quorum)
    return [f"e{e}: {' '.join(map(str, schedule.write_set(e)))}" for e in range(int(last) + 1)]


def acks(quorum: str, entry: str) -> list[str]:
    """`acks E/Wq/Aq ENTRY`: after each ack of the write set, is it acked? After each failure, is that out of reach?"""
    schedule = _quorum(quorum)
    members = schedule.write_set(int(entry))
    good, bad = AckSet(members, schedule.ack_quorum), AckSet(members, schedule.ack_quorum)
    return [
        f"write set {' '.join(map(str, members))}",
        f"acked enough: {_letters([good.complete(index) for index in members])}",
        f"failed for good: {_letters([bad.fail(index, ReadError.code) for index in members])}",
    ]


def coverage(quorum: str, *answers: str) -> list[str]:
    """`coverage E/Wq/Aq b0=NL b1=OK ...`: whether the ensemble is covered after each answer, and how fencing ends."""
    schedule = _quorum(quorum)
    given = CoverageSet(schedule)
    recovery = LedgerRecovery(schedule, {0: tuple(BookieId(f"b{i}") for i in range(schedule.ensemble_size))})
    recovery.start_fencing()
    covered = []
    end = "waits for more"
    for answer in answers:
        name, code = answer.split("=")
        index = int(name[1:])
        given.add(index, CODES[code])
        covered.append(given.covered)
        for action in recovery.on_fence_answer(index, CODES[code]):
            end = f"fails: {NAMES[action.code]}" if isinstance(action, Fail) else "goes on to read"
    return [f"covered: {_letters(covered)}; recovery {end}"]


def recovery_read(quorums: str, *answers: str) -> list[str]:
    """`recovery-read Wq,Aq NE TO ...`: the outcome of one recovery read."""
    write_quorum, ack_quorum = (int(part) for part in quorums.split(","))
    read = EntryRead(range(write_quorum), negatives_to_end=quorum_coverage(write_quorum, ack_quorum))
    for answer in answers:
        index = read.send_next()
        assert index is not None
        if CODES[answer] == OK:
            read.succeed(index)
        else:
            read.fail(CODES[answer])
        if read.outcome is not None:
            break
    if read.outcome is None:
        return ["undecided"]
    if read.outcome == OK:
        return [f"entry, after {len(read.asked)} answers"]
    if read.outcome == NoSuchEntryError.code:
        return [f"end of the ledger, after {len(read.asked)} answers"]
    return [f"recovery fails: {NAMES[read.outcome]}"]


COMMANDS: dict[str, Callable[..., list[str]]] = {
    "write-sets": write_sets,
    "acks": acks,
    "coverage": coverage,
    "recovery-read": recovery_read,
}
