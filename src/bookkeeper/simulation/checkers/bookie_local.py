"""After each start of a bookie: whatever it has answered before is still there (spec safety BI-1 to BI-4)."""

from __future__ import annotations

from ...bookie.bookie import Bookie
from ...errors import BookKeeperError, NoLedgerError
from ..history import History, Violation
from ..wire import BookiePromises


async def check_bookie(name: str, bookie: Bookie, promises: BookiePromises, history: History) -> int:
    """Compare a bookie that has just started with what it promised; returns the number of entries compared."""
    storage = bookie.storage
    compared = 0
    # What it promised before; it serves already, and goes on promising.
    fenced = list(promises.fenced)
    promised = {ledger_id: list(acked) for ledger_id, acked in promises.acked.items()}
    for ledger_id in fenced:
        if not _deleted(history, ledger_id) and not (storage.ledger_exists(ledger_id) and storage.is_fenced(ledger_id)):
            raise Violation(f"{name} has forgotten that it fenced ledger {ledger_id}")
    for ledger_id, acked in promised.items():
        if _deleted(history, ledger_id):
            continue
        if not storage.master_key(ledger_id):
            raise Violation(f"{name} has forgotten the master key of ledger {ledger_id}")
        try:
            held = set(await storage.list_entries(ledger_id))
        except NoLedgerError:
            if _deleted(history, ledger_id):
                continue
            raise
        for entry_id in acked:
            if entry_id not in held:
                raise Violation(f"{name} acknowledged entry {entry_id} of ledger {ledger_id} and does not have it")
        for entry_id in sorted(held):
            try:
                entry = await storage.read_entry(ledger_id, entry_id)
            except (BookKeeperError, OSError) as error:
                if _deleted(history, ledger_id):
                    break
                raise Violation(f"{name} cannot read entry {entry_id} of ledger {ledger_id}: {error!r}") from error
            if bytes(entry) not in promises.versions.get((ledger_id, entry_id), ()):
                raise Violation(f"{name} has an entry {entry_id} of ledger {ledger_id} that it was never sent")
            compared += 1
    return compared


def _deleted(history: History, ledger_id: int) -> bool:
    ledger = history.ledgers.get(ledger_id)
    return ledger is not None and ledger.delete_started
