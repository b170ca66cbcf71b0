"""Why an entry can or cannot be read: what its bookies say, and what follows from that.

Nothing is changed: no ledger is fenced, no writer disturbed. The verdict is a pure function of what was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..client.client import BookKeeper
from ..client.reads.replicas import Copy, CopyStatus, Replicas
from ..errors import BKError
from ..metadata.api import MetadataDriver
from ..metadata.ledger_metadata import LedgerMetadata
from ..types import BookieId
from .checker import digest_of

RESTORE = "restore it from a backup"


class Registration(StrEnum):
    """What the metadata store knows of a bookie now."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    GONE = "not registered"


@dataclass(frozen=True, slots=True)
class Witness:
    """One bookie of an entry's write set, and what it said."""

    bookie: BookieId
    registration: Registration
    status: CopyStatus | None
    """What is wrong with its copy; None: it is good."""
    detail: str = ""

    @property
    def text(self) -> str:
        return "has a good copy" if self.status is None else self.detail


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows."""

    readable: bool
    summary: str
    advice: str = ""
    """What to do; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was seen of one entry."""

    metadata: LedgerMetadata
    last_confirmed: int | None
    """Of a ledger that is not closed, as its bookies say; None: too few of them answered."""
    marked: Sequence[str]
    """Bookies whose copies are marked for repair."""
    entry_id: int | None
    """None: the ledger has no entries that one could ask for."""
    witnesses: Sequence[Witness] = ()


async def look_into(
    driver: MetadataDriver, client: BookKeeper, ledger_id: int, entry_id: int | None = None
) -> Findings:
    """Ask every bookie of an entry for its copy. `entry_id`: None for the last one.

    Raises `NoSuchLedgerOnMetadataError`, and what the metadata store raises.
    """
    metadata = await client.get_ledger_metadata(ledger_id)
    confirmed = None if metadata.closed else await _last_confirmed(client, ledger_id)
    mark = await driver.underreplication.info(ledger_id)
    if entry_id is None:
        last = metadata.last_entry_id if metadata.closed else -1 if confirmed is None else confirmed
        entry_id = last if last >= 0 else None
    witnesses = [] if entry_id is None else await _witnesses(client, metadata, entry_id)
    return Findings(metadata, confirmed, tuple(mark.replicas) if mark else (), entry_id, witnesses)


async def _last_confirmed(client: BookKeeper, ledger_id: int) -> int | None:
    try:
        async with client.open_ledger_as_admin(ledger_id) as reader:
            return await reader.read_last_add_confirmed()
    except BKError:
        return None


async def _witnesses(client: BookKeeper, metadata: LedgerMetadata, entry_id: int) -> list[Witness]:
    writable, readonly = await client.writable_bookies(), await client.readonly_bookies()
    replicas = Replicas(client.context, metadata, digest_of(metadata))
    bookies = replicas.bookies(entry_id)
    replies = await asyncio.gather(*(replicas.one(bookie, entry_id) for bookie in bookies))
    found = []
    for bookie, reply in zip(bookies, replies, strict=True):
        copy = replicas.examine(entry_id, reply)
        registration = (
            Registration.WRITABLE
            if bookie in writable
            else Registration.READ_ONLY
            if bookie in readonly
            else Registration.GONE
        )
        if isinstance(copy, Copy):
            found.append(Witness(bookie, registration, None))
        else:
            found.append(Witness(bookie, registration, copy.status, copy.detail))
    return found


def judge(findings: Findings) -> Verdict:
    """What follows from what was seen. Pure."""
    metadata, entry_id = findings.metadata, findings.entry_id
    if entry_id is None:
        if metadata.closed:
            return Verdict(False, "the ledger is closed and has no entries")
        if findings.last_confirmed is None:
            return Verdict(False, "too few bookies say how far the ledger has got", "look at its bookies")
        return Verdict(False, "no entry of the ledger is confirmed yet")
    if metadata.closed and entry_id > metadata.last_entry_id:
        return Verdict(False, f"the ledger is closed and ends with entry {metadata.last_entry_id}")
    good = [each.bookie for each in findings.witnesses if each.status is None]
    bad = [each for each in findings.witnesses if each.status is not None]
    if good:
        return _readable(findings, entry_id, good, bad)
    silent = [each.bookie for each in bad if each.status is CopyStatus.UNREACHABLE]
    if silent:
        return Verdict(
            False,
            f"entry {entry_id} cannot be read: no good copy was seen, and {', '.join(silent)} could not be asked",
            f"bring {' or '.join(silent)} back",
        )
    if any(each.status is CopyStatus.DAMAGED for each in bad):
        return Verdict(
            False, f"entry {entry_id} is lost: every copy that is left is damaged", "restore it from a backup"
        )
    if metadata.closed:
        return Verdict(False, f"entry {entry_id} is lost: none of its bookies has it", "restore it from a backup")
    return Verdict(False, f"entry {entry_id} is on none of its bookies: it was not written yet")


def _readable(findings: Findings, entry_id: int, good: Sequence[BookieId], bad: Sequence[Witness]) -> Verdict:
    summary = f"entry {entry_id} can be read from {', '.join(good)}"
    confirmed = findings.last_confirmed
    if not findings.metadata.closed and (confirmed is None or entry_id > confirmed):
        return Verdict(
            False,
            f"entry {entry_id} is on {', '.join(good)}, and is not known to be confirmed",
            "wait for the writer, or end it: `bookkeeper ledger read --recover` fences it, and decides",
        )
    if not bad:
        return Verdict(True, summary)
    fewer = f"{summary}; {len(bad)} of {len(good) + len(bad)} copies are missing"
    marked = [each.bookie for each in bad if each.bookie in findings.marked]
    if marked:
        return Verdict(True, fewer, "it is marked for repair: see that `bookkeeper autorecovery` runs")
    return Verdict(True, fewer, "`bookkeeper shell triggeraudit` has it looked at, where autorecovery runs")
