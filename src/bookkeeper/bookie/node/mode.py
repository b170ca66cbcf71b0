"""Whether the bookie takes writes, and how it is registered (spec bookie-server §1.7, §1.8).

Theory of operation

The mode changes at once in memory, so that the next request sees it; the metadata store follows. What follows is
level-triggered: one lane of work brings BOOKIE_STATUS and the registration to the present mode, whatever happened in
between, so transitions that overtake each other end right.

Losing the session does not stop the bookie: its data and its promises do not depend on the store. It goes on serving
and registers again as soon as the store answers. If another process holds its id, it stops (exit code 4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...config import ServerConfiguration
from ...errors import BookKeeperError, MetadataError, ServiceUnavailable, SessionLost
from ...metadata.api import BookieRegistry, BookieServiceInfo, Mode
from ...runtime import Runtime, TaskScope, Workers
from ...types import BookieId
from . import status_file as bookie_status
from .disks import DiskVerdict
from .exit_code import ExitCode
from .status_file import StoredStatus

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Pause between attempts to register while the metadata store does not answer."""

STATUS_WRITABLE, STATUS_READ_ONLY, STATUS_UNREGISTERED = 1, 0, -1


class BookieState:
    """The mode of one bookie."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        bookie_id: BookieId,
        ledger_dirs: Sequence[str],
        fail: Callable[[ExitCode, BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._bookie_id = bookie_id
        self._ledger_dirs = ledger_dirs
        self._fail = fail
        self._lane: Workers = runtime.workers("bookie-state")
        self._scope = TaskScope(runtime, "bookie-state", lambda _, error: fail(ExitCode.ZK_REG_FAIL, error))
        self._serial = asyncio.Lock()  # one registration or status write at a time, in order
        self._registry: BookieRegistry | None = None
        self._info: BookieServiceInfo | None = None
        self._persisted: tuple[bool, bool] | None = None  # the (read-only, manual) that BOOKIE_STATUS was written with
        self.forced_read_only = config.forceReadOnlyBookie
        """Read-only for as long as this process runs."""
        self.read_only = config.forceReadOnlyBookie
        """Normal adds are refused. True if `forced_read_only`."""
        self.manual = False
        """A person chose read-only: the disks getting free does not end it."""
        self._disks_full = False
        """The disks asked for read-only, or a write found no space: they have to say when there is room again."""
        self.high_priority_available = True
        """Adds of recovery are taken even though read-only."""
        self.running = False
        """Requests are being served."""
        self.shutting_down = False
        """No transitions any more."""
        self.registered = False
        self.on_no_space: Callable[[], None] = _nobody
        """Called when the storage finds no space, before the disk monitor does: it should look again."""

    # --- asked on the request path ---

    def refuses_writes(self, high_priority: bool) -> bool:
        return self.read_only and not (high_priority and self.high_priority_available)

    @property
    def server_status(self) -> int:
        """SERVER_STATUS: 1 writable, 0 read-only, -1 not registered."""
        if not self.registered:
            return STATUS_UNREGISTERED
        return STATUS_READ_ONLY if self.read_only else STATUS_WRITABLE

    # --- start and stop ---

    def restore(self) -> None:
        """Take over the persisted mode of the last run, if there is one. Blocks."""
        if self.forced_read_only or not self._config.persistBookieStatusEnabled:
            return
        status = bookie_status.read(self._runtime.files, self._ledger_dirs)
        if status is not None and status.read_only:
            self.read_only, self.manual = True, status.manual
            self._disks_full = True  # until they are found to have room
            self._persisted = (True, status.manual)
            log.info("read-only as before the restart (%s)", "chosen by hand" if status.manual else "by itself")

    async def register(self, registry: BookieRegistry, info: BookieServiceInfo) -> None:
        """Register for the first time, unless the bookie ends already. Raises `MetadataError`."""
        self._registry, self._info = registry, info
        registry.on_registration_lost(self._registration_lost)
        async with self._serial:
            if not self.shutting_down:
                await self._register_once()
        if self.shutting_down:  # the end may have come while the store was asked
            await self.unregister()

    async def close(self) -> None:
        """No transitions from now on. The registration ends with the metadata session, or with `unregister`."""
        self.shutting_down = True
        self.forced_read_only = self.read_only = True
        await self._scope.close()
        await self._lane.close()

    async def unregister(self) -> None:
        """Leave the store's lists of bookies, where that can be done; else the session's end does it."""
        if self._registry is None or not self.registered:
            return
        self.registered = False
        for mode in (Mode.WRITABLE, Mode.READ_ONLY):
            try:
                await self._registry.unregister(self._bookie_id, mode)
            except MetadataError as error:
                log.info("cannot unregister, the end of the session will: %s", error)
                return

    # --- transitions ---

    def to_read_only(self, reason: str, *, manual: bool = False) -> None:
        """Take no normal writes from now on."""
        if self.shutting_down or self.read_only:
            self.manual = self.manual or (manual and self.read_only)
            return
        if not self._config.readOnlyModeEnabled:
            self._fail(
                ExitCode.BOOKIE_EXCEPTION,
                BookKeeperError(f"{reason}, and readOnlyModeEnabled=false: the bookie stops"),
            )
            return
        log.warning("read-only: %s", reason)
        self.read_only, self.manual = True, manual
        self._follow()

    def no_space(self, reason: str) -> None:
        """The storage could not write: read-only until the disks are found to have room."""
        self._disks_full = True
        self.on_no_space()
        self.to_read_only(reason)

    def to_writable(self, reason: str, *, manual: bool = False) -> None:
        """Take writes again, unless that is forbidden."""
        if self.shutting_down or self.forced_read_only or not self.read_only or (self.manual and not manual):
            return
        log.info("writable: %s", reason)
        self.read_only = self.manual = False
        self._follow()

    async def settled(self) -> None:
        """Wait until the transitions so far have reached the disk and the metadata store."""
        await asyncio.sleep(0)  # tasks that `_follow` has just made queue up first
        async with self._serial:
            pass

    def on_disks(self, verdict: DiskVerdict) -> None:
        """The disks' say in the mode. A failed disk ends the bookie."""
        if verdict.failed is not None:
            self._fail(ExitCode.BOOKIE_EXCEPTION, BookKeeperError(verdict.failed))
            return
        self.high_priority_available = verdict.high_priority_allowed
        if verdict.full is not None:
            self._disks_full = True
            self.to_read_only(verdict.full)
        elif self._disks_full:  # what is read-only for another reason stays so
            self._disks_full = False
            self.to_writable("all directories have room")

    # --- making store and disk follow ---

    def _follow(self) -> None:
        self._scope.spawn(self._bring_up_to_date(), name="transition")

    async def _bring_up_to_date(self) -> None:
        async with self._serial:
            await self._persist()
            if self.registered:
                await self._register_or_retreat()

    async def _persist(self) -> None:
        now = (self.read_only, self.manual)
        if not self._config.persistBookieStatusEnabled or now == self._persisted:
            return
        status = StoredStatus(self.read_only, self._runtime.wall_ms(), self.manual)
        await self._lane.submit(bookie_status.write, self._runtime.files, self._ledger_dirs, status)
        self._persisted = now

    async def _register_or_retreat(self) -> None:
        """Register in the present mode; if writable is not granted, be read-only again."""
        wanted_read_only = self.read_only
        try:
            await self._register_once()
        except (ServiceUnavailable, SessionLost) as error:
            log.warning("cannot tell the metadata store the mode yet: %s", error)
            await self._register_until_done()
        except MetadataError as error:
            if wanted_read_only:
                self._fail(ExitCode.BOOKIE_EXCEPTION, error)
                return
            log.warning("cannot register as writable, read-only again: %s", error)
            self.read_only = True
            self._follow()

    async def _register_once(self) -> None:
        assert self._registry is not None
        assert self._info is not None
        mode, other = (Mode.READ_ONLY, Mode.WRITABLE) if self.read_only else (Mode.WRITABLE, Mode.READ_ONLY)
        await self._registry.register(self._bookie_id, mode, self._info)
        self.registered = True
        try:
            await self._registry.unregister(self._bookie_id, other)
        except MetadataError as error:
            log.warning("the registration as %s stays for now: %s", other.value, error)

    def _registration_lost(self) -> None:
        if self.shutting_down:
            return
        log.warning("the metadata session is lost: registering again; requests are served meanwhile")
        self.registered = False
        self._scope.spawn(self._register_again(), name="register again")

    async def _register_again(self) -> None:
        async with self._serial:
            if not self.registered:
                await self._register_until_done()

    async def _register_until_done(self) -> None:
        """Register, however long the store is away. Raises `MetadataError` if the store refuses."""
        while True:
            try:
                await self._register_once()
                return
            except (ServiceUnavailable, SessionLost) as error:
                log.warning("cannot register yet: %s", error)
            await asyncio.sleep(RETRY_SECONDS)


def _nobody() -> None:
    """No monitor watches the disks."""
