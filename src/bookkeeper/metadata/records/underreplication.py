"""Marks and locks of under-replicated ledgers, switches of re-replication, the auditor's election (spec metadata §9).

| topic | key | value |
|---|---|---|
| MARKS | ledger id, 19 digits | the mark |
| LOCKS | the same | the lock, of the holder's session |
| VOTES | number of the vote, 19 digits | the vote, of the candidate's session; the lowest is elected |
| CLUSTER | `underreplication/...` | layout, switch, delay, check times, text of the last elected, vote counter |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from ...errors import AlreadyDisabled, AlreadyEnabled, LockHeld, NotInitialized
from ...runtime import TaskScope
from ...types import BookieId
from ..api import ANY, CheckKind, UnderreplicatedLedger, Version
from ..formats import underreplication as format_
from .ledgers import ledger_key
from .session import Holding
from .store import Record, Topic, Transaction
from .store_client import StoreClient

LAYOUT = "underreplication/LAYOUT"
DISABLED = "underreplication/disable"
DELAY = "underreplication/lostBookieRecoveryDelay"
LAST_AUDITOR = "underreplication/auditorelection"
VOTE_COUNTER = "underreplication/votes"


class Lock(Holding):
    """A held lock (see `metadata.api.LedgerLock`)."""

    def __init__(self, link: StoreClient, ledger_id: int, session: int, mark_version: Version | None) -> None:
        super().__init__(Topic.LOCKS, ledger_key(ledger_id), session)
        self.ledger_id = ledger_id
        self._link = link
        self.mark_version = mark_version
        """Of the mark when it was locked; None for a lock that was taken without looking at the mark."""

    async def mark_replicated(self) -> bool:
        """Delete the mark if it is unchanged since locking, then release; True if it was deleted."""
        tried = False

        def finish(tx: Transaction) -> bool:
            nonlocal tried
            mark = tx.get(Topic.MARKS, self.key)
            if mark is None:
                return tried  # then by an attempt that was applied without an answer
            if mark.version != self.mark_version or not self.is_ours(tx):
                return False
            tried = True
            tx.delete(Topic.MARKS, self.key)
            return True

        return await self._link.give_back("underreplication.mark_replicated", self, first=finish)

    async def release(self) -> None:
        """Idempotent."""
        await self._link.give_back("underreplication.release", self)


class Underreplication:
    """Component `underreplication` (see `metadata.api.UnderreplicationStore`)."""

    def __init__(self, link: StoreClient, *, owner: str, store_mark_time: bool) -> None:
        self._link = link
        self._owner = format_.encode_lock(owner)
        self._store_mark_time = store_mark_time
        self._random = link.runtime.random("underreplication")

    # --- marks ---

    async def mark(self, ledger_id: int, missing: Sequence[str]) -> None:
        """Add lost replicas to the ledger's mark. Raises `UnderreplicationIncompatible`."""
        key = ledger_key(ledger_id)
        ctime = self._link.runtime.wall_ms() if self._store_mark_time else -1

        def mark(tx: Transaction) -> None:
            _open(tx)
            record = tx.get(Topic.MARKS, key)
            replicas: tuple[str, ...] = ()
            if record is not None:
                replicas = format_.parse_mark(record.data, ledger_id).replicas
            added = [name for name in dict.fromkeys(missing) if name not in replicas]
            if record is None or added:
                new = UnderreplicatedLedger(ledger_id, (*replicas, *added), ctime)
                tx.put(Topic.MARKS, key, format_.encode_mark(new))

        await self._link.change("underreplication.mark", mark)

    async def info(self, ledger_id: int) -> UnderreplicatedLedger | None:
        """The mark; None if the ledger has none."""
        key = ledger_key(ledger_id)
        record = await self._link.read("underreplication.info", lambda tx: tx.get(Topic.MARKS, key))
        return None if record is None else format_.parse_mark(record.data, ledger_id)

    async def list(
        self, predicate: Callable[[Sequence[str]], bool] | None = None
    ) -> AsyncGenerator[UnderreplicatedLedger, None]:
        """All marks by ledger id, or those whose replicas the predicate wants."""
        after = ""
        while True:
            page = await self._link.read("underreplication.list", partial(_marks_after, after))
            for record in page:
                found = format_.parse_mark(record.data, int(record.key))
                if predicate is None or predicate(found.replicas):
                    yield found
            if not page:
                return
            after = page[-1].key

    # --- locks ---

    async def poll(self) -> Lock | None:
        """Lock some marked, unlocked ledger, chosen by chance; None if there is none."""
        session = await self._link.session.live()
        chance = self._random.random()

        def poll(tx: Transaction, tried: list[Lock]) -> Lock | None:
            _open(tx)
            for lock in tried:
                if lock.is_ours(tx):
                    return lock
            locked = frozenset(tx.keys(Topic.LOCKS))
            free = [key for key in tx.keys(Topic.MARKS) if key not in locked]
            if not free:
                return None
            key = free[int(chance * len(free))]
            mark = tx.get(Topic.MARKS, key)
            assert mark is not None
            lock = Lock(self._link, int(key), session, mark.version)
            tried.append(lock)
            tx.put(Topic.LOCKS, key, self._owner, session=session)
            return lock

        return await self._link.take("underreplication.poll", poll)

    async def get(self) -> Lock:
        """`poll` while re-replication is enabled, waiting until there is one."""

        async def attempt() -> Lock | None:
            return await self.poll() if await self.is_enabled() else None

        return await self._link.until(
            "underreplication.get", ((Topic.MARKS, None), (Topic.LOCKS, None), (Topic.CLUSTER, DISABLED)), attempt
        )

    async def acquire(self, ledger_id: int, *, with_mark: bool = False) -> Lock:
        """Lock a ledger, marked or not. Raises `LockHeld`."""
        lock = Lock(self._link, ledger_id, await self._link.session.live(), None)

        def acquire(tx: Transaction, tried: list[Lock]) -> Lock:
            _open(tx)
            if tried and lock.is_ours(tx):
                return lock
            if tx.get(Topic.LOCKS, lock.key) is not None:
                raise LockHeld(f"ledger {ledger_id} is locked")
            if with_mark and (mark := tx.get(Topic.MARKS, lock.key)) is not None:
                lock.mark_version = mark.version
            tried.append(lock)
            tx.put(Topic.LOCKS, lock.key, self._owner, session=lock.session)
            return lock

        await self._link.take("underreplication.acquire", acquire)
        return lock

    async def is_locked(self, ledger_id: int) -> bool:
        return await self._locked(ledger_id) is not None

    async def lock_owner(self, ledger_id: int) -> str | None:
        """What the holder wrote about itself; None if the ledger is not locked."""
        record = await self._locked(ledger_id)
        return None if record is None else format_.parse_lock(record.data)

    async def _locked(self, ledger_id: int) -> Record | None:
        key = ledger_key(ledger_id)
        return await self._link.read("underreplication.is_locked", lambda tx: tx.get(Topic.LOCKS, key))

    # --- switches ---

    async def enable(self) -> None:
        """Raises `AlreadyEnabled`."""

        def enable(tx: Transaction) -> None:
            if tx.get(Topic.CLUSTER, DISABLED) is None:
                raise AlreadyEnabled("re-replication is enabled already")
            tx.delete(Topic.CLUSTER, DISABLED)

        await self._link.change("underreplication.enable", enable, repeat=False)

    async def disable(self) -> None:
        """Raises `AlreadyDisabled`."""

        def disable(tx: Transaction) -> None:
            _open(tx)
            if tx.get(Topic.CLUSTER, DISABLED) is not None:
                raise AlreadyDisabled("re-replication is disabled already")
            tx.put(Topic.CLUSTER, DISABLED, b"")

        await self._link.change("underreplication.disable", disable, repeat=False)

    async def is_enabled(self) -> bool:
        return await self._link.read("underreplication.is_enabled", lambda tx: tx.get(Topic.CLUSTER, DISABLED) is None)

    async def wait_enabled(self) -> None:
        """Returns once re-replication is enabled."""

        async def attempt() -> bool | None:
            return await self.is_enabled() or None

        await self._link.until("underreplication.wait_enabled", ((Topic.CLUSTER, DISABLED),), attempt)

    # --- values ---

    async def init_lost_bookie_recovery_delay(self, seconds: int) -> bool:
        """False if it is set already."""

        def init(tx: Transaction) -> bool:
            _open(tx)
            if tx.get(Topic.CLUSTER, DELAY) is not None:
                return False
            tx.put(Topic.CLUSTER, DELAY, format_.encode_delay(seconds))
            return True

        return await self._link.change("underreplication.init_delay", init, repeat=False)

    async def set_lost_bookie_recovery_delay(self, seconds: int) -> None:
        def write(tx: Transaction) -> None:
            _open(tx)
            tx.put(Topic.CLUSTER, DELAY, format_.encode_delay(seconds))

        await self._link.change("underreplication.set_delay", write)

    async def get_lost_bookie_recovery_delay(self) -> int:
        """Raises `NotInitialized` if it was never set."""
        record = await self._link.read("underreplication.get_delay", lambda tx: tx.get(Topic.CLUSTER, DELAY))
        if record is None:
            raise NotInitialized("lostBookieRecoveryDelay is not set in the metadata store: no auditor has run yet")
        return format_.parse_delay(record.data)

    async def watch_lost_bookie_recovery_delay(self) -> AsyncGenerator[int, None]:
        """The delay, and again after every set, even to an equal value."""

        def look(tx: Transaction) -> tuple[Version, bytes | None]:
            record = tx.get(Topic.CLUSTER, DELAY)
            return (ANY, None) if record is None else (record.version, record.data)

        async with aclosing(self._link.follow("underreplication.watch_delay", Topic.CLUSTER, DELAY, look)) as following:
            async for _, data in following:
                if data is not None:
                    yield format_.parse_delay(data)

    async def get_check_time(self, kind: CheckKind) -> int:
        """Milliseconds since 1970; -1 if unset."""
        key = _check_key(kind)
        record = await self._link.read("underreplication.get_check", lambda tx: tx.get(Topic.CLUSTER, key))
        return -1 if record is None else format_.parse_check_time(kind, record.data)

    async def set_check_time(self, kind: CheckKind, ms: int) -> None:
        data = format_.encode_check_time(kind, ms)

        def write(tx: Transaction) -> None:
            _open(tx)
            tx.put(Topic.CLUSTER, _check_key(kind), data)

        await self._link.change("underreplication.set_check", write)


