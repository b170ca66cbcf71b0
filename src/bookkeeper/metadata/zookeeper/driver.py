"""The driver: one ZooKeeper session and the parts of the store that share it (`MetadataDriver`).

Theory of operation

News of the session reaches the parts in a fixed order: first the listeners, then registrations, locks, leadership
(spec metadata §12.3, "Ephemerals"). A lost session is reported once. A registration counts as lost only when the
store says so: a store that is away must not take bookies down. Locks and leadership are given up earlier, when the
session is in doubt, because another client may hold them by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...errors import Unsupported
from ...runtime.api import Runtime
from ...runtime.tasks import TaskScope
from ..api import SessionEvent, Unsubscribe
from ..uri import ServiceUri
from .admin import ZooKeeperAdmin, ZooKeeperFlags
from .cookies import ZooKeeperCookies
from .discovery import AddressCache, ZooKeeperDirectory
from .ids import ZooKeeperLedgerIds
from .layout import ZooKeeperLayout
from .ledgers import ZooKeeperLedgers
from .registration import ZooKeeperRegistry
from .repair.auditor import ZooKeeperAuditorElection
from .repair.underreplication import ZooKeeperUnderreplication
from .session.client import ZooKeeper
from .session.watching import Pacer
from .settings import ZooKeeperSettings
from .tree import ZooKeeperTree


class ZooKeeperDriver:
    """A metadata store in ZooKeeper. Make one with `bookkeeper.metadata.open_driver`."""

    scheme: ClassVar[str] = "zk"

    def __init__(self, uri: ServiceUri, runtime: Runtime, *, config: Mapping[str, Any] | None = None) -> None:
        """Not yet connected. Raises `Unsupported` for a manager we do not have, `ConfigurationError`."""
        if uri.manager == "ms":
            raise Unsupported(f"{uri}: the ms ledger manager is not supported; use hierarchical")
        settings = ZooKeeperSettings.from_mapping(config or {})
        tasks = self._tasks = TaskScope(runtime, "zookeeper-driver")
        pacer = Pacer(runtime)
        zk = self.zk = ZooKeeper(uri.connect_string, uri.path, settings, runtime, self)
        self._listeners: dict[object, Callable[[SessionEvent], None]] = {}
        self._opened = False
        self.layout = ZooKeeperLayout(zk, uri.manager, settings)
        self.ledgers = ZooKeeperLedgers(zk, self.layout, runtime.random("zookeeper-token"), pacer)
        self.ids = ZooKeeperLedgerIds(zk, self.layout, tasks)
        self.registration = ZooKeeperRegistry(zk, settings.timeout_ms / 1000)
        self.discovery = ZooKeeperDirectory(zk, AddressCache(zk, settings.address_tracking, tasks, pacer), pacer)
        self.cookies = ZooKeeperCookies(zk)
        self.underreplication = ZooKeeperUnderreplication(zk, settings, runtime, tasks)
        self.auditor = ZooKeeperAuditorElection(zk, tasks, pacer)
        self.flags = ZooKeeperFlags(zk)
        self.admin = ZooKeeperAdmin(zk, self.layout, runtime.uuid)
        self.tree = ZooKeeperTree(zk, settings.max_packet, tasks, pacer)
        self._rights = (self.underreplication.locks, self.tree.members, self.auditor.votes)
        """In the order in which they hear of the session."""

    async def open(self, *, create: bool = False) -> None:  # noqa: ARG002  (servers are never ours to make)
        """Connect. Does not require an initialised cluster. Raises `ServiceUnavailable`."""
        await self.zk.open()
        self._opened = True

    async def close(self) -> None:
        """End the session: ephemerals vanish, pending calls fail, watches end. Idempotent."""
        if not self._opened:
            return
        await self._tasks.close()
        await self.zk.close()
        for rights in self._rights:
            rights.session_lost()

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        key = object()
        self._listeners[key] = callback

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    async def is_available(self) -> bool:
        return self.zk.connected

    # --- the session (`SessionObserver`) ---

    def _tell(self, event: SessionEvent) -> None:
        for callback in list(self._listeners.values()):
            callback(event)

    def connected(self) -> None:
        self._tell(SessionEvent.CONNECTED)
        for rights in self._rights:
            rights.session_connected()

    def suspended(self) -> None:
        self._tell(SessionEvent.SUSPENDED)

    def in_doubt(self) -> None:
        for rights in self._rights:
            rights.session_in_doubt()

    def lost(self) -> None:
        self._tell(SessionEvent.LOST)
        self.registration.session_lost()
        for rights in self._rights:
            rights.session_lost()
