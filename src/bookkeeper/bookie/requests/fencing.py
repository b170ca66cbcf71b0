"""Fencing: after it no normal add of the ledger is accepted any more, ever (spec bookie-server §2.6).

Theory of operation

The fence is set in the storage at once, so that adds see it from the next turn of the loop on, and its record goes to
the ledger's journal, behind the records of every add that was accepted before. No client hears of it before that record
is durable, whatever is answered then: a client counts "no such entry" of a fencing read as a promise too (G1, BI-2).
Fences that come while the record is on its way share it; a ledger that was fenced by an earlier run of the bookie is
durable already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..ground import Ground
from ..journal.format import fence_record
from ..ledgers import BookieLedger


class Fences:
    """Sets fences."""

    def __init__(self, ground: Ground) -> None:
        # `on_error` is told when one who waits for a fence raises: the others hear of the fence all the same.
        self._on_error = ground.on_error
        self._storage = ground.storage
        self._journals = ground.journals
        self._ledgers = ground.ledgers

    def fence(self, ledger_id: int, key: bytes, durable: Callable[[], None]) -> None:
        """Fence the ledger, creating it if it is unknown here; `durable()` when that outlasts a crash.

        Raises `UnauthorizedAccessError`, `FencedAndDeletedError`; nothing has been fenced then.
        """
        handle = self._ledgers.open(ledger_id, key)
        if handle.fence_waiters is not None:
            handle.fence_waiters.append(durable)
        elif handle.fenced:
            durable()
        else:
            self._storage.set_fenced(ledger_id)
            handle.fence()
            handle.fence_waiters = [durable]
            self._journals.append(handle, fence_record(ledger_id), partial(self._durable, handle))
            if handle.polls:
                self._ledgers.on_polls_due(handle, None)

    def _durable(self, handle: BookieLedger) -> None:
        assert handle.fence_waiters is not None
        waiters, handle.fence_waiters = handle.fence_waiters, None
        for durable in waiters:
            try:
                durable()
            except Exception as error:
                self._on_error(error)
