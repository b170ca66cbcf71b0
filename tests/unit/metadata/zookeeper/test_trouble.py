"""Lost connections, lost sessions, dead servers (spec metadata §12.3 "Ephemerals", §13)."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing
from typing import Any

import pytest

from bookkeeper.errors import AlreadyRegistered, LockHeld, MetadataError, ServiceUnavailable
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, Mode, SessionEvent
from bookkeeper.metadata.zookeeper import ZooKeeperDriver
from bookkeeper.metadata.zookeeper.local_server import LocalZooKeeper
from bookkeeper.runtime.ports import free_port
from bookkeeper.types import BookieId
from tests.support.waiting import until
from tests.support.zookeeper import LossyKazoo, Proxy, abandon, expire_session, zookeeper_driver

from .conftest import Cluster, ledger

pytestmark = pytest.mark.zookeeper

SHORT_MS = 1000
"""Session timeout where a test waits for it."""

A, B, C = BookieId("127.0.0.1:1"), BookieId("127.0.0.1:2"), BookieId("127.0.0.1:3")


def info(port: int = 3181) -> BookieServiceInfo:
    return BookieServiceInfo((Endpoint("bookie", "127.0.0.1", port),))


def record(driver: ZooKeeperDriver) -> list[Any]:
    """What the driver reports, in order."""
    told: list[Any] = []
    driver.add_session_listener(told.append)
    driver.registration.on_registration_lost(lambda: told.append("registration lost"))
    return told


# --- the server comes and goes ---


async def test_an_outage_of_the_server_is_survived_by_sessions_and_watches(cluster: Cluster) -> None:
    """FX-71, MF-8."""
    driver, other = await cluster.init(), await cluster.open()
    told = record(driver)
    created = await driver.ledgers.create(1, ledger(1))
    await driver.registration.register(A, Mode.WRITABLE, info())
    async with aclosing(driver.ledgers.watch(1)) as watch, aclosing(other.discovery.watch(Mode.WRITABLE)) as bookies:
        assert await anext(watch) is not None
        assert (await anext(bookies)).value == {A}
        await cluster.server.stop()
        await until(lambda: not driver.zk.connected)
        write = asyncio.create_task(driver.ledgers.write(1, created.value.in_recovery(), created.version))
        await cluster.server.start()
        assert (await write).version == 1
        seen = await anext(watch)
        assert seen is not None
        assert seen.version == 1
        await other.registration.register(B, Mode.WRITABLE, info())
        assert (await anext(bookies)).value == {A, B}
    assert told == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    assert await driver.registration.is_registered(A)


async def test_a_server_that_takes_connections_and_says_nothing_costs_no_session(cluster: Cluster) -> None:
    """As one that is just starting may. To wait for it as long as a session lives is to lose the session."""
    await cluster.init()
    async with Proxy(cluster.server.server.port) as proxy:
        driver = await cluster.open(address=proxy.address, zkTimeout=12_000)
        told = record(driver)
        await driver.registration.register(A, Mode.WRITABLE, info())
        proxy.silent = 2
        proxy.drop()
        await until(lambda: SessionEvent.CONNECTED in told)
        assert not proxy.silent
        assert told == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        assert await driver.registration.is_registered(A)
        await driver.close()


async def test_a_killed_server_has_its_data_when_it_comes_back(cluster: Cluster) -> None:
    """MI-3."""
    driver = await cluster.init()
    for ledger_id in range(20):
        await driver.ledgers.create(ledger_id, ledger(ledger_id))
    await driver.cookies.create(A, b"cookie")
    await driver.underreplication.mark(7, [A])
    await cluster.server.kill()
    await until(lambda: not driver.zk.connected)
    await cluster.server.start()
    assert [range_.ids async for range_ in driver.ledgers.ranges()] == [tuple(range(20))]
    assert (await driver.cookies.read(A)).value == b"cookie"
    assert [mark.ledger_id async for mark in driver.underreplication.list()] == [7]
    assert await driver.ids.allocate() == 0


async def test_operations_of_a_busy_driver_all_come_to_an_end_over_a_restart(cluster: Cluster) -> None:
    driver = await cluster.init()
    work = [asyncio.create_task(driver.ledgers.create(ledger_id, ledger(ledger_id))) for ledger_id in range(500)]
    await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    await cluster.server.restart()
    for created in await asyncio.gather(*work):
        assert (await driver.ledgers.read(created.value.ledger_id)).value.ctoken == created.value.ctoken


async def test_open_waits_for_a_server_that_comes_up(cluster: Cluster) -> None:
    port = free_port()
    driver = zookeeper_driver(f"zk://127.0.0.1:{port}/ledgers")
    opening = asyncio.create_task(driver.open())
    async with Proxy(cluster.server.server.port, port):
        await opening
        assert await driver.is_available()
        await driver.close()
    assert not await driver.is_available()


async def test_open_gives_up_after_the_session_timeout() -> None:
    driver = zookeeper_driver(f"zk://127.0.0.1:{free_port()}/ledgers", zkTimeout=300)
    with pytest.raises(ServiceUnavailable, match="no ZooKeeper server answered"):
        await driver.open()
    await driver.close()


async def test_an_operation_gives_up_when_its_retries_are_used_up(cluster: Cluster) -> None:
    driver = await cluster.init(
        zkTimeout=SHORT_MS, zkRetryBackoffMaxRetries=2, zkRetryBackoffStartMs=10, zkRetryBackoffMaxMs=20
    )
    cluster.server.pause()
    try:
        await until(lambda: not driver.zk.connected)
        with pytest.raises(ServiceUnavailable) as caught:
            await driver.ledgers.read(1)
        assert not caught.value.maybe_applied
    finally:
        cluster.server.resume()


async def test_a_silent_server_is_noticed(cluster: Cluster) -> None:
    driver = await cluster.init(zkTimeout=SHORT_MS)
    told = record(driver)
    cluster.server.pause()
    try:
        await until(lambda: told == [SessionEvent.SUSPENDED])
    finally:
        cluster.server.resume()
    await until(lambda: driver.zk.connected)
    assert await driver.admin.instance_id() is not None


# --- the session is lost ---


async def test_a_lost_session_is_reported_once_and_in_order(cluster: Cluster) -> None:
    driver = await cluster.init()
    await driver.underreplication.mark(1, [A])
    lock = await driver.underreplication.poll()
    assert lock is not None
    leadership = await driver.auditor.campaign(A)
    await driver.registration.register(A, Mode.WRITABLE, info())
    told = record(driver)
    driver.add_session_listener(lambda event: told.append((event, lock.lost.is_set(), leadership.lost.is_set())))
    await expire_session(driver)
    lost = SessionEvent.LOST
    assert [item for item in told if item not in (SessionEvent.SUSPENDED, SessionEvent.CONNECTED)][:3] == [
        (SessionEvent.SUSPENDED, False, False),
        lost,
        (lost, False, False),
    ]
    assert told.count("registration lost") == 1
    assert told.count(lost) == 1
    assert lock.lost.is_set()
    assert leadership.lost.is_set()
    # the store agrees, and the owners can start again
    assert not await driver.registration.is_registered(A)
    assert await driver.auditor.current() is None
    assert not await driver.underreplication.is_locked(1)
    assert not await lock.mark_replicated()
    await lock.release()
    await leadership.resign()
    await driver.registration.register(A, Mode.WRITABLE, info())
    assert (await driver.discovery.list(Mode.WRITABLE)).value == {A}
    again = await driver.underreplication.poll()
    assert again is not None
    assert await again.mark_replicated()
    await driver.auditor.campaign(A)


async def test_a_driver_without_registration_does_not_report_one_lost(cluster: Cluster) -> None:
    driver = await cluster.init()
    told = record(driver)
    await expire_session(driver)
    assert "registration lost" not in told


async def test_watches_go_on_over_a_lost_session(cluster: Cluster) -> None:
    driver, other = await cluster.init(), await cluster.open()
    created = await driver.ledgers.create(1, ledger(1))
    await other.registration.register(A, Mode.WRITABLE, info())
    async with aclosing(driver.ledgers.watch(1)) as watch, aclosing(driver.discovery.watch(Mode.WRITABLE)) as bookies:
        assert await anext(watch) is not None
        assert (await anext(bookies)).value == {A}
        await expire_session(driver)
        written = await other.ledgers.write(1, created.value.in_recovery(), created.version)
        seen = await anext(watch)
        assert seen is not None
        assert seen.version == written.version
        await other.registration.unregister(A, Mode.WRITABLE)
        assert (await anext(bookies)).value == frozenset()
        await other.ledgers.remove(1)
        assert await anext(watch) is None


async def test_waiting_for_a_ledger_to_repair_goes_on_over_a_lost_session(cluster: Cluster) -> None:
    """FX-70."""
    driver, other = await cluster.init(), await cluster.open()
    waiting = asyncio.create_task(driver.underreplication.get())
    await until(lambda: driver.underreplication._listings._known)
    await expire_session(driver)
    await other.underreplication.mark(5, [A])
    assert (await waiting).ledger_id == 5


async def test_the_death_of_a_process_frees_what_it_held(cluster: Cluster) -> None:
    driver = await cluster.init(zkTimeout=SHORT_MS)
    other = await cluster.open()
    await driver.registration.register(A, Mode.WRITABLE, info())
    await driver.underreplication.mark(1, [A])
    assert await driver.underreplication.poll() is not None
    await driver.auditor.campaign(A)
    next_leader = asyncio.create_task(other.auditor.campaign(B))
    next_lock = asyncio.create_task(other.underreplication.get())
    async with aclosing(other.discovery.watch(Mode.WRITABLE)) as bookies:
        assert (await anext(bookies)).value == {A}
        assert not next_leader.done()
        await abandon(driver)
        assert (await anext(bookies)).value == frozenset()
    assert (await next_lock).ledger_id == 1
    await next_leader
    assert await other.auditor.current() == B


async def test_a_restarted_bookie_waits_for_its_old_session(cluster: Cluster) -> None:
    old = await cluster.init(zkTimeout=SHORT_MS)
    await old.registration.register(A, Mode.WRITABLE, info(1))
    await abandon(old)
    new = await cluster.open(zkTimeout=SHORT_MS)
    await new.registration.register(A, Mode.WRITABLE, info(2))
    assert (await new.discovery.info(A)) == info(2)


async def test_a_bookie_id_in_use_elsewhere_is_refused_after_a_session_timeout(cluster: Cluster) -> None:
    first = await cluster.init()
    second = await cluster.open(zkTimeout=500)
    await first.registration.register(A, Mode.WRITABLE, info())
    with pytest.raises(AlreadyRegistered):
        await second.registration.register(A, Mode.WRITABLE, info())
    waiting = asyncio.create_task((await cluster.open()).registration.register(A, Mode.WRITABLE, info()))
    await asyncio.sleep(0.05)
    await first.close()
    await waiting


@pytest.mark.parametrize("applied", [True, False])
async def test_ephemerals_whose_answer_was_lost_are_ours(cluster: Cluster, applied: bool) -> None:
    driver = await cluster.init()
    lossy = LossyKazoo(driver)
    lossy.lose("create", applied=applied, path=lambda path: path.endswith(A))
    await driver.registration.register(A, Mode.WRITABLE, info())
    await driver.underreplication.mark(1, [A])
    lossy.lose("create", applied=applied, path=lambda path: "/locks/" in path)
    lock = await driver.underreplication.poll()
    assert lock is not None
    lossy.lose("create", applied=applied, path=lambda path: path.endswith("/V_"))
    leadership = await driver.auditor.campaign(A)
    assert lossy.lost == 3

    async def one_vote() -> bool:
        return len(await driver.auditor._names()) == 1

    await until(one_vote, "no vote without a candidate is left")
    assert await lock.mark_replicated()
    assert not await driver.underreplication.is_locked(1)
    await leadership.resign()
    assert await driver.auditor.current() is None


@pytest.mark.parametrize("applied", [True, False])
async def test_a_mark_goes_with_its_lock_though_the_answer_was_lost(cluster: Cluster, applied: bool) -> None:
    driver = await cluster.init()
    lossy = LossyKazoo(driver)
    await driver.underreplication.mark(1, [A])
    lock = await driver.underreplication.poll()
    assert lock is not None
    lossy.lose("commit", applied=applied)
    assert await lock.mark_replicated()
    assert lossy.lost == 1
    assert await driver.underreplication.info(1) is None
    assert not await driver.underreplication.is_locked(1)
    assert await driver.underreplication.poll() is None


async def test_a_mark_beside_something_else_goes_and_so_does_its_lock(cluster: Cluster) -> None:
    driver = await cluster.init()
    lossy = LossyKazoo(driver)
    await driver.underreplication.mark(1, [A])
    mark = driver.underreplication._mark(1)
    await driver.zk.create(mark.rpartition("/")[0] + "/other")
    lock = await driver.underreplication.poll()
    assert lock is not None
    lossy.lose("delete", applied=True, path=lambda path: path == mark)
    assert await lock.mark_replicated()
    assert lossy.lost == 1
    assert await driver.underreplication.info(1) is None
    assert not await driver.underreplication.is_locked(1)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_deletion_without_an_answer_is_not_tried_again_on_what_another_has_made_since(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Of a mark with its lock, and of a lock that is only given back."""
    driver, other = await cluster.init(), await cluster.open()
    lossy = LossyKazoo(driver)
    await driver.underreplication.mark(1, [A])
    lock = await driver.underreplication.poll()
    assert lock is not None
    others: list[Any] = []
    back_off = driver.zk._back_off

    async def meanwhile(attempt: int) -> float:
        await other.underreplication.mark(1, [B])
        others.append(await other.underreplication.poll())
        return await back_off(attempt)

    monkeypatch.setattr(driver.zk, "_back_off", meanwhile)
    lossy.lose("commit" if whole else "delete", applied=True)
    if whole:
        assert await lock.mark_replicated()
    else:
        await lock.release()
    assert lossy.lost == len(others) == 1
    assert others[0] is not None
    mark = await driver.underreplication.info(1)
    assert mark is not None
    assert B in mark.replicas
    assert await driver.underreplication.is_locked(1)
    assert await driver.underreplication.poll() is None
    assert not others[0].lost.is_set()
    assert await others[0].mark_replicated()


