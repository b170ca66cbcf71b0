"""Initialise, format and remove a cluster; its flags (spec metadata §10).

Where the Java tools go wrong, these do not: an address with an unknown manager is refused before anything is created;
format keeps the manager of the address; the health check flag does not keep a cluster from being removed.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import NotInitialized
from ..api import Mode
from ..tree import Create
from .discovery import READONLY, bookie_ids
from .layout import ZooKeeperLayout
from .paths import is_special
from .session.client import NodeExists, NoNode, ZooKeeper


class ZooKeeperFlags:
    """Cluster-wide flags (`ClusterFlags`)."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._disable_health_check = zk.root + "/disableHealthCheck"

    async def health_check_enabled(self) -> bool:
        return await self._zk.exists(self._disable_health_check) is None

    async def set_health_check(self, enabled: bool) -> None:
        try:
            if enabled:
                await self._zk.delete(self._disable_health_check)
            else:
                await self._zk.create_with_parents(self._disable_health_check)
        except (NoNode, NodeExists):
            pass  # it is so already


class ZooKeeperAdmin:
    """The cluster as a whole (`ClusterAdmin`)."""

    def __init__(self, zk: ZooKeeper, layout: ZooKeeperLayout, new_uuid: Callable[[], str]) -> None:
        self._zk = zk
        self._layout = layout
        self._new_uuid = new_uuid
        self._root = zk.root
        self._available = zk.root + "/available"
        self._instance_id = zk.root + "/INSTANCEID"

    async def exists(self) -> bool:
        return await self._zk.exists(self._root) is not None

    async def instance_id(self) -> str | None:
        try:
            data, _ = await self._zk.get(self._instance_id)
        except NoNode:
            return None
        return data.decode(errors="replace")

    async def init_new_cluster(self) -> bool:
        """Raises `ConfigurationError` for an unknown manager, `NotInitialized` if the root's parent is missing."""
        manager = self._layout.configured
        instance_id = self._new_uuid()
        if await self.exists():
            return False
        try:
            await self._zk.transact(
                [
                    Create(self._root),
                    Create(self._available),
                    Create(f"{self._available}/{READONLY}"),
                    Create(self._instance_id, instance_id.encode()),
                ]
            )
        except NodeExists as error:
            if not (error.after_unknown and await self.instance_id() == instance_id):
                return False
        except NoNode:
            raise NotInitialized(
                f"the parent node of {self._root} does not exist in ZooKeeper: create it first"
            ) from None
        await self._layout.ensure(manager)
        return True

    async def prepare_format(self) -> bool:
        existed = await self.exists()
        if not existed:
            await self._make_path(self._root)
        await self._zk.ensure(f"{self._available}/{READONLY}")
        return existed

    async def _make_path(self, path: str) -> None:
        """The root and what is above it."""
        parent = path.rpartition("/")[0]
        try:
            await self._zk.create(path)
        except NodeExists:
            pass
        except NoNode:
            await self._make_path(parent)
            await self._make_path(path)

    async def format(self) -> None:
        await self.prepare_format()
        await self._format_ledgers()
        await self._layout.replace(self._layout.configured)
        for name in ("underreplication/ledgers", "underreplication/locks", "cookies"):
            await self._zk.delete_tree(f"{self._root}/{name}")
        await self._replace_instance_id()

    async def _format_ledgers(self) -> None:
        """Remove all ledgers, of whatever manager the cluster has, and the counters of ids."""
        scheme = (await self._layout.open_any()).scheme
        names, _ = await self._zk.children(self._root, sync=True)
        for name in names:
            if scheme.parent.fullmatch(name) or name in ("idgen", "idgen-long") or name.startswith("ID-"):
                await self._zk.delete_tree(f"{self._root}/{name}")

    async def _replace_instance_id(self) -> None:
        data = self._new_uuid().encode()
        try:
            await self._zk.set(self._instance_id, data)
        except NoNode:
            await self._zk.create(self._instance_id, data)

    async def nuke(self) -> bool:
        if not await self.exists():
            return True
        for mode in Mode:
            if await self._registered(mode):
                return False
        scheme = (await self._layout.open_any()).scheme
        names, _ = await self._zk.children(self._root, sync=True)
        if any(not is_special(name) and not scheme.parent.fullmatch(name) for name in names):
            return False
        await self._format_ledgers()
        for name in names:
            await self._zk.delete_tree(f"{self._root}/{name}")
        await self._zk.delete_tree(self._root)
        self._layout.forget()
        return True

    async def _registered(self, mode: Mode) -> bool:
        path = self._available if mode is Mode.WRITABLE else f"{self._available}/{READONLY}"
        try:
            names, _ = await self._zk.children(path, sync=True)
        except NoNode:
            return False
        return bool(bookie_ids(names))
