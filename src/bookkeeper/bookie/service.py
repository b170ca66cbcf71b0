"""What the connections of a bookie share: where each kind of request is served, and which connections there are.

Theory of operation

Reads are served by `reads`, adds by `adds`. Here are the two requests that are answered when the journal has taken
something: WRITE_LAC and FORCE_LEDGER (spec bookie-server §2.11, §2.12).

Connections are refused until the bookie serves. Now and then the connections are looked over for a frame that began
long ago and was never completed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import NoWritableLedgerDirError
from bookkeeper.protocol import messages as m
from bookkeeper.protocol.entry import LAC_HEADER, LAC_HEADER_SIZE
from bookkeeper.protocol.messages import Status
from bookkeeper.runtime import Runtime, TaskScope

from .adds import AddPath
from .connection import BookieConnection
from .journal_format import explicit_lac_record
from .journals import Journals
from .ledgers import LedgerTable
from .reads import MAX_IN_JOURNAL_PER_CONNECTION, ReadPath
from .replies import Reply
from .state import BookieState
from .stats import BookieStats
from .status import WRITE_LAC, status_of
from .storage.api import LedgerStorage

log = logging.getLogger(__name__)


class RequestService:
    """Serves the requests of all connections."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        storage: LedgerStorage,
        journals: Journals,
        ledgers: LedgerTable,
        state: BookieState,
        stats: BookieStats,
        adds: AddPath,
        reads: ReadPath,
        flush_storage: Callable[[], Coroutine[Any, Any, None]],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.state = state
        self.stats = stats
        self.adds = adds
        self.reads = reads
        self._storage = storage
        self._journals = journals
        self._ledgers = ledgers
        self._flush_storage = flush_storage
        self._on_error = on_error
        self._scope = TaskScope(runtime, "requests", lambda _, error: on_error(error))
        self._connections: dict[BookieConnection, None] = {}
        self._closed = False
        self.serving = False
        """Connections are accepted."""

    # --- connections -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Accept connections from now on."""
        self.serving = True
        self.spawn(self._watch_frames(), name="frame deadlines")

    def admit(self, connection: BookieConnection) -> bool:
        """Whether a new connection may stay."""
        if not self.serving or len(self._connections) >= self.config.maxConnections:
            self.stats.connections_refused += 1
            return False
        self._connections[connection] = None
        return True

    def connections(self) -> list[BookieConnection]:
        return list(self._connections)

    def left(self, connection: BookieConnection) -> None:
        self._connections.pop(connection, None)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a task that ends with the service; after that it does not begin."""
        if self._closed:
            work.close()
        else:
            self._scope.spawn(work, name=name)

    async def drain(self, timeout: float) -> None:
        """Take no new connections, wait up to `timeout` seconds for adds in flight to be answered, then close all."""
        self.serving = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.adds.permits.wait_until_idle()
        for connection in list(self._connections):
            connection.close()

    def drop_connections(self) -> None:
        """Drop all connections at once, and take no new ones."""
        self.serving = False
        self._closed = True
        for connection in list(self._connections):
            connection.abort()

    async def close(self) -> None:
        """Drop all connections and end all tasks."""
        self.drop_connections()
        await self._scope.close()
        await self.reads.close()

    async def _watch_frames(self) -> None:
        limit = self.config.frameCompletionTimeoutMs / 1000
        while True:
            await asyncio.sleep(limit / 4)
            oldest = self.runtime.now() - limit
            for connection in list(self._connections):
                if connection.partial_since is not None and connection.partial_since < oldest:
                    log.info("closing the connection of %s: its frame is not completed", connection.peer)
                    connection.abort()

    # --- reads ------------------------------------------------------------------------------------------------

    def read(self, connection: BookieConnection, reply: Reply) -> bool:
        """Serve a request that reads; False if it has to wait for a permit."""
        match reply.request:
            case m.ReadRequest():
                return self.reads.read(connection, reply)
            case m.BatchReadRequest():
                return self.reads.batch_read(connection, reply)
            case m.ReadLacRequest():
                return self.reads.read_lac(connection, reply)
            case m.GetBookieInfoRequest():
                return self.reads.bookie_info(connection, reply)
            case m.GetListOfEntriesRequest():
                return self.reads.list_entries(connection, reply)
        raise AssertionError(f"{type(reply.request).__name__} is not a read")

    # --- WRITE_LAC and FORCE_LEDGER ---------------------------------------------------------------------------

    def to_journal(self, connection: BookieConnection, reply: Reply) -> None:
        """Serve a WRITE_LAC or FORCE_LEDGER."""
        if connection.in_journal >= MAX_IN_JOURNAL_PER_CONNECTION:
            connection.send(reply.plain(Status.ETOOMANYREQUESTS))
        elif isinstance(reply.request, m.WriteLacRequest):
            self._write_lac(connection, reply, reply.request)
        else:
            assert isinstance(reply.request, m.ForceLedgerRequest)
            self._force(connection, reply, reply.request)

    def _write_lac(self, connection: BookieConnection, reply: Reply, request: m.WriteLacRequest) -> None:
        """Keep the body of the request as the ledger's explicit LAC. What counts is the ledger id in the body."""
        if self.state.read_only:
            connection.send(reply.plain(Status.EREADONLY))
            return
        body = request.body
        ledger_id, lac = LAC_HEADER.unpack_from(body) if len(body) >= LAC_HEADER_SIZE else (-1, -1)
        if ledger_id < 0:
            self.stats.WRITE_LAC.fail()
            connection.send(reply.plain(Status.EBADREQ))
            return
        try:
            handle = self._ledgers.open(ledger_id, request.master_key)
            self._storage.set_explicit_lac(ledger_id, body)
        except Exception as error:
            if isinstance(error, NoWritableLedgerDirError):
                self.state.no_space(str(error))
            self.stats.WRITE_LAC.fail()
            connection.send(reply.plain(status_of(error, WRITE_LAC)))
            return
        self._ledgers.raise_lac(handle, lac)
        connection.in_journal += 1
        done = partial(self._journal_has_it, connection, reply, self.runtime.now())
        journal = self._journals.of(ledger_id)
        if journal.journals_explicit_lac:
            self._journals.append(handle, explicit_lac_record(ledger_id, body), done)
        else:
            journal.force(done)

    def _force(self, connection: BookieConnection, reply: Reply, request: m.ForceLedgerRequest) -> None:
        """Answer when everything that the ledger's journal took before is synced."""
        connection.in_journal += 1
        started = self.runtime.now()
        if self.config.journalWriteData:
            self._journals.of(request.ledger_id).force(partial(self._journal_has_it, connection, reply, started))
        else:
            self.spawn(self._force_storage(connection, reply, started), name="force")

    async def _force_storage(self, connection: BookieConnection, reply: Reply, started: float) -> None:
        """Without entries in the journal, durable means flushed (G17)."""
        try:
            await self._flush_storage()
        except OSError as error:
            connection.in_journal -= 1
            self.stats.FORCE_LEDGER.fail(self.runtime.now() - started)
            self.state.no_space(str(error))
            connection.send(reply.plain(Status.EIO))
            return
        self._journal_has_it(connection, reply, started)

    def _journal_has_it(self, connection: BookieConnection, reply: Reply, started: float) -> None:
        connection.in_journal -= 1
        is_lac = isinstance(reply.request, m.WriteLacRequest)
        (self.stats.WRITE_LAC if is_lac else self.stats.FORCE_LEDGER).ok(self.runtime.now() - started)
        connection.send(reply.plain(Status.EOK))