# --- the session is in doubt ---


async def test_a_cut_off_holder_gives_up_before_anybody_else_can_hold(cluster: Cluster) -> None:
    """MF-2."""
    other = await cluster.init()
    async with Proxy(cluster.server.server.port) as proxy:
        driver = await cluster.open(address=proxy.address, zkTimeout=SHORT_MS)
        told = record(driver)
        await driver.registration.register(A, Mode.WRITABLE, info())
        await driver.underreplication.mark(1, [A])
        lock = await driver.underreplication.poll()
        assert lock is not None
        leadership = await driver.auditor.campaign(A)
        moments: dict[str, float] = {}

        async def note(name: str, work: Any) -> Any:
            result = await work
            moments[name] = time.monotonic()
            return result

        ends = [
            asyncio.create_task(note("lock lost", lock.lost.wait())),
            asyncio.create_task(note("leadership lost", leadership.lost.wait())),
            asyncio.create_task(note("lock taken", other.underreplication.get())),
            asyncio.create_task(note("leader", other.auditor.campaign(B))),
        ]
        await until(lambda: other.underreplication._listings._known)
        proxy.cut()
        await asyncio.gather(*ends)
        tolerance = 0.2
        assert moments["lock lost"] <= moments["lock taken"] + tolerance
        assert moments["leadership lost"] <= moments["leader"] + tolerance
        assert "registration lost" not in told  # the store has not said so
        assert not await lock.mark_replicated()
        proxy.heal()
        await until(lambda: "registration lost" in told)
        assert told.count("registration lost") == 1
        assert told.count(SessionEvent.LOST) == 1
        await driver.close()


