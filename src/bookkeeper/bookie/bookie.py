"""A bookie: the order in which it starts, and how its end begins (spec bookie-server §1).

Theory of operation

Life. `life` has the phases, which follows which, and what each fails with. `parts` puts the parts together,
`shutdown` closes them.

Start. Everything that can refuse comes first and changes nothing: settings, directories, identity, cookies, disks.
The port is bound before the journals are replayed, so that a second process fails early; connections are dropped
until all is ready. After replay the storage is flushed and the marks are moved, then the bookie marks itself DIRTY,
serves, and only then registers: no client is sent to a bookie that turns it away (G20). If entries may have been lost,
what names this bookie is protected before it serves, and repaired afterwards (`integrity`).

Failure. A failed journal or storage, a failed disk or a lost name ends the bookie from inside. The first reason decides
the exit code.

The end. `wait_stopped` returns within a bounded time, even if a disk holds a call for ever. Then `hangs` says that
something still runs, and the process is to be ended hard: that is as safe as a crash, for which everything here is
made.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..config import ServerConfiguration
from ..errors import ConfigurationError, NoWritableLedgerDirError
from ..metadata import open_driver
from ..metadata.api import MetadataDriver
from ..metadata.uri import configured_service_uri
from ..runtime import Runtime, ServiceListener, SocketOptions
from ..types import BookieId
from ..version import __version__
from .integrity.peers import OpenPeers
from .integrity.protection import protect
from .integrity.repair import repair
from .journal.apply import RecordApplier
from .journal.journals import Journals
from .life import ENDS, SERVES, Life, Phase
from .node import dirty
from .node.cookies import Stamp, check_cookies
from .node.directories import Directories
from .node.exit_code import ExitCode
from .node.identity import Identity, identify, service_info
from .node.mode import BookieState
from .node.validate import validate, warn
from .parts import Parts, build, listen_to_disks
from .requests.connection import BookieConnection
from .requests.service import RequestService, ServedConnection
from .scrub.mender import Home, Mender
from .scrub.scrubber import Scrubber, wanted
from .shutdown import Shutdown, is_explained
from .stats import BookieStats
from .storage.api import LedgerStorage

__all__ = ["Bookie", "ExitCode"]

log = logging.getLogger(__name__)


class Bookie:
    """One bookie. `start`, then `wait_stopped`; `stop` ends it orderly."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        driver: MetadataDriver | None = None,
        open_peers: OpenPeers | None = None,
    ) -> None:
        """`driver`: an open driver, which stays the caller's; None: the bookie opens its own. `open_peers` is needed
        for `dataIntegrityChecking`; without it damage is not mended."""
        self._runtime = runtime
        self._config = config
        self._given_driver = driver
        assert open_peers is not None or not config.dataIntegrityChecking, "it needs a way to other bookies"
        self._open_peers = open_peers
        self._own_driver: MetadataDriver | None = None
        self._directories = Directories.of(config)
        self._life = Life()
        self._stamp: Stamp | None = None  # cookies that are missing: data may be, too
        self._parts: Parts | None = None  # from STARTING on, once the bookie knows who it is
        self._listener: ServiceListener | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[ExitCode] | None = None
        self.hangs = False
        """It has ended as far as that was possible: a disk or a thread still holds something up. End the process."""

    # --- what others ask, after `start` ---

    @property
    def parts(self) -> Parts:
        assert self._parts is not None, "not started"
        return self._parts

    @property
    def bookie_id(self) -> BookieId:
        return self.parts.identity.bookie_id

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._listener is not None, "not started"
        return self._listener.port

    @property
    def state(self) -> BookieState:
        return self.parts.state

    @property
    def storage(self) -> LedgerStorage:
        return self.parts.storage

    @property
    def journals(self) -> Journals:
        return self.parts.journals

    @property
    def service(self) -> RequestService:
        return self.parts.service

    @property
    def stats(self) -> BookieStats:
        return self.parts.stats

    @property
    def metadata(self) -> MetadataDriver:
        return self.parts.driver

    @property
    def waiting_polls(self) -> int:
        """Long polls that wait for a LAC now."""
        return self.service.reads.polls.waiting

    def connections(self) -> list[ServedConnection]:
        """The client connections that are open now."""
        return self.service.connections()

    # --- what others ask at any time ---

    @property
    def serving(self) -> bool:
        """Whether it has come up, and does not end yet."""
        return self._life.phase is Phase.SERVING

    @property
    def ending(self) -> bool:
        """Whether it has stopped or is about to."""
        return self._life.exit_code is not None

    @property
    def failure(self) -> BaseException | None:
        """Why it ended by itself."""
        return self._life.failure

    def exit_code_of(self, error: BaseException) -> ExitCode:
        """The exit code for an error that `start` raised."""
        return self._life.exit_code_of(error)

    # --- start ---

    async def start(self) -> None:
        """Come up; at return the bookie serves and is registered.

        Raises `ConfigurationError`, `BookKeeperError` or `OSError` if it cannot; everything is closed again then.
        """
        self._life.enter(Phase.STARTING)
        self._ended = asyncio.get_running_loop().create_future()
        try:
            parts = await self._build()
            await self._listen(parts)
            self._look_at_disks(parts)
            await parts.storage.open()
            self._life.enter(Phase.RECOVERING)
            await self._recover(parts)
            await self._protect(parts)
            self._runtime.settle_memory()  # a bookie may have a million ledgers, and nobody waits for it yet
            self._serve(parts)
            self._life.enter(Phase.REGISTERING)
            await self._register(parts)
            self._life.enter(Phase.SERVING)
            self._repair(parts)
            self._mend(parts)
        except BaseException as error:
            self._life.ends_with(self._life.exit_code_of(error))
            if self._life.phase not in ENDS:
                self._begin_end(Phase.FAILING)
            await asyncio.shield(self._ended)
            raise

    async def _build(self) -> Parts:
        """Who this bookie is, whether these directories are its own, and then its parts."""
        config, runtime, directories = self._config, self._runtime, self._directories
        validate(config)
        directories.prepare(runtime.files, allow_shared_partition=config.allowMultipleDirsUnderSameDiskPartition)
        driver = self._given_driver
        if driver is None:
            self._own_driver = driver = open_driver(configured_service_uri(config), runtime, config)
            log.info("connecting to the metadata store %s", self._store)
            await driver.open()
        identity = await identify(runtime, config)
        self._introduce(identity)
        warn(config)
        self._stamp = await check_cookies(runtime.files, driver, config, directories, identity)
        self._parts = build(runtime, config, directories, driver, identity, self._fail)
        return self._parts

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

    async def _listen(self, parts: Parts) -> None:
        """Take the port. The service refuses connections until it has started."""
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
                parts.identity.bind_host,
                config.bookiePort,
                lambda: BookieConnection(parts.service),
                options=options,
                pause_after=parts.service.pause_after,
            )
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot listen on port {config.bookiePort} ({error.strerror or error}): "
                "is another bookie running? Stop it, or set another bookiePort",
            ) from error

    def _look_at_disks(self, parts: Parts) -> None:
        """The first look at the disks: a full one makes the bookie start read-only."""
        if dirty.was_unclean(self._runtime.files, self._directories.ledger):
            log.warning("the last run did not end orderly")
        lost = dirty.may_be_lost(self._runtime.files, self._directories.ledger)
        if lost and not self._config.dataIntegrityChecking:
            raise ConfigurationError(
                "the last run acknowledged adds before they were durable and did not end orderly, so that entries may "
                "be lost: set dataIntegrityChecking=true"
            )
        verdict = parts.disks.check_now(stamped=self._stamp is None)
        if verdict.failed is not None:
            raise OSError(verdict.failed)
        if verdict.full is not None and not self._config.readOnlyModeEnabled:
            raise NoWritableLedgerDirError(
                f"{verdict.full}, and readOnlyModeEnabled=false: free some space, or allow read-only"
            )
        parts.state.on_disks(verdict)

    async def _recover(self, parts: Parts) -> None:
        """Bring what only the journals hold into the storage, and begin the journals anew."""
        replayer = RecordApplier(parts.storage)
        for journal in parts.journals:
            await journal.replay(replayer.apply)
        try:
            await parts.checkpointer.flush(compact=True)  # a full disk has room for the next journal then
        except (NoWritableLedgerDirError, OSError) as error:  # the journals have all of it still
            log.error("nothing can be flushed yet: %s", error)
            parts.state.no_space("the ledger directories are full")
        for journal in parts.journals:
            journal.start()
        log.info("replayed %d entries, skipped %d records", replayer.entries, replayer.skipped)
        parts.storage.set_deletion_listener(parts.ledgers.ledger_deleted)  # replay deletes what comes back at once
        parts.checkpointer.start()
        parts.storage.start()

    def _may_lose(self) -> bytes:
        """What an unclean end of a run with these settings may lose."""
        config = self._config
        if not config.journalSyncData:
            return dirty.ADDS + dirty.FENCES
        return b"" if config.journalWriteData else dirty.ADDS

    async def _protect(self, parts: Parts) -> None:
        """If something may have been lost, deny none of it from the first answer on; then write missing cookies."""
        if not self._config.dataIntegrityChecking:
            return
        files, ledger_dirs = self._runtime.files, self._directories.ledger
        lost = dirty.may_be_lost(files, ledger_dirs)
        if dirty.was_unclean(files, ledger_dirs):
            lost += self._may_lose()
        disk_lost = self._stamp is not None
        if lost or disk_lost:
            fences = disk_lost or dirty.FENCES in lost
            await protect(parts.driver, parts.storage, parts.identity.bookie_id, fences_lost=fences)
        if self._stamp is not None:
            await self._stamp.write()

    def _repair(self, parts: Parts) -> None:
        """Get back what was lost, beside serving."""
        if self._config.dataIntegrityChecking and self._open_peers is not None:
            work = repair(
                self._runtime,
                self._config,
                parts.driver,
                parts.storage,
                parts.identity.bookie_id,
                self._open_peers,
                lambda: not parts.state.read_only,
            )
            parts.scope.spawn(work, name="data integrity")

    def _mend(self, parts: Parts) -> None:
        """Mend what is found damaged, and look for it if the settings say so, beside serving."""
        home = Home(
            parts.identity.bookie_id,
            parts.storage,
            parts.driver.ledgers,
            lambda: not parts.state.read_only,
            parts.stats.scrubber,
        )
        mender = Mender(self._runtime, self._config, home, self._open_peers, parts.scope)
        parts.storage.set_damage_listener(mender.report)
        if wanted(self._config):
            scrubber = Scrubber(self._runtime, self._config, home, mender)
            parts.scope.spawn(scrubber.run(), name="scrubber")

    def _serve(self, parts: Parts) -> None:
        """Answer requests from now on."""
        parts.state.restore()
        may_lose = self._may_lose() if self._config.dataIntegrityChecking else b""
        dirty.mark(self._runtime.files, self._directories.ledger, may_lose)
        listen_to_disks(self._config, parts)
        parts.scope.spawn(parts.disks.run(), name="disk monitor")
        parts.service.start()
        parts.state.running = True

    async def _register(self, parts: Parts) -> None:
        log.info("registering in %s; if an earlier run was killed, its session must end first", self._store)
        identity = parts.identity
        http = self._config.httpServerPort if self._config.httpServerEnabled else None
        await parts.state.register(parts.driver.registration, service_info(identity.host, self.port, http))
        mode = "read-only" if parts.state.read_only else "writable"
        log.info("bookie %s serves on port %d, %s", identity.bookie_id, self.port, mode)

    # --- the end ---

    async def stop(self) -> None:
        """End orderly; a bookie that does not serve yet gives its start up. Idempotent; all is closed at return."""
        assert self._ended is not None, "not started"
        self._end_with(ExitCode.OK, orderly=True)
        await asyncio.shield(self._ended)

    async def wait_stopped(self) -> ExitCode:
        """Wait until the bookie has ended, for whatever reason."""
        assert self._ended is not None, "not started"
        return await asyncio.shield(self._ended)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """For `loop.set_exception_handler` of a process that runs this bookie.

        A callback of the loop that raised has left undone what it was to do: others may wait for that for ever, or
        count on it. So it ends the bookie. Everything else (a connection's end, a task without an owner) is logged.
        """
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is not None and "handle" in context and not isinstance(error, OSError):
            self._fail(ExitCode.BOOKIE_EXCEPTION, error)

    def _fail(self, code: ExitCode, error: BaseException) -> None:
        """The bookie cannot go on."""
        if self._life.exit_code is None:
            self._life.failure = error
            log.critical("the bookie stops: %s", error, exc_info=None if is_explained(error) else error)
        self._end_with(code, orderly=False)

    def _end_with(self, code: ExitCode, *, orderly: bool) -> None:
        """There is a reason to end. A start that is under way hears of it when it comes to the next phase."""
        self._life.ends_with(code)
        if self._life.phase in SERVES:
            self._begin_end(Phase.STOPPING if orderly else Phase.FAILING)

    def _begin_end(self, phase: Phase) -> None:
        if self._parts is not None:  # else it has said nothing yet, and the error says all
            log.info("stopping")
        self._life.enter(phase)
        self._stopping = self._runtime.spawn(self._end(orderly=phase is Phase.STOPPING), name="bookie-stop")

    async def _end(self, orderly: bool) -> None:
        assert self._ended is not None
        shutdown = Shutdown(self._runtime, self._config, self._life, self._parts, self._listener, self._own_driver)
        try:
            self.hangs = not await shutdown.run(orderly=orderly)
        finally:
            self._life.enter(Phase.ENDED)
            assert self._life.exit_code is not None
            if not self._ended.done():
                self._ended.set_result(self._life.exit_code)
