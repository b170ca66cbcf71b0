"""What follows from what was seen: one function for each thing that can be wrong. No I/O.

The commands that are named are those of this program; each finding is explained in the operations page.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum

from .picture import Kind, Picture

OLD_MARK_SECONDS = 3600
"""Repair that has not come so long does not come by itself."""

LONG_DELAY_SECONDS = 24 * 3600

OLD_LEDGER_SECONDS = 24 * 3600

NEEDED = 3
"""Bookies that a new ledger wants by default."""


class Severity(IntEnum):
    """How bad it is."""

    NOTE = 0
    """Nothing needs to be done."""
    WARNING = 1
    """Something should be done: the cluster works, with less room for failures."""
    DANGER = 2
    """Data cannot be read, or nothing can be written."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is worth to be told."""

    name: str
    """For scripts: it does not change."""
    severity: Severity
    what: str
    advice: str = ""
    """What to do; empty: nothing."""


def examine(picture: Picture) -> list[Finding]:
    """All findings, the worst first."""
    found = [finding for check in CHECKS if (finding := check(picture)) is not None]
    if any(finding.name == "not-initialised" for finding in found):
        found = [finding for finding in found if finding.name == "not-initialised"]
    return sorted(found, key=lambda finding: -finding.severity)


# --- data ---


def unreadable(picture: Picture) -> Finding | None:
    return _ledgers(
        picture.ledgers.unreadable,
        Severity.DANGER,
        "unreadable",
        "have entries of which no bookie is there",
        _return_of(picture) + "; `bookkeeper shell why LEDGER ENTRY` tells of one",
    )


def unrecoverable(picture: Picture) -> Finding | None:
    return _ledgers(
        picture.ledgers.unrecoverable,
        Severity.DANGER,
        "unrecoverable",
        "are open, and too few of their bookies are there to find where they end: they cannot be recovered",
        _return_of(picture),
    )


def corrupt(picture: Picture) -> Finding | None:
    return _ledgers(
        picture.ledgers.corrupt,
        Severity.DANGER,
        "corrupt-metadata",
        "have records in the metadata store that make no sense",
        "look at them with `bookkeeper shell ledgermetadata -ledgerid LEDGER`; restore them from a backup of the store",
    )


def last_copy(picture: Picture) -> Finding | None:
    return _ledgers(
        picture.ledgers.last_copy,
        Severity.WARNING,
        "last-copy",
        "have entries of which one copy is left: the next loss loses them",
        _repair(picture),
    )


def short(picture: Picture) -> Finding | None:
    return _ledgers(
        picture.ledgers.short,
        Severity.WARNING,
        "under-replicated",
        "have entries with fewer copies than they should have",
        _repair(picture),
    )


def old_open(picture: Picture) -> Finding | None:
    ledgers = picture.ledgers
    if ledgers.oldest_open_ms is None:
        return None
    age = (picture.now_ms - ledgers.oldest_open_ms) / 1000
    if age < OLD_LEDGER_SECONDS:
        return None
    return Finding(
        "open-ledgers",
        Severity.NOTE,
        f"{_counted(ledgers.open.count, 'ledger')} open, the oldest for {_duration(age)}: written, or left by writers "
        "that are gone",
        "one whose writer is gone is closed by `bookkeeper ledger read --recover LEDGER`, or when it is next opened to "
        "be written",
    )


# --- bookies ---


def not_initialised(picture: Picture) -> Finding | None:
    if picture.initialised:
        return None
    return Finding(
        "not-initialised",
        Severity.DANGER,
        "there is no cluster in this metadata store",
        "make one with `bookkeeper shell initnewcluster`, or correct the address",
    )


def too_few(picture: Picture) -> Finding | None:
    needed = max(NEEDED, picture.ledgers.widest)
    if len(picture.writable) >= needed:
        return None
    what = f"{_counted(len(picture.writable), 'bookie')} can be written"
    if not picture.writable:
        return Finding("no-bookies", Severity.DANGER, "no bookie can be written", _return_of(picture))
    return Finding(
        "too-few-bookies",
        Severity.WARNING,
        f"{what}: ledgers that want {needed} cannot be made, and a writer that loses one finds no other",
        "start more bookies, or make ledgers with smaller ensembles",
    )


def gone(picture: Picture) -> Finding | None:
    if not picture.gone:
        return None
    return Finding(
        "lost-bookies",
        Severity.WARNING,
        f"not there: {_listed(picture.gone)}",
        "start them again; a bookie that will not return is taken out by `bookkeeper shell decommissionbookie "
        "-bookieid BOOKIE` once its ledgers are copied",
    )


def strangers(picture: Picture) -> Finding | None:
    found = (picture.writable | picture.read_only) - picture.cookies
    if not found:
        return None
    return Finding(
        "no-cookie",
        Severity.WARNING,
        f"registered, but without a cookie: {_listed(found)}",
        "it was deleted while they ran, and they will not start again: put it back by `bookkeeper shell cookie_create "
        "BOOKIE -cf FILE`, with current/VERSION of any of the bookie's directories",
    )


