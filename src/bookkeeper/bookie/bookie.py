"""A bookie: its parts, the order in which they start and stop, and how it ends (spec bookie-server §1).

Theory of operation

Start. Everything that can refuse comes first and changes nothing: settings, directories, identity, cookies, disks.
The port is bound before the journals are replayed, so that a second process fails early; connections are dropped
until all is ready. After replay the storage is flushed and the marks are moved, then the bookie marks itself DIRTY,
serves, and only then registers: no client is sent to a bookie that turns it away (G20).

Stop. Unregister, let the adds in flight finish (for a bounded time), close the connections, checkpoint, close
journals, then the storage; take the DIRTY mark away. Nothing is acknowledged after the journals are closed.

Failure. What cannot be gone on with (a failed journal or storage, a failed disk, a lost name) ends the bookie from
inside: connections are dropped at once and the registration is taken back, nothing is flushed, the DIRTY mark stays,
and the next start recovers from disk. The first reason decides the exit code.

Bounds. A dying disk may hold a call for ever, and whoever waits for that call. So the end is waited for only so long:
`shutdownTimeoutMs` at an orderly stop, `FAILURE_SECONDS` after a failure, when there is nothing to write any more. Then
`wait_stopped` returns all the same, `hangs` says that something still runs, and the process is to be ended hard: that
is as safe as a crash, for which everything here is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Any, cast

from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import BookKeeperError, ConfigurationError, NoWritableLedgerDirError
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.metadata.uri import configured_service_uri
from bookkeeper.runtime import Runtime, ServiceListener, SocketOptions, TaskScope
from bookkeeper.types import BookieId
from bookkeeper.version import __version__

from .checkpoint import Checkpointer
from .journal.apply import RecordApplier
from .journal.journal import Journal
from .journal.journals import Journals
from .journal.last_mark import MarkFiles, file_name
from .ledgers import LedgerTable
from .node import dirty
from .node.compaction_switch import CompactionSwitch
from .node.cookies import check_cookies
from .node.directories import Directories, current
from .node.disks import DiskMonitor, DiskVerdict, journal_bytes
from .node.exit_code import ExitCode
from .node.identity import Identity, identify, service_info
from .node.mode import BookieState
from .node.validate import validate, warn
from .requests.adds import AddPath
from .requests.connection import BookieConnection
from .requests.fencing import Fences
from .requests.reads import ReadPath
from .requests.service import RequestService, ServedConnection
from .stats import BookieStats
from .storage.api import LedgerStorage
from .storage.engines import create_storage

__all__ = ["Bookie", "ExitCode"]

log = logging.getLogger(__name__)

UNREGISTER_SECONDS = 2.0
"""How long a stop waits for the metadata store to take the registration back."""


FAILURE_SECONDS = 10.0
"""How long the end may take after a failure, when nothing is written any more."""


def is_explained(error: BaseException) -> bool:
    """Whether the text of an error says what is needed, so that no traceback has to: a disk, the store, a refusal."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, OSError | BookKeeperError)


