"""The client's side of registration: who is there, and where (spec metadata §7.5).

A set's version is made of the directory's creation transaction and its number of changes, so it grows with every
change, also across a removal of the directory. Sets are complete, never deltas; equal ones in a row are shown once.

Addresses are cached. A bookie's address is loaded with the first set that has it and kept up to date by a watch on its
node; it is dropped when the bookie goes. While the store cannot be reached, the last known address serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial

from ...errors import ConfigurationError, CorruptMetadata, MetadataError, NoSuchBookie, NotInitialized
from ...runtime.tasks import TaskScope
from ...types import BookieId, parse_bookie_id
from ..api import BookieServiceInfo, Mode, Versioned
from ..formats.service_info import parse_service_info
from .session.client import NoNode, Stat, ZooKeeper
from .session.watch_point import Changed
from .session.watching import Pacer, Subscription

log = logging.getLogger(__name__)

READONLY = "readonly"
"""Name of the directory of read-only bookies, beside the writable ones."""


def set_version(stat: Stat) -> int:
    return stat.czxid << 32 | (stat.cversion & 0xFFFFFFFF)


def bookie_ids(names: Iterable[str]) -> frozenset[BookieId]:
    """Names that are bookie ids; others are skipped with a warning."""
    found = []
    for name in names:
        if name == READONLY:
            continue
        try:
            found.append(parse_bookie_id(name))
        except ConfigurationError as error:
            log.warning("a registration is ignored: %s", error)
    return frozenset(found)


class AddressCache:
    """What bookies published, kept current by watches."""

    def __init__(self, zk: ZooKeeper, tracking: bool, tasks: TaskScope, pacer: Pacer) -> None:
        self._zk = zk
        self._paths = (f"{zk.root}/available/", f"{zk.root}/available/{READONLY}/")
        self._tracking = tracking
        self._tasks = tasks
        self._pacer = pacer
        self._known: dict[BookieId, BookieServiceInfo] = {}
        self._hints: dict[BookieId, Changed] = {}
        """One subscriber per bookie, however often it is loaded."""

    async def info(self, bookie_id: BookieId) -> BookieServiceInfo:
        """Raises `NoSuchBookie`, `CorruptMetadata`, `ServiceUnavailable`."""
        known = self._known.get(bookie_id)
        return known if known is not None else await self._load(bookie_id)

    async def load_missing(self, bookie_ids: Iterable[BookieId]) -> None:
        """Load what is not known yet; a bookie whose address cannot be loaded stays unknown."""
        missing = [bookie_id for bookie_id in sorted(bookie_ids) if bookie_id not in self._known]
        results = await asyncio.gather(*map(self._load, missing), return_exceptions=True)
        for bookie_id, result in zip(missing, results, strict=True):
            if isinstance(result, MetadataError):
                log.debug("no address of bookie %s: %s", bookie_id, result)
            elif isinstance(result, BaseException):
                raise result

    async def _load(self, bookie_id: BookieId) -> BookieServiceInfo:
        changed = None
        if self._tracking:
            changed = self._hints.setdefault(bookie_id, partial(self._changed, bookie_id))
        for prefix in self._paths:
            try:
                data, _ = await self._zk.get(prefix + bookie_id, changed)
            except NoNode:
                continue
            info = self._known[bookie_id] = parse_service_info(data, bookie_id)
            return info
        self._hints.pop(bookie_id, None)
        raise NoSuchBookie(f"bookie {bookie_id} is not registered")

    def _changed(self, bookie_id: BookieId) -> None:
        """A bookie's node may have changed or gone. Its old address serves until the store has been asked."""
        if not self._zk.closed():
            self._tasks.spawn(self._reload(bookie_id), name=f"address-of-{bookie_id}")

    async def _reload(self, bookie_id: BookieId) -> None:
        failures = 0
        while not self._zk.closed():
            try:
                await self._load(bookie_id)
                return
            except (NoSuchBookie, CorruptMetadata):
                self._known.pop(bookie_id, None)
                return
            except MetadataError as error:
                failures = await self._pacer.after_failure(f"address of bookie {bookie_id}", error, failures)


class ZooKeeperDirectory:
    """Lists and watches bookies (`BookieDirectory`)."""

    def __init__(self, zk: ZooKeeper, addresses: AddressCache, pacer: Pacer) -> None:
        self._zk = zk
        self._root = zk.root
        self._addresses = addresses
        self._pacer = pacer

    def _path(self, mode: Mode) -> str:
        return f"{self._root}/available" + ("" if mode is Mode.WRITABLE else f"/{READONLY}")

    async def list(self, mode: Mode) -> Versioned[frozenset[BookieId]]:
        path = self._path(mode)
        try:
            found = await self._zk.children(path, sync=True)
        except NoNode:
            if mode is Mode.WRITABLE:
                raise NotInitialized(f"there is no cluster: {path} is missing") from None
            return Versioned(frozenset(), 0)
        return await self._set(*found)

    async def _set(self, names: Sequence[str], stat: Stat) -> Versioned[frozenset[BookieId]]:
        bookies = bookie_ids(names)
        await self._addresses.load_missing(bookies)
        return Versioned(bookies, set_version(stat))

    async def list_all(self) -> Versioned[frozenset[BookieId]]:
        try:
            names, stat = await self._zk.children(f"{self._root}/cookies", sync=True)
        except NoNode:
            return Versioned(frozenset(), 0)
        return Versioned(bookie_ids(names), set_version(stat))

    async def info(self, bookie_id: BookieId) -> BookieServiceInfo:
        return await self._addresses.info(bookie_id)

    async def watch(self, mode: Mode) -> AsyncGenerator[Versioned[frozenset[BookieId]], None]:
        subscription = Subscription(self._zk, self._path(mode))
        shown: Versioned[frozenset[BookieId]] | None = None
        failures = 0
        try:
            while not self._zk.closed():
                try:
                    found = await subscription.children()
                    if found is not None:
                        now = await self._set(*found)
                    else:
                        now = Versioned(frozenset(), shown.version + 1 if shown else 0)
                except MetadataError as error:
                    if self._zk.closed():
                        return
                    failures = await self._pacer.after_failure(f"watch of {mode.value} bookies", error, failures)
                    continue
                failures = 0
                if shown is None or now.value != shown.value:
                    shown = now
                    yield now
                await subscription.changed()
        finally:
            subscription.close()
