"""The cluster as a whole, and the life of a driver (spec metadata §13: 73 to 78, 80 to 82)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.errors import CookieNotFound, LayoutExists, MetadataError, NoSuchLedger, ServiceUnavailable
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, Mode, SessionEvent
from bookkeeper.types import BookieId
from tests.support.metadata_stores import StoreUnderTest, ledger
from tests.support.waiting import until

A = BookieId("127.0.0.1:1")
INFO = BookieServiceInfo((Endpoint("bookie", "127.0.0.1", 1),))

SHORT_MS = 1000


async def test_a_cluster_is_initialised_once(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    instance, layout = await p.admin.instance_id(), await p.layout.read()
    assert instance is not None
    assert len(instance) == 36
    assert layout is not None
    assert not await q.admin.init_new_cluster()
    assert await p.admin.exists()
    assert await q.admin.prepare_format()
    assert (await q.admin.instance_id(), await q.layout.read()) == (instance, layout)
    with pytest.raises(LayoutExists):
        await q.layout.create(layout)


async def test_of_two_who_initialise_one_succeeds(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    assert await p.admin.nuke()
    assert not await p.admin.exists()
    assert await q.admin.instance_id() is None
    done = await asyncio.gather(p.admin.init_new_cluster(), q.admin.init_new_cluster())
    assert sorted(done) == [False, True]
    assert await p.admin.instance_id() == await q.admin.instance_id()


async def test_format_removes_data_and_keeps_registrations(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    instance, layout = await p.admin.instance_id(), await p.layout.read()
    await p.ledgers.create(1, ledger(1))
    await p.cookies.create(A, b"cookie")
    await p.underreplication.mark(1, [A])
    await q.underreplication.acquire(2)
    await p.underreplication.disable()
    await q.registration.register(A, Mode.WRITABLE, INFO)
    await p.admin.format()
    with pytest.raises(NoSuchLedger):
        await q.ledgers.read(1)
    with pytest.raises(CookieNotFound):
        await q.cookies.read(A)
    assert await q.underreplication.info(1) is None
    assert not await q.underreplication.is_locked(2)
    assert not await q.underreplication.is_enabled()
    assert (await q.discovery.list(Mode.WRITABLE)).value == {A}
    assert await q.layout.read() == layout
    new = await q.admin.instance_id()
    assert new is not None
    assert new != instance


@pytest.mark.parametrize("mode", list(Mode))
async def test_nuke_refuses_while_a_bookie_is_registered(store: StoreUnderTest, mode: Mode) -> None:
    p, q = await store.open(), await store.open()
    await q.registration.register(A, mode, INFO)
    await p.ledgers.create(1, ledger(1))
    await p.flags.set_health_check(False)
    assert not await p.admin.nuke()
    assert await p.admin.exists()
    await q.registration.unregister(A, mode)
    assert await p.admin.nuke()
    assert not await p.admin.exists()
    assert await p.admin.nuke()


async def test_the_health_check_switch_is_idempotent(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    assert await p.flags.health_check_enabled()
    for enabled in (False, False, True, True):
        await p.flags.set_health_check(enabled)
        assert await q.flags.health_check_enabled() is enabled


# --- the life of a driver ---


async def test_close_ends_what_is_pending_and_leaves_no_task(store: StoreUnderTest) -> None:
    before = asyncio.all_tasks()
    p, q = await store.open(), await store.open()
    await q.ledgers.create(1, ledger(1))
    leader = await q.auditor.campaign(A)

    async def watch() -> str:
        async for _ in p.ledgers.watch(1):
            pass
        return "ended"

    pending: list[asyncio.Task[Any]] = [
        asyncio.create_task(watch()),
        asyncio.create_task(p.underreplication.get()),
        asyncio.create_task(p.underreplication.wait_enabled()),
        asyncio.create_task(p.auditor.campaign(BookieId("127.0.0.1:2"))),
    ]
    await asyncio.wait(pending, timeout=0.2)
    async with asyncio.timeout(30):
        await p.close()
        results = await asyncio.gather(*pending, return_exceptions=True)
    assert results[0] == "ended"
    assert isinstance(results[1], MetadataError)
    assert isinstance(results[3], MetadataError)
    await p.close()
    with pytest.raises(ServiceUnavailable):
        await p.ledgers.read(1)
    assert not await p.is_available()
    await leader.resign()
    await q.close()
    await until(lambda: asyncio.all_tasks() == before, "the end of all tasks")


async def test_availability_follows_the_connection(store: StoreUnderTest) -> None:
    p = await store.open(session_timeout_ms=SHORT_MS)
    assert await p.is_available()
    store.cut(p)

    async def gone() -> bool:
        return not await p.is_available()

    await until(gone)
    store.heal(p)
    await until(p.is_available)


async def test_open_waits_for_a_store_that_comes_up(store: StoreUnderTest) -> None:
    p = store.new()
    store.drivers.append(p)
    store.cut(p)
    opening = asyncio.create_task(p.open())
    await asyncio.wait([opening], timeout=0.2)
    assert not opening.done()
    store.heal(p)
    async with asyncio.timeout(30):
        await opening
    assert await p.is_available()


async def test_a_slow_listener_does_not_cost_the_session(store: StoreUnderTest) -> None:
    timeout_ms = 4 * SHORT_MS  # a busy machine may stop this process for a second or two
    p, q = await store.open(session_timeout_ms=timeout_ms), await store.open()
    told: list[SessionEvent] = []
    p.add_session_listener(told.append)
    await p.registration.register(A, Mode.WRITABLE, INFO)
    async with aclosing(p.discovery.watch(Mode.WRITABLE)) as watch:
        await anext(watch)
        await asyncio.sleep(3 * timeout_ms / 1000)
        assert SessionEvent.LOST not in told
    assert (await q.discovery.list(Mode.WRITABLE)).value == {A}


async def test_an_unsubscribed_listener_hears_nothing(store: StoreUnderTest) -> None:
    p = await store.open()
    told: list[SessionEvent] = []
    unsubscribe = p.add_session_listener(told.append)
    unsubscribe()
    unsubscribe()
    await store.expire(p)
    assert told == []


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_record_keeps_its_format_version(store: StoreUnderTest, version: int) -> None:
    p, q = await store.open(), await store.open()
    record = ledger(1, format_version=version, custom_metadata={"k": bytes(range(256))})
    created = await p.ledgers.create(1, record)
    found = await q.ledgers.read(1)
    await q.ledgers.write(1, found.value.in_recovery(), found.version)
    again = (await p.ledgers.read(1)).value
    assert again.format_version == version
    if version == 1:
        assert (again.password, again.custom_metadata) == (None, {})
    else:
        assert replace(again, ctime=-1) == created.value.in_recovery()
