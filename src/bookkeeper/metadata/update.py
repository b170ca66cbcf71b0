"""The metadata update loop: change a ledger's record by compare-and-set until it sticks (spec client §7)."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import VersionConflict
from .api import LedgerStore, Versioned
from .ledger_metadata import LedgerMetadata


async def update_ledger(
    store: LedgerStore,
    ledger_id: int,
    current: Versioned[LedgerMetadata],
    needs: Callable[[LedgerMetadata], bool],
    transform: Callable[[LedgerMetadata], LedgerMetadata],
) -> Versioned[LedgerMetadata]:
    """Make the record such that `needs` is false of it, and return it.

    Both functions are pure and run again on each attempt, on the record read anew after another client changed it;
    either may raise to give up (closing a ledger that was closed differently). There is no limit of attempts: a
    conflict means that another client made progress. A caller with a copy that may change meanwhile installs the
    result only if its version is greater than that of the copy. Raises what the store raises, except
    `VersionConflict`.
    """
    while needs(current.value):
        changed = transform(current.value)
        try:
            return await store.write(ledger_id, changed, current.version)
        except VersionConflict:
            current = await store.read(ledger_id)
    return current
