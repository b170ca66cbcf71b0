"""The cluster as a whole: layout, initialise, format, nuke, switches."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import LayoutExists, LayoutMismatch
from ..api import LedgerLayout
from ..formats.layout import encode_layout, parse_layout
from .ledgers import ID_COUNTER
from .store import Topic, Transaction
from .store_client import StoreClient

LAYOUT = "LAYOUT"
INSTANCE_ID = "INSTANCEID"
HEALTH_CHECK_DISABLED = "disableHealthCheck"
"""Keys in topic CLUSTER; their values are those of the ZooKeeper nodes of the same name."""


class Layouts:
    """Component `layout` (see `metadata.api.LayoutStore`)."""

    def __init__(self, link: StoreClient, own: LedgerLayout) -> None:
        self._link = link
        self.own = own
        """The layout this store writes, and the only one it can open."""

    async def read(self) -> LedgerLayout | None:
        record = await self._link.read("layout.read", lambda tx: tx.get(Topic.CLUSTER, LAYOUT))
        return None if record is None else parse_layout(record.data)

    async def create(self, layout: LedgerLayout) -> None:
        """Raises `LayoutExists`."""

        def create(tx: Transaction) -> None:
            if tx.get(Topic.CLUSTER, LAYOUT) is not None:
                raise LayoutExists("the cluster has a layout")
            tx.put(Topic.CLUSTER, LAYOUT, encode_layout(layout))

        await self._link.change("layout.create", create, repeat=False)

    async def delete(self) -> None:
        await self._link.change("layout.delete", lambda tx: tx.delete(Topic.CLUSTER, LAYOUT))

    async def check(self) -> None:
        """Raises `LayoutMismatch` if the cluster was laid out by something else."""
        found = await self.read()
        if found is not None and found != self.own:
            raise LayoutMismatch(f"the cluster has layout {found}; this program knows {self.own}")


class Admin:
    """Component `admin` (see `metadata.api.ClusterAdmin`)."""

    def __init__(self, link: StoreClient, own: LedgerLayout) -> None:
        self._link = link
        self._layout = encode_layout(own)

    async def exists(self) -> bool:
        return await self.instance_id() is not None

    async def instance_id(self) -> str | None:
        """None before `init_new_cluster`."""
        record = await self._link.read("admin.instance_id", lambda tx: tx.get(Topic.CLUSTER, INSTANCE_ID))
        return None if record is None else record.data.decode()

    async def init_new_cluster(self) -> bool:
        """False if it exists."""
        return await self._link.change("admin.init", self._init(self._link.runtime.uuid()))

    def _init(self, instance_id: str) -> Callable[[Transaction], bool]:
        def init(tx: Transaction) -> bool:
            found = tx.get(Topic.CLUSTER, INSTANCE_ID)
            if found is not None:
                # Our own, if an earlier attempt was applied without an answer.
                return found.data == instance_id.encode()
            tx.put(Topic.CLUSTER, INSTANCE_ID, instance_id.encode())
            tx.put(Topic.CLUSTER, LAYOUT, self._layout)
            return True

        return init

    async def prepare_format(self) -> bool:
        """True if there is old data."""
        return await self.exists()

    async def format(self) -> None:
        """Remove ledgers, cookies, marks and locks; new instance id and id counter. Registrations and switches stay."""
        instance_id = self._link.runtime.uuid().encode()

        def format_(tx: Transaction) -> None:
            for topic in (Topic.LEDGERS, Topic.COOKIES, Topic.MARKS, Topic.LOCKS):
                tx.clear(topic)
            tx.delete(Topic.CLUSTER, ID_COUNTER)
            tx.put(Topic.CLUSTER, INSTANCE_ID, instance_id)
            tx.put(Topic.CLUSTER, LAYOUT, self._layout)

        await self._link.change("admin.format", format_)

    async def nuke(self) -> bool:
        """Remove everything. False if bookies are registered."""

        def nuke(tx: Transaction) -> bool:
            if tx.keys(Topic.AVAILABLE) or tx.keys(Topic.READ_ONLY):
                return False
            for topic in Topic:
                tx.clear(topic)
            return True

        return await self._link.change("admin.nuke", nuke)


class ClusterFlags:
    """Component `flags` (see `metadata.api.ClusterFlags`)."""

    def __init__(self, link: StoreClient) -> None:
        self._link = link

    async def health_check_enabled(self) -> bool:
        return await self._link.read("flags.read", lambda tx: tx.get(Topic.CLUSTER, HEALTH_CHECK_DISABLED) is None)

    async def set_health_check(self, enabled: bool) -> None:
        """Idempotent."""

        def switch(tx: Transaction) -> None:
            if enabled:
                tx.delete(Topic.CLUSTER, HEALTH_CHECK_DISABLED)
            else:
                tx.put(Topic.CLUSTER, HEALTH_CHECK_DISABLED, b"")

        await self._link.change("flags.write", switch)
