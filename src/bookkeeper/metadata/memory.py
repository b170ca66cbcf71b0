"""Metadata in memory: for tests, demonstrations and the simulation. Nothing is kept.

A `MemoryStore` plays the server; each `MemoryDriver` is one client of it with a session of its own. What can go wrong
between them is decided by `StoreFaults`: delays, requests that do not arrive, answers that get lost, late news of
changes. `MemoryStore.expire` ends a session from the server's side.

Theory of operation

The store may belong to a different simulated machine than its clients. So whatever it starts by itself (expiry of
sessions) runs in the context it was made in, and whatever it tells a client runs in the context the client attached
in: a crashed client hears nothing more, and cannot take the store's timers with it.
"""

from __future__ import annotations

import asyncio
import contextvars
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import TypeVar

from ..errors import ServiceUnavailable, SessionLost
from ..runtime import Runtime, TimerHandle
from .api import Version
from .records.driver import DEFAULT_SESSION_TIMEOUT_MS, UNLIMITED, RecordDriver
from .records.store import END, PERMANENT, SCAN_LIMIT, Change, Changes, Record, RecordStore, Topic, Transaction
from .tree import TransactionLimits

T = TypeVar("T")

FACTORY = "memory"
"""Name of this store in a cluster's layout."""


class StoreFaults:
    """What happens between a client and the store; this one: nothing. Override to inject faults.

    `client` is the name given to the driver, `operation` a name like `ledgers.write` or `session.renew`.
    """

    async def before(self, client: str, operation: str) -> None:
        """A request is under way. Sleep to delay it; raise `ServiceUnavailable` to lose it."""

    async def after(self, client: str, operation: str) -> None:
        """The request was carried out. Sleep to delay the answer; to lose it, raise `ServiceUnavailable` with
        `maybe_applied`."""

    def news_delay(self, client: str) -> float:  # noqa: ARG002
        """Seconds until news of a change reach the client."""
        return 0.0


class MemoryStore:
    """The server's side: records, sessions, and who is told of changes."""

    def __init__(self, runtime: Runtime, *, faults: StoreFaults | None = None) -> None:
        self.faults = faults if faults is not None else StoreFaults()
        self._runtime = runtime
        self._context = contextvars.copy_context()
        self._topics: dict[str, dict[str, Record]] = {topic: {} for topic in Topic}
        self._keys: dict[str, list[str]] = {topic: [] for topic in Topic}
        """Those of `_topics`, ascending."""
        self._revisions: dict[str, Version] = dict.fromkeys(Topic, 0)
        self._revision: Version = 0
        self._sessions: dict[int, TimerHandle] = {}
        self._last_session = PERMANENT
        self._clients: dict[_Client, contextvars.Context] = {}
        self.on_change: Callable[[Topic, str, Record | None], None] | None = None
        """Sees every change of a record at once: topic, key, and the new record or None. For checks."""

    # --- records ---

    def transact(self, transaction: Callable[[Transaction], T]) -> T:
        """Run a transaction at once."""
        tx = _MemoryTransaction(self)
        try:
            result = transaction(tx)
        except BaseException:
            tx.undo()
            raise
        if tx.changes:
            self._tell(tx.changes)
        if self.on_change is not None:
            for topic, key in tx.changes:
                self.on_change(Topic(topic), key, self._topics[topic].get(key))
        return result

    def records(self, topic: Topic) -> dict[str, Record]:
        """A copy of a topic's records, for checks."""
        return dict(self._topics[topic])

    # --- sessions ---

    def start_session(self, timeout: float) -> int:
        self._last_session += 1
        self._arm(self._last_session, timeout)
        return self._last_session

    def renew_session(self, session: int, timeout: float) -> bool:
        timer = self._sessions.get(session)
        if timer is None:
            return False
        timer.cancel()
        self._arm(session, timeout)
        return True

    def expire(self, session: int) -> None:
        """End a session: its records vanish, its client learns of it at its next renewal."""
        timer = self._sessions.pop(session, None)
        if timer is None:
            return
        timer.cancel()

        def remove(tx: Transaction) -> None:
            for topic in Topic:
                for record in self.records(topic).values():
                    if record.session == session:
                        tx.delete(topic, record.key)

        self.transact(remove)

    def _arm(self, session: int, timeout: float) -> None:
        self._sessions[session] = self._context.run(self._runtime.call_later, timeout, self.expire, session)

    def is_live(self, session: int) -> bool:
        return session in self._sessions

    # --- news ---

    def attach(self, client: _Client) -> None:
        self._clients[client] = contextvars.copy_context()

    def detach(self, client: _Client) -> None:
        self._clients.pop(client, None)

    def _tell(self, changes: Changes) -> None:
        for client, context in self._clients.items():
            context.run(self._runtime.call_later, self.faults.news_delay(client.name), client.hear, changes)