async def test_after_an_outage_that_the_session_survived_doubted_locks_and_votes_are_gone(cluster: Cluster) -> None:
    """FX-71, MF-8."""
    other = await cluster.init()
    async with Proxy(cluster.server.server.port) as proxy:
        driver = await cluster.open(address=proxy.address, zkTimeout=3000)
        told = record(driver)
        await driver.registration.register(A, Mode.WRITABLE, info())
        await driver.underreplication.mark(1, [A])
        lock = await driver.underreplication.poll()
        assert lock is not None
        leadership = await driver.auditor.campaign(A)
        proxy.refuse()
        await cluster.server.stop()
        await lock.lost.wait()
        await leadership.lost.wait()
        await cluster.server.start()  # it gives the sessions it knew their whole timeout again
        proxy.heal()
        await until(lambda: driver.zk.connected)
        assert (await other.underreplication.get()).ledger_id == 1
        await other.auditor.campaign(B)
        assert told == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]  # a store's outage takes no bookie down
        assert (await other.discovery.list(Mode.WRITABLE)).value == {A}
        with pytest.raises(LockHeld):
            await driver.underreplication.acquire(1)
        await driver.close()


async def test_a_cancelled_attempt_to_lock_leaves_no_lock(cluster: Cluster) -> None:
    driver, other = await cluster.init(), await cluster.open()
    await driver.underreplication.mark(1, [A])
    lock = await until(lambda: _try_acquire(driver))  # from now on one request makes a lock
    await lock.release()
    for _ in range(20):
        attempt = asyncio.create_task(driver.underreplication.acquire(1))
        await asyncio.sleep(0)
        assert driver.zk._in_flight, "the request is under way"
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)

        async def free() -> bool:
            return not driver.underreplication.locks._doubted and not await other.underreplication.is_locked(1)

        await until(free, "the lock is free")
    lock = await driver.underreplication.acquire(1)
    await lock.release()