def silent(picture: Picture) -> Finding | None:
    found = [bookie for bookie, seen in picture.bookies.items() if seen.seconds is None]
    if not found:
        return None
    return Finding(
        "silent-bookies",
        Severity.DANGER,
        f"registered, but not answering: {_listed(found)}",
        "see whether they run, whether their address can be reached from here, and what their logs say",
    )


def slow(picture: Picture) -> Finding | None:
    found = {
        bookie: seen.seconds
        for bookie, seen in picture.bookies.items()
        if seen.seconds is not None and seen.seconds > picture.worth.slow_seconds
    }
    if not found:
        return None
    times = ", ".join(f"{bookie} ({seconds:.1f} s)" for bookie, seconds in sorted(found.items()))
    return Finding("slow-bookies", Severity.WARNING, f"slow to answer: {times}", "look at their disks and their load")


def read_only(picture: Picture) -> Finding | None:
    if not picture.read_only:
        return None
    used = ", ".join(
        f"{bookie} ({picture.bookies[bookie].used:.0%} of its disks used)" if bookie in picture.bookies else bookie
        for bookie in sorted(picture.read_only)
    )
    return Finding(
        "read-only",
        Severity.WARNING,
        f"read-only: {used}",
        "free space on its disks, or add some; it is writable again by itself below `diskUsageLwmThreshold`",
    )


def full(picture: Picture) -> Finding | None:
    found = {bookie: seen.used for bookie, seen in picture.bookies.items() if seen.used >= picture.worth.full}
    found = {bookie: used for bookie, used in found.items() if bookie not in picture.read_only}
    if not found:
        return None
    used = ", ".join(f"{bookie} ({share:.0%})" for bookie, share in sorted(found.items()))
    return Finding(
        "nearly-full",
        Severity.WARNING,
        f"disks nearly full: {used}",
        "delete ledgers, add bookies or disks; at `diskUsageThreshold` they become read-only",
    )


# --- repair ---


def nobody_repairs(picture: Picture) -> Finding | None:
    if picture.auditor is not None:
        return None
    wanted = bool(picture.gone or picture.marked.count)
    return Finding(
        "no-auditor",
        Severity.WARNING if wanted else Severity.NOTE,
        "no auditor: nobody notices lost bookies" + (", and some are lost" if wanted else ""),
        "run `bookkeeper autorecovery`, or bookies with autoRecoveryDaemonEnabled=true",
    )


def repair_off(picture: Picture) -> Finding | None:
    if picture.repair_enabled:
        return None
    return Finding(
        "repair-disabled",
        Severity.WARNING,
        "autorecovery is switched off",
        "`bookkeeper shell autorecovery -enable` when maintenance is over",
    )


def long_delay(picture: Picture) -> Finding | None:
    if picture.delay < LONG_DELAY_SECONDS:
        return None
    return Finding(
        "long-delay",
        Severity.NOTE,
        f"a lost bookie is waited for {_duration(picture.delay)} before its ledgers are copied",
        "`bookkeeper shell lostbookierecoverydelay -set SECONDS` if that is too long",
    )


def marked(picture: Picture) -> Finding | None:
    if not picture.marked.count:
        return None
    age = 0.0 if picture.oldest_mark_ms is None else max(0, picture.now_ms - picture.oldest_mark_ms) / 1000
    return Finding(
        "marked",
        Severity.WARNING if age > OLD_MARK_SECONDS else Severity.NOTE,
        f"{_counted(picture.marked.count, 'ledger')} marked for repair"
        + (f", the oldest for {_duration(age)}" if age else ""),
        "`bookkeeper shell queryautorecoverystatus` shows who works on them; if nobody does, see whether autorecovery "
        "runs and finds enough bookies",
    )


def no_health_check(picture: Picture) -> Finding | None:
    if picture.health_check:
        return None
    return Finding("health-check-disabled", Severity.NOTE, "clients are told not to shun bookies that fail")


CHECKS: tuple[Callable[[Picture], Finding | None], ...] = (
    not_initialised,
    unreadable,
    unrecoverable,
    corrupt,
    silent,
    too_few,
    last_copy,
    short,
    gone,
    strangers,
    slow,
    read_only,
    full,
    repair_off,
    nobody_repairs,
    marked,
    long_delay,
    old_open,
    no_health_check,
)
"""In the order in which findings of one severity are told."""


# --- words ---


def _ledgers(kind: Kind, severity: Severity, name: str, what: str, advice: str) -> Finding | None:
    if not kind.count:
        return None
    some = ", ".join(map(str, kind.examples))
    more = ", ..." if kind.count > len(kind.examples) else ""
    return Finding(name, severity, f"{_counted(kind.count, 'ledger')} ({some}{more}) {what}", advice)


def _return_of(picture: Picture) -> str:
    return f"start {_listed(picture.gone)} again" if picture.gone else "start bookies"


def _repair(picture: Picture) -> str:
    if not picture.repair_enabled:
        return "switch autorecovery on: `bookkeeper shell autorecovery -enable`"
    if picture.auditor is None:
        return "start the bookies that are gone, or `bookkeeper autorecovery`, which copies what they had"
    return "autorecovery copies them when the delay is over; `bookkeeper shell triggeraudit` does not wait for it"


def _listed(bookies: Collection[str]) -> str:
    return ", ".join(sorted(bookies))


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
