"""Ledger records as nodes (spec metadata §5.3 to §5.7, §12.1).

Theory of operation

**Create.** The record carries a random token (format version 3). If the node exists although an attempt of ours may
have created it, its token tells: ours, then it is our success; another's, then the ledger exists. Versions 1 and 2
have no token, so there an existing node is always another client's: two clients that chose the same id must not both
own it.

**Write** is by data version. If the version is another although an attempt of ours may have been applied, the stored
bytes tell: equal to ours and exactly one version on, then it is our success. Equal records mean equal states, so a
twin's success does no harm.

**Remove.** Managers with many directories remove those that became empty. A concurrent create puts them back.

**Ranges** must never lack a ledger, for garbage collection deletes what is not in them: every listing is made as of
now (`sync`), any error ends the walk with an exception, and only a directory that has vanished counts as empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from random import Random

from ...errors import (
    CorruptMetadata,
    LedgerExists,
    MetadataError,
    NoSuchLedger,
    NotInitialized,
    ServiceUnavailable,
    VersionConflict,
)
from ..api import ANY, LedgerRange, Version, Versioned
from ..formats.ledger import parse, serialize
from ..ledger_metadata import LedgerMetadata
from .layout import ZooKeeperLayout
from .paths import Tree
from .session.client import BadVersion, NodeExists, NoNode, Refused, Stat, ZooKeeper
from .session.watching import Pacer, Subscription

log = logging.getLogger(__name__)

TOKEN_LIMIT = 2**63 - 1
"""Creation tokens are below this, and above 0."""


class ZooKeeperLedgers:
    """Ledger records (`LedgerStore`)."""

    def __init__(self, zk: ZooKeeper, layout: ZooKeeperLayout, random: Random, pacer: Pacer) -> None:
        self._zk = zk
        self._root = zk.root
        self._layout = layout
        self._random = random
        self._pacer = pacer

    async def _path(self, ledger_id: int) -> str:
        return f"{self._root}/{(await self._layout.open()).scheme.path(ledger_id)}"

    # --- one record ---

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        if metadata.format_version >= 3:
            metadata = replace(metadata, ctoken=self._random.randrange(1, TOKEN_LIMIT))
        data = serialize(metadata)
        path = await self._path(ledger_id)
        try:
            await self._zk.create_with_parents(path, data)
        except NodeExists as error:
            if error.after_unknown and metadata.format_version >= 3:
                return await self._created_before(ledger_id, metadata)
            raise LedgerExists(f"ledger {ledger_id} exists already") from None
        return Versioned(metadata, 0)

    async def _created_before(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        try:
            stored = await self.read(ledger_id)
        except NoSuchLedger:
            raise LedgerExists(f"ledger {ledger_id} existed and is gone again") from None
        except CorruptMetadata:
            raise LedgerExists(f"ledger {ledger_id} exists already") from None
        if stored.value.ctoken != metadata.ctoken:
            raise LedgerExists(f"ledger {ledger_id} exists already")
        return Versioned(metadata, stored.version)

    async def read(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        try:
            data, stat = await self._zk.get(await self._path(ledger_id))
        except NoNode:
            raise NoSuchLedger(f"there is no ledger {ledger_id}") from None
        return _record(ledger_id, data, stat)

    async def write(self, ledger_id: int, metadata: LedgerMetadata, expected: Version) -> Versioned[LedgerMetadata]:
        data = serialize(metadata)
        path = await self._path(ledger_id)
        try:
            stat = await self._zk.set(path, data, expected)
        except BadVersion as error:
            version = await self._written_before(path, data, expected) if error.after_unknown else None
            if version is None:
                raise VersionConflict(f"ledger {ledger_id} is not at version {expected} any more") from None
            return Versioned(metadata, version)
        except NoNode:
            raise NoSuchLedger(f"there is no ledger {ledger_id}") from None
        return Versioned(metadata, stat.version)

    async def _written_before(self, path: str, data: bytes, expected: Version) -> Version | None:
        """The version of our own earlier success; None if it was another client's."""
        try:
            stored, stat = await self._zk.get(path)
        except NoNode:
            return None
        return stat.version if stored == data and stat.version == expected + 1 else None

    async def remove(self, ledger_id: int, expected: Version = ANY) -> None:
        path = await self._path(ledger_id)
        try:
            await self._zk.delete(path, expected)
        except NoNode:
            pass  # it was removed, perhaps by an earlier attempt of ours
        except BadVersion:
            raise VersionConflict(f"ledger {ledger_id} is not at version {expected} any more") from None
        if (await self._layout.open()).scheme.prunes:
            await self._prune(path)

    async def _prune(self, path: str) -> None:
        """Remove the directories above a ledger that are empty now; stop at the first that is not."""
        directory = path.rpartition("/")[0]
        while directory != self._root:
            try:
                stat = await self._zk.exists(directory)
                if stat is None or stat.numChildren:
                    return
                await self._zk.delete(directory)
            except (Refused, ServiceUnavailable) as error:
                log.debug("an empty ledger directory stays: %s", error)
                return
            directory = directory.rpartition("/")[0]

    # --- changes of one record ---

    async def watch(self, ledger_id: int) -> AsyncGenerator[Versioned[LedgerMetadata] | None, None]:
        """The record now and after each change; None once when it is absent, then the end. See `LedgerStore`."""
        subscription: Subscription | None = None
        seen = -1  # transaction of the newest change shown
        failures = 0
        try:
            while not self._zk.closed():
                try:
                    if subscription is None:
                        subscription = Subscription(self._zk, await self._path(ledger_id))
                    found = await subscription.data()
                    record = None if found is None else _record(ledger_id, *found)
                except MetadataError as error:
                    if self._zk.closed():
                        return
                    failures = await self._pacer.after_failure(f"watch of ledger {ledger_id}", error, failures)
                    continue
                failures = 0
                if found is None or record is None:
                    yield None
                    return
                if found[1].mzxid > seen:
                    seen = found[1].mzxid
                    yield record
                await subscription.changed()
        finally:
            if subscription is not None:
                subscription.close()

    # --- all ledgers ---

    async def ranges(self, op_timeout: float | None = None) -> AsyncGenerator[LedgerRange, None]:
        """All ledgers, one range per directory. `op_timeout`: seconds for each listing."""
        scheme = (await self._layout.open()).scheme
        if await self._zk.exists(self._root) is None:
            raise NotInitialized(f"there is no cluster at {self._root}")
        for tree in scheme.trees:
            async for ids in self._walk(tree, (), op_timeout):
                yield LedgerRange(tuple(ids))

    async def _walk(
        self, tree: Tree, above: tuple[str, ...], op_timeout: float | None
    ) -> AsyncGenerator[list[int], None]:
        """Ids below a directory, one non-empty list per lowest directory, ascending."""
        names = await self._listing("/".join((self._root, *above)), op_timeout)
        if len(above) == len(tree.widths) - 1:
            if ids := tree.ledger_ids(above, names):
                yield sorted(ids)
            return
        for name in names:
            if tree.is_directory(name, len(above)):
                async for ids in self._walk(tree, (*above, name), op_timeout):
                    yield ids

    async def _listing(self, path: str, op_timeout: float | None) -> list[str]:
        try:
            async with asyncio.timeout(op_timeout or None):
                names, _ = await self._zk.children(path, sync=True)
        except NoNode:
            return []
        except TimeoutError:
            raise ServiceUnavailable(f"listing {path} took more than {op_timeout} s") from None
        return names


def _record(ledger_id: int, data: bytes, stat: Stat) -> Versioned[LedgerMetadata]:
    return Versioned(parse(data, ledger_id, stat.ctime), stat.version)