def _marks_after(after: str, tx: Transaction) -> list[Record]:
    return tx.scan(Topic.MARKS, after=after)


def _check_key(kind: CheckKind) -> str:
    return f"underreplication/{kind.value}"


def _open(tx: Transaction) -> None:
    """Create or check the layout of under-replication. Raises `UnderreplicationIncompatible`."""
    record = tx.get(Topic.CLUSTER, LAYOUT)
    if record is None:
        tx.put(Topic.CLUSTER, LAYOUT, format_.LAYOUT)
    elif record.data != format_.LAYOUT:
        format_.check_layout(record.data)


class Elected(Holding):
    """Being the auditor (see `metadata.api.Leadership`)."""

    def __init__(self, link: StoreClient, key: str, session: int) -> None:
        super().__init__(Topic.VOTES, key, session)
        self._link = link

    async def resign(self) -> None:
        """Idempotent."""
        self.lost.set()
        await self._link.give_back("auditor.resign", self)


class Election:
    """Component `auditor` (see `metadata.api.AuditorElection`)."""

    def __init__(self, link: StoreClient) -> None:
        self._link = link
        self._scope = TaskScope(link.runtime, "auditor-election")

    async def campaign(self, bookie_id: BookieId) -> Elected:
        """Returns when elected. Cancelling it withdraws the vote. Raises `SessionLost` when the driver is closed."""
        while True:
            vote = await self._vote(bookie_id)
            try:
                if await self._wait_for_turn(vote, format_.encode_vote(bookie_id)):
                    self._scope.spawn(self._guard(vote), name=f"guard-{bookie_id}")
                    return vote
            except BaseException:
                self._link.session.abandon(vote)
                raise

    async def current(self) -> BookieId | None:
        """The bookie that the lowest vote names."""
        found = await self._link.read("auditor.current", lambda tx: tx.scan(Topic.VOTES, limit=1))
        return BookieId(format_.parse_vote(found[0].data)) if found else None

    async def close(self) -> None:
        await self._scope.close()

    async def _vote(self, bookie_id: BookieId) -> Elected:
        data = format_.encode_vote(bookie_id)
        session = await self._link.session.live()

        def vote(tx: Transaction, tried: list[Elected]) -> Elected:
            _open(tx)
            for earlier in tried:
                if earlier.is_ours(tx):
                    return earlier
            last = tx.get(Topic.CLUSTER, VOTE_COUNTER)
            number = int(last.data) + 1 if last is not None else 0
            tx.put(Topic.CLUSTER, VOTE_COUNTER, b"%d" % number)
            vote = Elected(self._link, f"{number:019d}", session)
            tried.append(vote)
            tx.put(Topic.VOTES, vote.key, data, session=session)
            return vote

        vote_ = await self._link.take("auditor.vote", vote)
        assert vote_ is not None
        return vote_

    async def _wait_for_turn(self, vote: Elected, text: bytes) -> bool:
        """True when the vote is the lowest; False when it is gone."""

        def look(tx: Transaction) -> bool | None:
            if not vote.is_ours(tx):
                return False
            if tx.keys(Topic.VOTES)[0] != vote.key:
                return None
            tx.put(Topic.CLUSTER, LAST_AUDITOR, text)
            return True

        async def attempt() -> bool | None:
            return await self._link.change("auditor.look", look)

        elected = await self._link.until("auditor.campaign", ((Topic.VOTES, None),), attempt)
        if not elected:
            self._link.session.drop(vote)
        return elected

    async def _guard(self, vote: Elected) -> None:
        """Flag the leadership lost when the vote is removed."""

        def look(tx: Transaction) -> tuple[Version, bool]:
            mine = vote.is_ours(tx)
            return int(mine), mine

        async with aclosing(self._link.follow("auditor.guard", Topic.VOTES, vote.key, look)) as following:
            async for _, mine in following:
                if not mine:
                    self._link.session.drop(vote)
                    vote.lost.set()
                    return
