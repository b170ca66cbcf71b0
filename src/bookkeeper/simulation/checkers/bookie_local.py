"""After each start of a bookie: whatever it has answered before is still there (spec safety BI-1 to BI-4, BI-23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from ...bookie.bookie import Bookie
from ...bookie.storage.api import LedgerStorage
from ...errors import BookKeeperError, NoEntryError, NoLedgerError
from ...protocol.entry import LAC_HEADER
from ..history import History, Violation
from ..wire import BookiePromises

RUN_BYTES = 1 << 20


async def check_bookie(
    name: str, bookie: Bookie, promises: BookiePromises, history: History, damaged: Callable[[], bool]
) -> int:
    """Compare a bookie that has just started with what it promised; returns the number of entries compared.

    `damaged`: whether bits of its disk have been flipped by now: then it may fail to read an entry, or give it out
    broken, which its readers find out; but it must not deny it.
    """
    storage = bookie.storage
    # What it promised before; it serves already, and goes on promising.
    fenced = list(promises.fenced)
    lacs = list(promises.explicit_lac.items())
    promised = {ledger_id: promises.must_have(ledger_id) for ledger_id in promises.acked}
    for ledger_id in fenced:
        if not history.is_deleted(ledger_id) and not (
            storage.ledger_exists(ledger_id) and storage.is_fenced(ledger_id)
        ):
            raise Violation(f"{name} has forgotten that it fenced ledger {ledger_id}")
    for ledger_id, lac in lacs:
        body = storage.explicit_lac(ledger_id)
        known = -1 if body is None else LAC_HEADER.unpack_from(body)[1]
        if known < lac and not history.is_deleted(ledger_id):
            raise Violation(f"{name} acknowledged the explicit LAC {lac} of ledger {ledger_id}, and has {known}")
    compared = 0
    for ledger_id, acked in promised.items():
        if not history.is_deleted(ledger_id):
            compared += await _check_ledger(name, storage, ledger_id, acked, promises, history, damaged)
    return compared


async def _check_ledger(
    name: str,
    storage: LedgerStorage,
    ledger_id: int,
    acked: Sequence[int],
    promises: BookiePromises,
    history: History,
    damaged: Callable[[], bool],
) -> int:
    if storage.is_limbo(ledger_id):  # it says so; what it must not forget is that no writer goes on here (BI-24)
        if not storage.is_fenced(ledger_id):
            raise Violation(f"{name} has ledger {ledger_id} in limbo, and has not fenced it")
        return 0
    if acked and not storage.master_key(ledger_id):
        raise Violation(f"{name} has forgotten the master key of ledger {ledger_id}")
    try:
        held = dict.fromkeys(await storage.list_entries(ledger_id))
    except NoLedgerError:
        if history.is_deleted(ledger_id) or not acked:
            return 0
        raise
    for entry_id in acked:
        if entry_id not in held and not history.is_deleted(ledger_id):
            raise Violation(f"{name} acknowledged entry {entry_id} of ledger {ledger_id} and does not have it")
    compared = 0
    for first, count in _runs(list(held)):
        compared += await _check_run(name, storage, ledger_id, first, count, promises, history, damaged)
    return compared


async def _check_run(
    name: str,
    storage: LedgerStorage,
    ledger_id: int,
    first: int,
    count: int,
    promises: BookiePromises,
    history: History,
    damaged: Callable[[], bool],
) -> int:
    entry_id, end = first, first + count
    while entry_id < end:
        try:
            run = await storage.read_run(ledger_id, entry_id, end - entry_id, RUN_BYTES)
        except (BookKeeperError, OSError) as error:
            if history.is_deleted(ledger_id):
                break
            if damaged() and not isinstance(error, NoEntryError | NoLedgerError):
                entry_id += 1
                continue
            raise Violation(f"{name} cannot read entry {entry_id} of ledger {ledger_id}: {error!r}") from error
        for entry in _split(run):
            if not promises.may_have(ledger_id, entry_id, entry) and not damaged():
                raise Violation(f"{name} has an entry {entry_id} of ledger {ledger_id} that it was never sent")
            entry_id += 1
    return entry_id - first


def _runs(entry_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First id and length of each run of consecutive ids."""
    for _, group in groupby(enumerate(entry_ids), key=lambda pair: pair[1] - pair[0]):
        ids = [entry_id for _, entry_id in group]
        yield ids[0], len(ids)


def _split(run: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(run):
        size = int.from_bytes(run[offset : offset + 4], "big")
        yield run[offset + 4 : offset + 4 + size]
        offset += 4 + size