async def _try_acquire(driver: ZooKeeperDriver) -> Any:
    try:
        return await driver.underreplication.acquire(1)
    except LockHeld:
        return None


# --- election ---


async def test_the_oldest_candidate_is_the_auditor(cluster: Cluster) -> None:
    drivers = [await cluster.init(), await cluster.open(), await cluster.open()]
    first = await drivers[0].auditor.campaign(A)
    second = asyncio.create_task(drivers[1].auditor.campaign(B))
    await until(lambda: drivers[1].auditor.votes._held)
    third = asyncio.create_task(drivers[2].auditor.campaign(C))
    await until(lambda: drivers[2].auditor.votes._held)
    assert await drivers[2].auditor.current() == A
    assert not second.done()
    # a vote in the middle goes: its successor is not elected
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert len(await drivers[0].auditor._names()) == 2
    second = asyncio.create_task(drivers[1].auditor.campaign(B))
    await until(lambda: drivers[1].auditor.votes._held)
    assert not third.done()
    await first.resign()
    assert first.lost.is_set()
    leader = await third
    assert await drivers[0].auditor.current() == C
    await expire_session(drivers[2])
    assert leader.lost.is_set()
    await second
    assert await drivers[0].auditor.current() == B
    data, _ = await drivers[0].zk.get(f"{cluster.root}/underreplication/auditorelection")
    assert data == f'bookieId: "{B}"\n'.encode()


