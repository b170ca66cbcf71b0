"""The in-memory store's own properties: faults, contexts, atomicity."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from bookkeeper.errors import LedgerExists, MetadataError, ServiceUnavailable, SessionLost, VersionConflict
from bookkeeper.metadata import update_ledger
from bookkeeper.metadata.api import BookieServiceInfo, Mode, Versioned
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.metadata.memory import MemoryDriver, MemoryStore, StoreFaults
from bookkeeper.metadata.records.store import PERMANENT, Topic, Transaction
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, LedgerState
from tests.support.metadata_stores import ledger
from tests.support.waiting import until

A = BookieId("127.0.0.1:1")


class Script(StoreFaults):
    """Fails as told, and keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.lose_request: set[str] = set()
        self.lose_answer: set[str] = set()
        self.hold: asyncio.Event | None = None

    async def before(self, client: str, operation: str) -> None:
        self.seen.append((client, operation))
        if operation in self.lose_request:
            raise ServiceUnavailable("lost on the way there")
        if self.hold is not None and operation == "ledgers.write":
            await self.hold.wait()

    async def after(self, client: str, operation: str) -> None:
        if operation in self.lose_answer:
            raise ServiceUnavailable("lost on the way back", maybe_applied=True)


async def opened(store: MemoryStore, **options: int) -> MemoryDriver:
    driver = MemoryDriver(store, RealRuntime(), name="p", session_timeout_ms=20_000, **options)
    await driver.open()
    return driver


async def test_faults_know_the_client_and_the_operation() -> None:
    faults = Script()
    driver = await opened(MemoryStore(RealRuntime(), faults=faults))
    await driver.ids.allocate()
    await driver.close()
    assert faults.seen[0] == ("p", "open")
    assert ("p", "session.start") in faults.seen
    assert ("p", "ids.allocate") in faults.seen
    assert faults.seen[-1] == ("p", "session.end")


@pytest.mark.parametrize("applied", [False, True])
async def test_a_store_that_stays_silent_leaves_the_outcome_unknown(applied: bool) -> None:
    faults = Script()
    driver = await opened(MemoryStore(RealRuntime(), faults=faults), retry_ms=100)
    (faults.lose_answer if applied else faults.lose_request).update({"ledgers.create", "cookies.create"})
    for call in (driver.ledgers.create(1, ledger(1)), driver.cookies.create(A, b"")):
        with pytest.raises((ServiceUnavailable, LedgerExists)) as raised:
            await call
        assert isinstance(raised.value, ServiceUnavailable)
        assert raised.value.maybe_applied is applied
    await driver.close()


async def test_a_cookie_whose_outcome_is_unknown_is_not_tried_again() -> None:
    faults = Script()
    driver = await opened(MemoryStore(RealRuntime(), faults=faults))
    faults.lose_answer = {"cookies.create"}
    with pytest.raises(ServiceUnavailable):
        await driver.cookies.create(A, b"")
    assert faults.seen.count(("p", "cookies.create")) == 1
    await driver.close()


async def test_a_transaction_that_raises_changes_nothing() -> None:
    store = MemoryStore(RealRuntime())
    version = store.transact(lambda tx: tx.put(Topic.CLUSTER, "k", b"old"))

    def fail(tx: Transaction) -> None:
        tx.put(Topic.CLUSTER, "k", b"new")
        tx.delete(Topic.CLUSTER, "k")
        tx.put(Topic.CLUSTER, "other", b"new")
        raise VersionConflict("no")

    with pytest.raises(VersionConflict):
        store.transact(fail)
    assert [(r.key, r.data, r.version) for r in store.records(Topic.CLUSTER).values()] == [("k", b"old", version)]
    assert store.transact(lambda tx: tx.revision(Topic.CLUSTER)) == version


async def test_ended_sessions_own_nothing() -> None:
    store = MemoryStore(RealRuntime())
    session = store.start_session(60)
    store.transact(lambda tx: tx.put(Topic.LOCKS, "k", b"", session=session))
    store.transact(lambda tx: tx.put(Topic.LOCKS, "l", b"", session=PERMANENT))
    store.expire(session)
    assert list(store.records(Topic.LOCKS)) == ["l"]
    with pytest.raises(SessionLost):
        store.transact(lambda tx: tx.put(Topic.LOCKS, "k", b"", session=session))
    assert not store.renew_session(session, 60)


async def test_the_store_acts_in_its_own_context_and_tells_clients_in_theirs() -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="store")
    expired_in: list[str] = []

    class Watched(MemoryStore):
        def expire(self, session: int) -> None:
            expired_in.append(whose.get())
            super().expire(session)

    store = Watched(RealRuntime())
    heard_in: list[str] = []

    async def client() -> None:
        whose.set("client")
        driver = await opened(store)
        driver._link.hub.listen(lambda changes: heard_in.append(whose.get()))
        store.start_session(0.01)
        await until(lambda: expired_in)
        await driver.ids.allocate()
        await until(lambda: heard_in)
        await driver.close()

    await asyncio.create_task(client())
    assert expired_in[0] == "store"
    assert set(heard_in) == {"client"}


async def test_the_update_loop_stops_when_the_change_is_not_needed_any_more() -> None:
    store = MemoryStore(RealRuntime())
    p, q = await opened(store), await opened(store)
    created = await p.ledgers.create(1, ledger(1))
    await q.ledgers.write(1, created.value.close(9, 90), created.version)
    calls = 0

    def recover(metadata: LedgerMetadata) -> LedgerMetadata:
        nonlocal calls
        calls += 1
        return metadata.in_recovery()

    found = await update_ledger(p.ledgers, 1, created, lambda m: m.state is LedgerState.OPEN, recover)
    assert (found.value.state, found.value.last_entry_id, calls) == (LedgerState.CLOSED, 9, 1)

    def refuse(metadata: LedgerMetadata) -> bool:
        raise VersionConflict("closed with another last entry")

    with pytest.raises(VersionConflict):
        await update_ledger(p.ledgers, 1, found, refuse, recover)
    await p.close()
    await q.close()


async def test_the_update_loop_passes_other_errors_on() -> None:
    driver = await opened(MemoryStore(RealRuntime()))
    with pytest.raises(MetadataError, match="no ledger 1"):
        await update_ledger(driver.ledgers, 1, Versioned(ledger(1), 5), lambda _: True, lambda m: m.in_recovery())
    await driver.close()


async def test_a_closed_driver_refuses_at_once() -> None:
    driver = await opened(MemoryStore(RealRuntime()))
    await driver.close()
    info = BookieServiceInfo(())
    async with asyncio.timeout(10):
        for call in (
            driver.registration.register(A, Mode.WRITABLE, info),
            driver.underreplication.acquire(1),
            driver.auditor.campaign(A),
            driver.ids.allocate(),
        ):
            with pytest.raises(MetadataError):
                await call