class _MemoryTransaction(Transaction):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.changes: list[Change] = []
        self._before: list[tuple[Topic, str, Record | None, Version]] = []
        """Topic, key, record and the topic's revision before each change, to be restored from the last to the first."""

    def get(self, topic: Topic, key: str) -> Record | None:
        return self._store._topics[topic].get(key)

    def put(self, topic: Topic, key: str, data: bytes, *, session: int = PERMANENT) -> Version:
        if session != PERMANENT and not self._store.is_live(session):
            raise SessionLost("the session with the metadata store has ended")
        old = self.get(topic, key)
        version = self._next_revision(topic, key, old)
        ctime = old.ctime_ms if old is not None else self._store._runtime.wall_ms()
        if old is None:
            insort(self._store._keys[topic], key)
        self._store._topics[topic][key] = Record(key, bytes(data), version, ctime, session)
        return version

    def delete(self, topic: Topic, key: str) -> None:
        old = self.get(topic, key)
        if old is not None:
            self._next_revision(topic, key, old)
            self._remove(topic, key)

    def _remove(self, topic: Topic, key: str) -> None:
        keys = self._store._keys[topic]
        del keys[bisect_left(keys, key)]
        del self._store._topics[topic][key]

    def scan(self, topic: Topic, *, after: str = "", limit: int = SCAN_LIMIT) -> list[Record]:
        records = self._store._topics[topic]
        return [records[key] for key in self.keys(topic, after=after, limit=limit)]

    def keys(self, topic: Topic, *, after: str = "", before: str = END, limit: int | None = None) -> list[str]:
        keys = self._store._keys[topic]
        start, end = bisect_right(keys, after), bisect_left(keys, before)
        return keys[start : end if limit is None else min(end, start + limit)]

    def clear(self, topic: Topic) -> None:
        for key in self.keys(topic):
            self.delete(topic, key)

    def revision(self, topic: Topic) -> Version:
        return self._store._revisions[topic]

    def _next_revision(self, topic: Topic, key: str, old: Record | None) -> Version:
        store = self._store
        self._before.append((topic, key, old, store._revisions[topic]))
        self.changes.append((topic, key))
        store._revision += 1
        store._revisions[topic] = store._revision
        return store._revision

    def undo(self) -> None:
        for topic, key, record, revision in reversed(self._before):
            self._store._revisions[topic] = revision
            there = self.get(topic, key) is not None
            if record is None:
                if there:
                    self._remove(topic, key)
            else:
                if not there:
                    insort(self._store._keys[topic], key)
                self._store._topics[topic][key] = record


class _Client(RecordStore):
    """A client's connection to the store."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self.name = name
        self._store = store
        self._open = False

    async def open(self, *, create: bool = False) -> None:  # noqa: ARG002  (it is there with its first client)
        await self._request("open", lambda: self._store.attach(self))
        self._open = True

    async def close(self) -> None:
        self._open = False
        self._store.detach(self)

    async def run(
        self,
        name: str,
        transaction: Callable[[Transaction], T],
        *,
        write: bool = True,  # noqa: ARG002
    ) -> T:
        if not self._open:
            raise ServiceUnavailable("the metadata driver is not open")
        return await self._request(name, lambda: self._store.transact(transaction))

    async def start_session(self, timeout: float) -> int:
        return await self._request("session.start", lambda: self._store.start_session(timeout))

    async def renew_session(self, session: int, timeout: float) -> bool:
        return await self._request("session.renew", lambda: self._store.renew_session(session, timeout))

    async def end_session(self, session: int) -> None:
        await self._request("session.end", lambda: self._store.expire(session))

    async def _request(self, name: str, action: Callable[[], T]) -> T:
        faults = self._store.faults
        await asyncio.sleep(0)  # as with a real store, others have their turn
        await faults.before(self.name, name)
        result = action()
        await faults.after(self.name, name)
        return result

    def hear(self, changes: Changes) -> None:
        if self._open:
            self.on_changes(changes)


class MemoryDriver(RecordDriver):
    """A client of a `MemoryStore`. `name` is how fault injection knows it; `limits` lets it bear no more than another
    kind of store does."""

    def __init__(
        self,
        store: MemoryStore,
        runtime: Runtime,
        *,
        name: str = "client",
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        retry_ms: int | None = None,
        owner: str | None = None,
        store_mark_time: bool = True,
        limits: TransactionLimits = UNLIMITED,
    ) -> None:
        super().__init__(
            _Client(store, name),
            runtime,
            factory=FACTORY,
            session_timeout_ms=session_timeout_ms,
            retry_ms=retry_ms,
            owner=owner,
            store_mark_time=store_mark_time,
            limits=limits,
        )
        self.store = store

    @property
    def session(self) -> int:
        """The id of the session, for `MemoryStore.expire`; 0 while there is none."""
        return self._link.session.current