async def test_a_leader_whose_vote_is_deleted_knows(cluster: Cluster) -> None:
    driver = await cluster.init()
    leadership = await driver.auditor.campaign(A)
    [vote] = await driver.auditor._names()
    await driver.zk.delete(f"{cluster.root}/underreplication/auditorelection/{vote}")
    await leadership.lost.wait()


async def test_a_candidate_whose_vote_is_deleted_votes_again(cluster: Cluster) -> None:
    driver, other = await cluster.init(), await cluster.open()
    first = await driver.auditor.campaign(A)
    second = asyncio.create_task(other.auditor.campaign(B))
    await until(lambda: other.auditor.votes._held)
    _, vote = await driver.auditor._names()
    await driver.zk.delete(f"{cluster.root}/underreplication/auditorelection/{vote}")
    await first.resign()
    await second
    assert await driver.auditor.current() == B


# --- the driver's life ---


async def test_close_ends_everything_that_waits(cluster: Cluster) -> None:
    before = threading.enumerate()
    helper, driver = await cluster.init(), await cluster.open()
    await helper.ledgers.create(1, ledger(1))
    await helper.auditor.campaign(A)
    await driver.registration.register(B, Mode.WRITABLE, info())
    watch, bookies = driver.ledgers.watch(1), driver.discovery.watch(Mode.WRITABLE)
    delay = driver.underreplication.watch_lost_bookie_recovery_delay()
    await anext(watch)
    await anext(bookies)
    await helper.underreplication.disable()
    pending = [
        asyncio.create_task(work)
        for work in (
            driver.underreplication.get(),
            driver.underreplication.wait_enabled(),
            driver.auditor.campaign(B),
        )
    ]
    ending = [asyncio.create_task(_end(iterator)) for iterator in (watch, bookies, delay)]
    await until(lambda: driver.auditor.votes._held)
    await driver.close()
    await driver.close()
    for result in await asyncio.gather(*pending, return_exceptions=True):
        assert isinstance(result, MetadataError)
    await asyncio.gather(*ending)
    with pytest.raises(ServiceUnavailable):
        await driver.ledgers.read(1)
    assert not await helper.registration.is_registered(B)
    await helper.close()
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if not name.startswith("asyncio_")] == []  # asyncio's own pool stays
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("zookeeper")]


async def _end(iterator: Any) -> None:
    async for _ in iterator:
        pass


async def test_a_driver_that_was_never_opened_says_so(cluster: Cluster) -> None:
    driver = zookeeper_driver(cluster.server.uri(cluster.root))
    with pytest.raises(ServiceUnavailable, match="not open"):
        await driver.ledgers.read(1)
    await driver.close()


async def test_the_session_lives_while_the_loop_is_busy(cluster: Cluster) -> None:
    driver = await cluster.init(zkTimeout=500)
    told = record(driver)
    time.sleep(1.2)  # noqa: ASYNC251  (the point: the loop does nothing else)
    await driver.admin.instance_id()
    assert told == []


async def test_closing_while_the_server_is_away_does_not_hang(cluster: Cluster) -> None:
    driver = await cluster.init(zkTimeout=SHORT_MS)
    cluster.server.pause()
    try:
        await driver.close()
    finally:
        cluster.server.resume()


async def test_the_server_says_why_it_does_not_start(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from bookkeeper.errors import ConfigurationError

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match="JDK 17"):
        await LocalZooKeeper(tmp_path).start()
