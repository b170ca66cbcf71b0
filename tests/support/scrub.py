"""How tests that end in repair end: every copy of every entry is read and verified."""

from __future__ import annotations

from collections.abc import Iterable

from bookkeeper.autorecovery.checker import LedgerChecker
from bookkeeper.client.client import BookKeeper

ALL = 100
"""Per cent of the entries that are looked at."""


async def bad_copies(bk: BookKeeper, ledgers: Iterable[int] | None = None) -> list[str]:
    """Copies that are not on the bookies that their ledgers' records name, or are damaged; empty when all are good.

    `ledgers`: those to look at; None: all in the cluster. Of an open one all that is confirmed is looked at.
    """
    available = await bk.writable_bookies() | await bk.readonly_bookies()
    checker = LedgerChecker(bk.context.runtime, bk.context)
    bad = []
    for ledger_id in [each async for each in bk.list_ledgers()] if ledgers is None else ledgers:
        async with bk.open_ledger_as_admin(ledger_id) as reader:
            record = await bk.get_ledger_metadata(ledger_id)
            for damage in await checker.check(record, reader.last_add_confirmed, available, ALL):
                fragment, bookies = damage.fragment, ", ".join(damage.bookies)
                bad.append(f"ledger {ledger_id}, entries {fragment.first} to {fragment.last}: not all on {bookies}")
    return bad
