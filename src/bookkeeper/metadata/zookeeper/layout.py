"""The LAYOUT node, the managers it can name, and the rule for opening a cluster (spec metadata §4.3).

Opening: the stored layout decides; a manager named by the address must agree with it. Where there is none yet, the
first to come writes it, be it a reader. The answer is kept for the life of the driver.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from ...errors import ConfigurationError, LayoutExists, LayoutMismatch, NotInitialized, Unsupported
from ..api import LedgerLayout
from ..formats import layout as names
from ..formats.layout import encode_layout, parse_layout
from . import paths
from .session.client import NodeExists, NoNode, ZooKeeper
from .settings import ZooKeeperSettings

MANAGER_VERSION = 1


@dataclass(frozen=True, slots=True)
class Manager:
    """A way to lay out ledgers."""

    type: str
    """As in addresses and old layouts."""
    factory_class: str
    scheme: paths.PathScheme
    long_ids: bool
    """Whether ids go on above 31 bits."""
    id_prefix: str
    """Where ids are drawn, below the root."""

    @property
    def layout(self) -> LedgerLayout:
        return LedgerLayout(self.factory_class, MANAGER_VERSION)


HIERARCHICAL = Manager("hierarchical", names.HIERARCHICAL, paths.MIXED, True, "idgen/ID-")
MANAGERS = (
    HIERARCHICAL,
    Manager("longhierarchical", names.LONG_HIERARCHICAL, paths.LONG, True, "idgen/ID-"),
    Manager("flat", names.FLAT, paths.FLAT, False, "ID-"),
    Manager("legacyhierarchical", names.LEGACY_HIERARCHICAL, paths.LEGACY, False, "idgen/ID-"),
)

_OLD_TYPES = ("flat", "hierarchical")
"""Types a version 1 layout may name."""


def manager_of_type(kind: str) -> Manager:
    """By the name used in addresses. Raises `ConfigurationError`."""
    for manager in MANAGERS:
        if manager.type == kind:
            return manager
    raise ConfigurationError(
        f"ledger manager {kind!r} is not supported; there are flat, hierarchical, longhierarchical"
    )


def manager_of_layout(layout: LedgerLayout, shaded_prefix: str | None = None) -> Manager:
    """Raises `Unsupported` for a manager, `LayoutMismatch` for a manager version that we do not have."""
    name = layout.factory_class
    if layout.layout_version == 1:
        found = next((m for m in MANAGERS if m.type == name and name in _OLD_TYPES), None)
    else:
        name = name.removeprefix(shaded_prefix or "")
        found = next((m for m in MANAGERS if m.factory_class == name), None)
    if found is None:
        raise Unsupported(f"the cluster's LAYOUT names ledger manager {layout.factory_class!r}, which is not supported")
    if layout.manager_version != MANAGER_VERSION:
        raise LayoutMismatch(
            f"the cluster's LAYOUT has version {layout.manager_version} of {layout.factory_class}; "
            f"{MANAGER_VERSION} is supported"
        )
    return found


class ZooKeeperLayout:
    """The layout of one cluster (`LayoutStore`), and the manager that follows from it."""

    def __init__(self, zk: ZooKeeper, named: str | None, settings: ZooKeeperSettings) -> None:
        self._zk = zk
        self._root = zk.root
        self._path = zk.root + "/LAYOUT"
        self._named = named
        self._settings = settings
        self._manager: Manager | None = None

    @property
    def configured(self) -> Manager:
        """What a new cluster gets."""
        kind = self._named or self._settings.ledger_manager_type
        return manager_of_type(kind) if kind else HIERARCHICAL

    async def read(self) -> LedgerLayout | None:
        try:
            data, _ = await self._zk.get(self._path)
        except NoNode:
            return None
        return parse_layout(data)

    async def create(self, layout: LedgerLayout) -> None:
        data = encode_layout(layout)
        try:
            await self._zk.create(self._path, data)
        except NodeExists as error:
            if error.after_unknown and await self._is(data):
                return
            raise LayoutExists(f"{self._path} exists already") from None
        except NoNode:
            raise NotInitialized(f"there is no cluster at {self._root}") from None

    async def _is(self, data: bytes) -> bool:
        try:
            return (await self._zk.get(self._path))[0] == data
        except NoNode:
            return False

    async def delete(self) -> None:
        try:
            await self._zk.delete(self._path)
        except NoNode as error:
            if not error.after_unknown:
                raise NotInitialized(f"there is no layout at {self._path}") from None
        self._manager = None

    async def open(self) -> Manager:
        """The cluster's manager; writes the layout if there is none.

        Raises `NotInitialized`, `LayoutMismatch`, `Unsupported`, `CorruptMetadata`, `ConfigurationError`.
        """
        if self._manager is None:
            await self.ensure(self.configured)
        assert self._manager is not None
        return self._manager

    async def ensure(self, first: Manager) -> None:
        """Like `open`, with the manager that a cluster without a layout gets."""
        layout = await self.read() or await self._create_first(first)
        self._manager = self._agreed(layout)

    async def open_any(self) -> Manager:
        """The stored manager, whether or not it is the configured one; the configured one if none is stored."""
        layout = await self.read()
        return self.configured if layout is None else manager_of_layout(layout, self._settings.shaded_prefix)

    async def replace(self, manager: Manager) -> None:
        """Give the cluster another layout, after its ledgers were removed."""
        with contextlib.suppress(NotInitialized):
            await self.delete()
        await self.create(manager.layout)
        self._manager = manager

    def forget(self) -> None:
        """The cluster is gone."""
        self._manager = None

    async def _create_first(self, manager: Manager) -> LedgerLayout:
        try:
            await self.create(manager.layout)
            return manager.layout
        except LayoutExists:
            layout = await self.read()
            if layout != manager.layout:
                raise LayoutMismatch(f"{self._path} was created with another layout: {layout}") from None
            return layout

    def _agreed(self, layout: LedgerLayout) -> Manager:
        found = manager_of_layout(layout, self._settings.shaded_prefix)
        wanted = self._named if layout.layout_version > 1 else self._settings.ledger_manager_type
        if wanted is not None and manager_of_type(wanted).factory_class != found.factory_class:
            raise LayoutMismatch(
                f"configured layout {manager_of_type(wanted).factory_class} does not match existing layout "
                f"{found.factory_class}"
            )
        return found
