"""Which ledgers need repair, and who repairs them (spec metadata §9.1 to §9.4).

Below `underreplication`:

| node | what |
|---|---|
| `LAYOUT` | what kind of subtree this is |
| `ledgers/hhhh/hhhh/hhhh/hhhh/urL...` | a mark: the ledger's lost replicas |
| `locks/urL...` (ephemeral) | a worker repairs this ledger |

Theory of operation

A mark has the last directory to itself (its name is the end of the ledger's id): the two come and go together.

A worker looks for a marked ledger in random order, so that many workers do not meet; creates its lock; and looks at
the mark once more under the lock: it may be gone (repaired a moment ago) or changed. The version seen then is the one
that `mark_replicated` deletes: if the ledger is marked again meanwhile, the mark stays. The directories above a
deleted mark go with their last mark, and marking puts them back.

`poll` reads every directory as it is now. `get` waits, so it may use listings it has from earlier: each is kept until
its watch fires, and any firing wakes it up. A worker that waits costs the server nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from random import Random

from ....errors import LockHeld, SessionLost
from ....runtime.api import Runtime
from ....runtime.tasks import TaskScope
from ....runtime.waiting.rate_limit import RateLimit
from ...api import UnderreplicatedLedger, Version
from ...formats.underreplication import LAYOUT, check_layout, encode_lock, encode_mark, parse_lock, parse_mark
from ...tree import Create, Delete
from ..locks import Right, Rights
from ..paths import MARK_LEVELS, mark_ledger_id, mark_name, mark_path
from ..session.client import BadVersion, NodeExists, NoNode, NotEmpty, Refused, ZooKeeper
from ..session.listings import Listings
from ..session.watching import Pacer
from ..settings import ZooKeeperSettings
from .switches import RepairSwitches

_NOT_LOCKED_THROUGH_A_MARK: Version = -1

Ids = list[int]

MOST_SEEN = 20
"""Marked ledgers that are remembered from one walk over the marks: the more, the likelier others have them by then."""

Names = Callable[[str], Awaitable[Sequence[str]]]
"""Lists a directory; one that is not there is empty."""


def in_random_order(names: Sequence[str], random: Random) -> Iterator[str]:
    """All of them. Who takes a few of many pays for these only."""
    left = list(names)
    while left:
        at = random.randrange(len(left))
        left[at], left[-1] = left[-1], left[at]
        yield left.pop()


class ZooKeeperLedgerLock:
    """A held lock (`LedgerLock`)."""

    def __init__(self, store: ZooKeeperUnderreplication, ledger_id: int, right: Right, mark_version: Version) -> None:
        self.ledger_id = ledger_id
        self.lost = right.lost
        self._store = store
        self._right = right
        self._mark_version = mark_version

    async def mark_replicated(self) -> bool:
        try:
            if self._mark_version == _NOT_LOCKED_THROUGH_A_MARK or self.lost.is_set():
                return False
            return await self._store.delete_mark(self.ledger_id, self._mark_version, self._right)
        finally:
            await self.release()

    async def release(self) -> None:
        await self._store.locks.release(self._right)


class ZooKeeperUnderreplication(RepairSwitches):
    """Marks and locks, and the switches beside them (`UnderreplicationStore`)."""

    def __init__(self, zk: ZooKeeper, settings: ZooKeeperSettings, runtime: Runtime, tasks: TaskScope) -> None:
        super().__init__(zk, Pacer(runtime))
        self._zk = zk
        self._runtime = runtime
        self._settings = settings
        self._random: Random = runtime.random("zookeeper-poll")
        self._base = zk.root + "/underreplication"
        self._ledgers = self._base + "/ledgers"
        self._locks = self._base + "/locks"
        self.locks = Rights(zk, tasks)
        self._listings = Listings(zk)
        self._seen: Ids = []  # marked when they were seen, and not locked; to be tried
        self._opened = False
        self._rate = RateLimit(runtime, settings.tasks_per_second)

    async def _open(self) -> None:
        """Make the subtree, or check that it is of our kind. Raises `UnderreplicationIncompatible`."""
        if self._opened:
            return
        await self._zk.ensure(self._base)
        try:
            await self._zk.create(self._base + "/LAYOUT", LAYOUT)
        except NodeExists:
            check_layout((await self._zk.get(self._base + "/LAYOUT"))[0])
        await self._zk.ensure(self._ledgers)
        await self._zk.ensure(self._locks)
        self._opened = True

    # --- marks ---

    def _mark(self, ledger_id: int) -> str:
        return f"{self._ledgers}/{mark_path(ledger_id)}"

    def _now(self) -> int:
        return self._runtime.wall_ms() if self._settings.store_mark_time else -1

    async def mark(self, ledger_id: int, missing: Sequence[str]) -> None:
        await self._open()
        path = self._mark(ledger_id)
        while True:
            fresh = encode_mark(UnderreplicatedLedger(ledger_id, tuple(dict.fromkeys(missing)), self._now()))
            with contextlib.suppress(Refused):
                await self._zk.transact([Create(path.rpartition("/")[0]), Create(path, fresh)])
                return None
            try:
                return await self._zk.create_with_parents(path, fresh)
            except NodeExists:
                if await self._add_to_mark(path, ledger_id, missing):
                    return None

    async def _add_to_mark(self, path: str, ledger_id: int, missing: Sequence[str]) -> bool:
        """Add replicas to an existing mark; False if it changed or went meanwhile."""
        try:
            data, stat = await self._zk.get(path)
            known = parse_mark(data, ledger_id)
            replicas = tuple(dict.fromkeys([*known.replicas, *missing]))
            if replicas == known.replicas:
                return True
            await self._zk.set(path, encode_mark(UnderreplicatedLedger(ledger_id, replicas, self._now())), stat.version)
        except (NoNode, BadVersion):
            return False
        return True

    async def info(self, ledger_id: int) -> UnderreplicatedLedger | None:
        try:
            data, _ = await self._zk.get(self._mark(ledger_id))
        except NoNode:
            return None
        return parse_mark(data, ledger_id)

    async def list(
        self, predicate: Callable[[Sequence[str]], bool] | None = None
    ) -> AsyncGenerator[UnderreplicatedLedger, None]:
        directories = [self._ledgers]
        for _ in range(MARK_LEVELS):
            below: list[str] = []
            for directory in directories:
                below += [f"{directory}/{name}" for name in await self._names(directory)]
            directories = below
        for directory in directories:
            for name in await self._names(directory):
                ledger_id = mark_ledger_id(name)
                mark = None if ledger_id is None else await self.info(ledger_id)
                if mark is not None and (predicate is None or predicate(mark.replicas)):
                    yield mark

    async def _names(self, path: str) -> Sequence[str]:
        try:
            return (await self._zk.children(path, sync=True))[0]
        except NoNode:
            return ()

    async def delete_mark(self, ledger_id: int, version: Version, right: Right) -> bool:
        """Delete a mark that still has this version, together with its lock, and directories that became empty.

        True if the mark is gone. Otherwise, and where its directory holds something else, the lock is still there.
        """
        path = self._mark(ledger_id)
        directory = path.rpartition("/")[0]
        steps = [Delete(path, version), Delete(directory), Delete(right.path)]
        try:
            await self._zk.transact(steps, session=right.session, own=right.path)
        except NotEmpty:
            return await self._delete_mark_alone(path, version)
        except (NoNode, BadVersion, SessionLost):
            return False
        for _ in range(MARK_LEVELS - 1):
            directory = directory.rpartition("/")[0]
            if not await self._delete_if_empty(directory):
                break
        self.locks.forget(right)
        return True

    async def _delete_mark_alone(self, path: str, version: Version) -> bool:
        """Its directory holds something else."""
        try:
            await self._zk.delete(path, version)
        except NoNode as error:
            return error.after_unknown
        except BadVersion:
            return False
        return True

    async def _delete_if_empty(self, directory: str) -> bool:
        """Whether it was, and is gone. Most are not, and a look is cheaper than a deletion that is refused."""
        stat = await self._zk.exists(directory)
        if stat is None or stat.numChildren:
            return False
        try:
            await self._zk.delete(directory)
        except (NotEmpty, NoNode):
            return False
        return True

    # --- locks ---

    async def poll(self) -> ZooKeeperLedgerLock | None:
        await self._open()
        return await self._search(self._names)

    async def get(self) -> ZooKeeperLedgerLock:
        await self._rate.take(1)
        while True:
            await self.wait_enabled()
            await self._open()
            seen = self._listings.changes
            try:
                lock = await self._search(self._listings.names)
            except SessionLost:
                continue  # an attempt to lock fell together with the end of the session
            if lock is not None:
                return lock
            if await self._complete():
                await self._listings.changed_since(seen)

    async def _complete(self) -> bool:
        """Whether the directories are there; formatting the cluster removes them."""
        for path in (self._ledgers, self._locks):
            if await self._zk.exists(path) is None:
                self._opened = False
        return self._opened

    async def _search(self, names: Names) -> ZooKeeperLedgerLock | None:
        """Lock some marked ledger. Those that were seen beside it are tried by the next search, before it walks."""
        passed: set[int | None] = set()
        while True:
            while self._seen:
                ledger_id = self._seen.pop()
                passed.add(ledger_id)
                if (lock := await self._try_lock(ledger_id)) is not None:
                    return lock
            skipped = passed | {mark_ledger_id(name) for name in await names(self._locks)}
            found: Ids = []
            await self._look_below(self._ledgers, 0, names, skipped, found)
            if not found:
                return None
            self._seen = found

    async def _look_below(
        self, directory: str, level: int, names: Names, skipped: Collection[int | None], found: Ids
    ) -> None:
        """Up to `MOST_SEEN` marked ledgers, in random order."""
        for name in in_random_order(await names(directory), self._random):
            if len(found) >= MOST_SEEN:
                return
            if level < MARK_LEVELS:
                await self._look_below(f"{directory}/{name}", level + 1, names, skipped, found)
            elif (ledger_id := mark_ledger_id(name)) is not None and ledger_id not in skipped:
                found.append(ledger_id)

    async def _try_lock(self, ledger_id: int) -> ZooKeeperLedgerLock | None:
        right = await self._claim(ledger_id)
        if right is None:
            return None
        stat = await self._zk.exists(self._mark(ledger_id))
        if stat is None:
            await self.locks.release(right)
            return None
        return ZooKeeperLedgerLock(self, ledger_id, right, stat.version)

    async def _claim(self, ledger_id: int) -> Right | None:
        data = encode_lock(self._runtime.hostname())
        while True:
            try:
                return await self.locks.claim(self._lock(ledger_id), data)
            except NoNode:
                await self._zk.ensure(self._locks)

    def _lock(self, ledger_id: int) -> str:
        return f"{self._locks}/{mark_name(ledger_id)}"

    async def acquire(self, ledger_id: int, *, with_mark: bool = False) -> ZooKeeperLedgerLock:
        await self._open()
        right = await self._claim(ledger_id)
        if right is None:
            raise LockHeld(f"somebody repairs ledger {ledger_id} already")
        stat = await self._zk.exists(self._mark(ledger_id)) if with_mark else None
        return ZooKeeperLedgerLock(self, ledger_id, right, stat.version if stat else _NOT_LOCKED_THROUGH_A_MARK)

    async def is_locked(self, ledger_id: int) -> bool:
        return await self._zk.exists(self._lock(ledger_id)) is not None

    async def lock_owner(self, ledger_id: int) -> str | None:
        try:
            data, _ = await self._zk.get(self._lock(ledger_id))
        except NoNode:
            return None
        return parse_lock(data)