class _Refusal(asyncio.Protocol):
    """A connection that came too early."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class Bookie:
    """One bookie. `start`, then `wait_stopped`; `stop` ends it orderly."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, driver: MetadataDriver | None = None) -> None:
        """`driver`: an open driver, which stays the caller's; None: the bookie opens its own."""
        self._runtime = runtime
        self._config = config
        self._driver = driver
        self._owns_driver = driver is None
        self._directories = Directories.of(config)
        self._identity: Identity | None = None
        self._started = False
        self._phase = ExitCode.SERVER_EXCEPTION  # what a failure of the start ends with, at this point of it
        self._stopping: asyncio.Task[None] | None = None
        self._exit_code: ExitCode | None = None  # set when the end begins
        self._ended: asyncio.Future[ExitCode] | None = None
        self.failure: BaseException | None = None
        """Why it ended by itself."""
        self._closing = ""  # the part that is being closed
        self.hangs = False
        """It has ended as far as that was possible: a disk or a thread still holds something up. End the process."""
        # The parts, from start() on; None where the start has not come to.
        self._scope: TaskScope | None = None
        self._disks: DiskMonitor | None = None
        self._state: BookieState | None = None
        self._storage: LedgerStorage | None = None
        self._journals: Journals | None = None
        self._checkpointer: Checkpointer | None = None
        self._service: RequestService | None = None
        self._listener: ServiceListener | None = None
        self.stats = BookieStats()

    # --- what others ask ---

    @property
    def bookie_id(self) -> BookieId:
        """The bookie's name; known once `start` has returned."""
        assert self._identity is not None, "not started"
        return self._identity.bookie_id

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._listener is not None, "not started"
        return self._listener.port

    @property
    def state(self) -> BookieState:
        assert self._state is not None, "not started"
        return self._state

    @property
    def storage(self) -> LedgerStorage:
        assert self._storage is not None, "not started"
        return self._storage

    @property
    def journals(self) -> Journals:
        assert self._journals is not None, "not started"
        return self._journals

    @property
    def waiting_polls(self) -> int:
        """Long polls that wait for a LAC now."""
        return self.service.reads.polls.waiting

    def connections(self) -> list[ServedConnection]:
        """The client connections that are open now."""
        return self.service.connections()

    @property
    def service(self) -> RequestService:
        assert self._service is not None, "not started"
        return self._service

    @property
    def disks(self) -> DiskMonitor:
        assert self._disks is not None, "not started"
        return self._disks

    @property
    def metadata(self) -> MetadataDriver:
        assert self._driver is not None, "not started"
        return self._driver

    @property
    def ending(self) -> bool:
        """Whether it has stopped or is about to."""
        return self._exit_code is not None

    def exit_code_of(self, error: BaseException) -> ExitCode:
        """The exit code for an error that `start` raised."""
        return ExitCode.INVALID_CONF if isinstance(error, ConfigurationError) else self._phase

    # --- start ---

    async def start(self) -> None:
        """Come up; at return the bookie serves and is registered.

        Raises `ConfigurationError`, `BookKeeperError` or `OSError` if it cannot; everything is closed again then.
        """
        assert not self._started, "started already"
        self._started = True
        self._ended = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except BaseException as error:
            self._exit_code = self._exit_code or self.exit_code_of(error)
            await self._close(orderly=False)
            raise

    async def _start(self) -> None:
        config, runtime = self._config, self._runtime
        files = runtime.files
        validate(config)
        self._scope = TaskScope(runtime, "bookie", lambda _, error: self._fail(ExitCode.BOOKIE_EXCEPTION, error))
        directories = self._directories
        directories.prepare(files, allow_shared_partition=config.allowMultipleDirsUnderSameDiskPartition)
        if self._driver is None:
            self._driver = open_driver(configured_service_uri(config), runtime, config)
            log.info("connecting to the metadata store %s", self._store)
            await self._driver.open()
        self._identity = identity = await identify(runtime, config)
        self._introduce(identity)
        warn(config)
        await check_cookies(files, self._driver, config, directories, identity)
        await self._listen(identity)
        if dirty.was_unclean(files, directories.ledger):
            log.warning("the last run did not end orderly")
        self._disks = DiskMonitor(runtime, config, directories)
        self._state = BookieState(runtime, config, identity.bookie_id, directories.ledger, self._fail)
        self._check_disks(self._disks, self._state)
        storage = create_storage(runtime, config, [current(root) for root in directories.index])
        storage.use_metadata(self._driver, identity.bookie_id)
        await storage.open()
        self._storage = storage
        service = self._build(storage, self._state, self._disks)
        self._phase = ExitCode.BOOKIE_EXCEPTION
        await self._recover(storage, service.adds.ledgers)
        self._state.restore()
        dirty.mark(files, directories.ledger)
        self._disks.add_listener(self._state.on_disks)
        self._disks.add_listener(CompactionSwitch(config, storage).on_disks)
        self._disks.add_listener(self._make_room_for_journals)
        self._scope.spawn(self._disks.run(), name="disk monitor")
        service.start()
        self._state.running = True
        self._phase = ExitCode.ZK_REG_FAIL
        log.info("registering in %s; if an earlier run was killed, its session must end first", self._store)
        await self._state.register(self._driver.registration, service_info(identity.host, self.port))
        mode = "read-only" if self._state.read_only else "writable"
        log.info("bookie %s serves on port %d, %s", identity.bookie_id, self.port, mode)

    @property
    def _store(self) -> str:
        return self._config.metadataServiceUri or self._config.zkServers or "the metadata store"

    def _introduce(self, identity: Identity) -> None:
        """Say who starts here, with what."""
        directories, config = self._directories, self._config
        log.info("bookie %s, BookKeeper for Python %s, metadata store %s", identity.bookie_id, __version__, self._store)
        for key, roots in (
            ("journalDirectories", directories.journal),
            ("ledgerDirectories", directories.ledger),
            ("indexDirectories", directories.index),
        ):
            log.info("%s: %s", key, ", ".join(roots))
        changed = config.changed_settings()
        log.info("settings that are not the defaults: %s", ", ".join(f"{k}={v}" for k, v in changed.items()) or "none")

    def _check_disks(self, disks: DiskMonitor, state: BookieState) -> None:
        """The first look at the disks: a full one makes the bookie start read-only."""
        verdict = disks.check_now()
        if verdict.failed is not None:
            raise OSError(verdict.failed)
        if verdict.full is not None and not self._config.readOnlyModeEnabled:
            raise NoWritableLedgerDirError(
                f"{verdict.full}, and readOnlyModeEnabled=false: free some space, or allow read-only"
            )
        state.on_disks(verdict)

    def _make_room_for_journals(self, verdict: DiskVerdict) -> None:
        if verdict.journal_full and self._checkpointer is not None:
            self._checkpointer.request()

    def _build(self, storage: LedgerStorage, state: BookieState, disks: DiskMonitor) -> RequestService:
        """Put the parts together."""
        config, runtime = self._config, self._runtime
        ledger_paths = [current(root) for root in self._directories.ledger]
        roots = self._directories.journal
        state.on_no_space = disks.no_space
        self._journals = journals = Journals(
            [
                Journal(
                    runtime,
                    config,
                    index,
                    current(root),
                    MarkFiles(runtime.files, ledger_paths, file_name(index, len(roots))),
                    self._failed,
                )
                for index, root in enumerate(roots)
            ]
        )
        for journal in journals:
            journal.watch_growth(journal_bytes(config) // 2, disks.look_soon)
        self._checkpointer = checkpointer = Checkpointer(
            runtime,
            config.flushInterval / 1000,
            list(journals),
            storage,
            on_disks_full=lambda: state.no_space("no ledger directory is writable"),
            on_fatal=self._failed,
        )
        ledgers = LedgerTable(runtime, storage, config.ledgerHandleCacheSize)
        storage.set_failure_listener(self._failed)
        adds = AddPath(runtime, config, storage, journals, ledgers, state, self.stats, self._failed)
        fences = Fences(storage, journals, ledgers, self._failed)
        reads = ReadPath(runtime, config, storage, ledgers, fences, disks, self.stats)
        self._service = RequestService(
            runtime,
            config,
            storage,
            journals,
            ledgers,
            state,
            self.stats,
            adds,
            reads,
            checkpointer.flush,
            self._failed,
        )
        return self._service

    async def _listen(self, identity: Identity) -> None:
        """Take the port. Connections are dropped until there is a service that serves."""
        config = self._config

        def positive(value: int) -> int | None:
            return value if value > 0 else None

        options = SocketOptions(
            nodelay=config.serverTcpNoDelay,
            keepalive=config.serverSockKeepalive,
            keep_idle=positive(config.serverTcpKeepIdle),
            keep_interval=positive(config.serverTcpKeepIntvl),
            keep_count=positive(config.serverTcpKeepCnt),
        )
        try:
            self._listener = await self._runtime.network.listen(
                identity.bind_host, config.bookiePort, self._new_connection, options=options
            )
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot listen on port {config.bookiePort} ({error.strerror or error}): "
                "is another bookie running? Stop it, or set another bookiePort",
            ) from error

    def _new_connection(self) -> asyncio.Protocol:
        return _Refusal() if self._service is None else BookieConnection(self._service)

    async def _recover(self, storage: LedgerStorage, ledgers: LedgerTable) -> None:
        """Bring what only the journals hold into the storage, and begin the journals anew."""
        assert self._journals is not None
        assert self._checkpointer is not None
        replayer = RecordApplier(storage)
        for journal in self._journals:
            await journal.replay(replayer.apply)
        try:
            await self._checkpointer.flush(compact=True)  # a full disk has room for the next journal then
        except (
            NoWritableLedgerDirError,
            OSError,
        ) as error:  # the journals have all of it still
            log.error("nothing can be flushed yet: %s", error)
            self.state.no_space("the ledger directories are full")
        for journal in self._journals:
            journal.start()
        log.info("replayed %d entries, skipped %d records", replayer.entries, replayer.skipped)
        storage.set_deletion_listener(ledgers.ledger_deleted)  # not before: replay deletes what comes back at once
        self._checkpointer.start()
        storage.start()

    # --- the end ---

    async def stop(self) -> None:
        """End orderly. Idempotent; returns when everything is closed."""
        assert self._ended is not None, "not started"
        self._begin_end(ExitCode.OK, orderly=True)
        await asyncio.shield(self._ended)

    async def wait_stopped(self) -> ExitCode:
        """Wait until the bookie has ended, for whatever reason."""
        assert self._ended is not None, "not started"
        return await asyncio.shield(self._ended)

    def _failed(self, error: BaseException) -> None:
        self._fail(ExitCode.BOOKIE_EXCEPTION, error)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """For `loop.set_exception_handler` of a process that runs this bookie.

        A callback of the loop that raised has left undone what it was to do: others may wait for that for ever, or
        count on it. So it ends the bookie. Everything else (a connection's end, a task that nobody asked) is logged.
        """
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is not None and "handle" in context and not isinstance(error, OSError):
            self._failed(error)

    def _fail(self, code: ExitCode, error: BaseException) -> None:
        """The bookie cannot go on."""
        if self._exit_code is None:
            self.failure = error
            log.critical("the bookie stops: %s", error, exc_info=None if is_explained(error) else error)
        if self._state is None or not self._state.running:
            self._exit_code = self._exit_code or code  # `start` is under way and sees to the rest
            return
        self._begin_end(code, orderly=False)

    def _begin_end(self, code: ExitCode, *, orderly: bool) -> None:
        if self._stopping is None:
            self._exit_code = self._exit_code or code
            log.info("stopping")
            self._stopping = self._runtime.spawn(self._close(orderly), name="bookie-stop")

    async def _close(self, orderly: bool) -> None:
        """Close everything, for a bounded time."""
        seconds = self._config.shutdownTimeoutMs / 1000 if orderly else FAILURE_SECONDS
        closing = self._runtime.spawn(self._close_parts(orderly=orderly), name="bookie-close")
        try:
            await asyncio.wait([closing], timeout=seconds)
            if not closing.done():
                await self._give_up(seconds)
            elif (error := closing.exception()) is not None:
                log.error("closing the %s failed", self._closing, exc_info=error)
        finally:
            self._end()

    async def _give_up(self, seconds: float) -> None:
        """Something does not close. The session with the metadata store is closed at least."""
        log.critical("the %s cannot be closed within %.0f s: the bookie ends without that", self._closing, seconds)
        self.hangs = True
        if self._exit_code is ExitCode.OK:
            self._exit_code = ExitCode.SERVER_EXCEPTION
        if self._owns_driver and self._driver is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(UNREGISTER_SECONDS):
                    await self._driver.close()

    def _end(self) -> None:
        assert self._ended is not None
        assert self._exit_code is not None
        if not self._ended.done():
            self._ended.set_result(self._exit_code)

    async def _close_parts(self, *, orderly: bool) -> None:
        """Close what there is, in order. A part that fails to close does not keep the others from closing."""
        if self._state is not None:
            self._state.running = False
            self._state.shutting_down = True
        if self._listener is not None:
            await self._guard(self._listener.close(), "listener")
        if orderly:
            await self._guard(self._unregister(), "registration")
            await self._guard(self._drain(), "requests")
        if self._service is not None:
            self._service.drop_connections()
        if not orderly:
            await self._guard(self._unregister(), "registration")
        if self._service is not None:
            await self._guard(self._service.close(), "connections")
        if self._scope is not None:
            await self._guard(self._scope.close(), "tasks")
        flushed = await self._guard(self._last_checkpoint(orderly), "checkpoint")
        for journal in self._journals or ():
            await self._guard(journal.close(), f"journal {journal.index}")
        if self._storage is not None:
            flushed = await self._guard(self._storage.close(), "storage") and flushed
        if self._state is not None:
            await self._guard(self._state.close(), "state")
        if self._disks is not None:
            await self._guard(self._disks.close(), "disk monitor")
        if orderly and flushed:
            dirty.clear(self._runtime.files, self._directories.ledger)
        if self._owns_driver and self._driver is not None:
            await self._guard(self._driver.close(), "metadata driver")

    async def _unregister(self) -> None:
        if self._state is None:
            return
        async with asyncio.timeout(UNREGISTER_SECONDS):
            await self._state.unregister()

    async def _drain(self) -> None:
        assert self._service is not None
        await self._service.drain(self._config.shutdownDrainTimeoutMs / 1000)

    async def _last_checkpoint(self, orderly: bool) -> None:
        if self._checkpointer is not None:
            await self._checkpointer.close()
            if orderly:
                await self._checkpointer.flush()

    async def _guard(self, closing: Awaitable[None], what: str) -> bool:
        """Wait for a part to close; a failure is logged and becomes the exit code if there is none yet."""
        self._closing = what
        try:
            await closing
        except Exception as error:
            log.error("closing the %s failed: %s", what, error, exc_info=None if is_explained(error) else error)
            if self._exit_code is ExitCode.OK and what not in ("registration", "metadata driver"):
                self._exit_code = ExitCode.SERVER_EXCEPTION
            return False
        return True
