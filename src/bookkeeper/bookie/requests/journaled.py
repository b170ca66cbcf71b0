"""Requests that are answered when the journal has taken something: WRITE_LAC and FORCE_LEDGER.

Spec bookie-server §2.11, §2.12. What one caller may have waiting for the journal is bounded (`Caller.may_use_journal`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from ...errors import NoWritableLedgerDirError
from ...protocol import messages as m
from ...protocol.entry import LAC_HEADER, LAC_HEADER_SIZE
from ...protocol.limits import MAX_LAC_BODY
from ...protocol.messages import Status
from ..ground import Ground
from ..journal.format import explicit_lac_record
from .caller import Caller
from .error_status import WRITE_LAC, status_of
from .replies import Reply

LAC_RECORDS = 256
"""No more bytes than that go into the journal for a WRITE_LAC: the record, and the one of the ledger's key."""


class Spawn(Protocol):
    """Runs a task that ends with the service."""

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> None: ...


class JournalPath:
    """See the module."""

    def __init__(self, ground: Ground, flush_storage: Callable[[], Coroutine[Any, Any, None]], spawn: Spawn) -> None:
        self._runtime = ground.runtime
        self._write_data = ground.config.journalWriteData
        self._storage = ground.storage
        self._journals = ground.journals
        self._ledgers = ground.ledgers
        self._state = ground.state
        self._stats = ground.stats
        self._on_error = ground.on_error
        self._flush_storage = flush_storage
        self._spawn = spawn

    async def wait_for_room(self, reply: Reply[m.WriteLacRequest]) -> None:
        """Wait until a WRITE_LAC can be tried again."""
        ledger_id, _ = LAC_HEADER.unpack_from(reply.request.body)
        await self._journals.of(ledger_id).room.wait(LAC_RECORDS)

    def write_lac(self, caller: Caller, reply: Reply[m.WriteLacRequest]) -> bool:
        """Keep the body of the request as the ledger's explicit LAC. What counts is the ledger id in the body.

        False if it has to wait for room in the journal: nothing has happened then.
        """
        request = reply.request
        if not caller.may_use_journal:
            caller.send(reply.plain(Status.ETOOMANYREQUESTS))
            return True
        if self._state.read_only:
            caller.send(reply.plain(Status.EREADONLY))
            return True
        body = request.body
        ledger_id, lac = LAC_HEADER.unpack_from(body) if len(body) >= LAC_HEADER_SIZE else (-1, -1)
        if ledger_id < 0 or len(body) > MAX_LAC_BODY:
            self._stats.WRITE_LAC.fail()
            caller.send(reply.plain(Status.EBADREQ))
            return True
        journal = self._journals.of(ledger_id)
        if not journal.room.has(LAC_RECORDS):
            return False
        try:
            handle = self._ledgers.open(ledger_id, request.master_key)
            self._storage.set_explicit_lac(ledger_id, body)
        except Exception as error:
            if isinstance(error, NoWritableLedgerDirError):
                self._state.no_space(str(error))
            self._stats.WRITE_LAC.fail()
            caller.send(reply.plain(status_of(error, WRITE_LAC)))
            return True
        self._ledgers.raise_lac(handle, lac)
        caller.waits_for_journal()
        done = partial(self._journal_has_it, caller, reply, self._runtime.now())
        if journal.journals_explicit_lac:
            self._journals.append(handle, explicit_lac_record(ledger_id, body), done)
        else:
            journal.force(done)
        return True

    def force(self, caller: Caller, reply: Reply[m.ForceLedgerRequest]) -> bool:
        """Answer when everything that the ledger's journal took before is synced. Never waits for room."""
        if not caller.may_use_journal:
            caller.send(reply.plain(Status.ETOOMANYREQUESTS))
            return True
        caller.waits_for_journal()
        started = self._runtime.now()
        if self._write_data:
            done = partial(self._journal_has_it, caller, reply, started)
            self._journals.of(reply.request.ledger_id).force(done)
        else:
            self._spawn(self._force_storage(caller, reply, started), name="force")
        return True

    async def _force_storage(self, caller: Caller, reply: Reply[m.Request], started: float) -> None:
        """Without entries in the journal, durable means flushed (G17)."""
        try:
            await self._flush_storage()
        except OSError as error:
            caller.journal_has_it()
            self._stats.FORCE_LEDGER.fail(self._runtime.now() - started)
            self._state.no_space(str(error))
            caller.send(reply.plain(Status.EIO))
            return
        self._journal_has_it(caller, reply, started)

    def _journal_has_it(self, caller: Caller, reply: Reply[m.Request], started: float) -> None:
        """Runs in one loop with the acknowledgements of others: what goes wrong here must not stop those."""
        try:
            caller.journal_has_it()
            is_lac = isinstance(reply.request, m.WriteLacRequest)
            (self._stats.WRITE_LAC if is_lac else self._stats.FORCE_LEDGER).ok(self._runtime.now() - started)
            caller.send(reply.plain(Status.EOK))
        except Exception as error:
            self._on_error(error)
