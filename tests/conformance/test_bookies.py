"""Registration, discovery and cookies (spec metadata §13: 41 to 53)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from bookkeeper.errors import (
    AlreadyRegistered,
    CookieConflict,
    CookieExists,
    CookieNotFound,
    NoSuchBookie,
)
from bookkeeper.metadata.api import ANY, BookieServiceInfo, Endpoint, MetadataDriver, Mode, SessionEvent
from bookkeeper.types import BookieId
from tests.support.metadata_stores import StoreUnderTest
from tests.support.waiting import until

A, B, C = BookieId("127.0.0.1:1"), BookieId("127.0.0.1:2"), BookieId("127.0.0.1:3")

SHORT_MS = 1000
"""Session timeout where a test waits for it."""

FULL = BookieServiceInfo(
    (
        Endpoint("bookie", "127.0.0.1", 3181, auth=("a", "b"), extensions=("tls",)),
        Endpoint("httpserver", "0.0.0.0", 8080, "http"),
    ),
    {"k": "v"},
)


def info(port: int = 3181) -> BookieServiceInfo:
    return BookieServiceInfo((Endpoint("bookie", "127.0.0.1", port),))


async def listed(driver: MetadataDriver, mode: Mode) -> frozenset[BookieId]:
    return (await driver.discovery.list(mode)).value


def record(driver: MetadataDriver) -> list[Any]:
    """What the driver reports, in order."""
    told: list[Any] = []
    driver.add_session_listener(told.append)
    driver.registration.on_registration_lost(lambda: told.append("registration lost"))
    return told


# --- registration ---


async def test_a_registered_bookie_is_listed_with_all_it_published(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.registration.register(A, Mode.WRITABLE, FULL)
    assert await listed(q, Mode.WRITABLE) == {A}
    assert await listed(q, Mode.READ_ONLY) == frozenset()
    assert await q.discovery.info(A) == FULL
    assert await q.registration.is_registered(A)
    assert not await q.registration.is_registered(B)


async def test_a_bookie_changes_its_mode_and_is_never_absent(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.registration.register(A, Mode.WRITABLE, info())
    stop = False
    absent = steps = looks = 0

    async def look() -> None:
        nonlocal absent, looks
        while not stop:
            step = steps
            # Writable first: a bookie that becomes read-only in between is then found in the second list.
            seen = await listed(q, Mode.WRITABLE) | await listed(q, Mode.READ_ONLY)
            if step == steps:  # with a step in between it may have gone from list to list
                looks += 1
                absent += A not in seen

    looking = asyncio.create_task(look())
    for _ in range(10):
        steps += 1
        await p.registration.register(A, Mode.READ_ONLY, info())
        assert await listed(p, Mode.READ_ONLY) == {A}
        assert await listed(p, Mode.WRITABLE) == frozenset()
        steps += 1
        await p.registration.register(A, Mode.WRITABLE, info())
        steps += 1
        await p.registration.unregister(A, Mode.READ_ONLY)
        assert await listed(p, Mode.WRITABLE) == {A}
        assert await listed(p, Mode.READ_ONLY) == frozenset()
    stop = True
    await looking
    assert looks
    assert absent == 0


async def test_registering_twice_is_fine_for_the_same_session_only(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open(session_timeout_ms=SHORT_MS)
    await p.registration.register(A, Mode.WRITABLE, info())
    await p.registration.register(A, Mode.WRITABLE, info())
    with pytest.raises(AlreadyRegistered):
        await q.registration.register(A, Mode.WRITABLE, info())
    assert await listed(q, Mode.WRITABLE) == {A}


async def test_a_restarted_bookie_waits_for_its_former_session(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.registration.register(A, Mode.WRITABLE, info(1))
    second = asyncio.create_task(q.registration.register(A, Mode.WRITABLE, info(2)))
    await asyncio.wait([second], timeout=0.1)
    assert not second.done()
    await p.close()
    await second
    assert await q.discovery.info(A) == info(2)


async def test_unregistering_an_absent_bookie_is_fine(store: StoreUnderTest) -> None:
    p = await store.open()
    for mode in Mode:
        await p.registration.unregister(A, mode)
    await p.registration.register(A, Mode.READ_ONLY, info())
    assert await p.registration.is_registered(A)
    await p.registration.unregister(A, Mode.READ_ONLY)
    assert not await p.registration.is_registered(A)


async def test_a_killed_bookie_disappears_and_watchers_are_told(store: StoreUnderTest) -> None:
    """MI-5."""
    p, q = await store.open(session_timeout_ms=SHORT_MS), await store.open()
    await p.registration.register(A, Mode.WRITABLE, info())
    async with aclosing(q.discovery.watch(Mode.WRITABLE)) as watch:
        assert (await anext(watch)).value == {A}
        await store.kill(p)
        async with asyncio.timeout(30):
            assert (await anext(watch)).value == frozenset()


async def test_a_closed_driver_takes_its_registrations_with_it(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.registration.register(A, Mode.WRITABLE, info())
    await p.close()
    assert await listed(q, Mode.WRITABLE) == frozenset()


async def test_a_lost_session_is_told_once_and_the_bookie_can_come_back(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    told = record(p)
    await p.registration.register(A, Mode.WRITABLE, info())
    await store.expire(p)
    await until(lambda: told[-1:] == [SessionEvent.CONNECTED])
    assert [event for event in told if event is not SessionEvent.SUSPENDED] == [
        SessionEvent.LOST,
        "registration lost",
        SessionEvent.CONNECTED,
    ]
    await p.registration.register(A, Mode.WRITABLE, info())
    assert await listed(q, Mode.WRITABLE) == {A}
    await p.close()
    assert await listed(q, Mode.WRITABLE) == frozenset()


async def test_the_registration_may_be_renewed_from_the_callback_itself(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.registration.register(A, Mode.WRITABLE, info())
    again: list[asyncio.Task[None]] = []

    def come_back() -> None:
        again.append(asyncio.create_task(p.registration.register(A, Mode.WRITABLE, info())))

    p.registration.on_registration_lost(come_back)
    await store.expire(p)
    await until(lambda: again)
    await again[0]
    assert await listed(q, Mode.WRITABLE) == {A}
    assert len(again) == 1


# --- a driver that is cut off ---


async def test_what_a_cut_off_driver_holds_is_flagged_lost_by_its_own_clock(store: StoreUnderTest) -> None:
    """MF-2."""
    p, q = await store.open(session_timeout_ms=SHORT_MS), await store.open()
    told = record(p)
    await p.registration.register(A, Mode.WRITABLE, info())
    await p.underreplication.mark(1, [A])
    lock = await p.underreplication.get()
    leader = await p.auditor.campaign(A)
    store.cut(p)
    async with asyncio.timeout(30):
        await lock.lost.wait()
        await leader.lost.wait()
    assert "registration lost" not in told
    follower = await q.auditor.campaign(B)
    assert not follower.lost.is_set()
    store.heal(p)
    await until(lambda: SessionEvent.LOST in told)
    await until(lambda: told[-1] is SessionEvent.CONNECTED)
    assert told.count("registration lost") == 1
    assert told.count(SessionEvent.LOST) == 1
    assert await until(q.underreplication.poll) is not None


async def test_a_short_cut_is_survived(store: StoreUnderTest) -> None:
    p, q = await store.open(session_timeout_ms=3000), await store.open()
    told = record(p)
    await p.registration.register(A, Mode.WRITABLE, info())
    leader = await p.auditor.campaign(A)
    store.cut(p)
    await until(lambda: told == [SessionEvent.SUSPENDED])
    store.heal(p)
    await until(lambda: told == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED])
    assert not leader.lost.is_set()
    assert await listed(q, Mode.WRITABLE) == {A}
    assert await q.auditor.current() == A


# --- discovery ---


async def test_an_unknown_bookie_has_no_info(store: StoreUnderTest) -> None:
    p = await store.open()
    with pytest.raises(NoSuchBookie):
        await p.discovery.info(A)


async def test_a_changed_or_gone_registration_is_noticed(store: StoreUnderTest) -> None:
    """FX-21."""
    p, q = await store.open(), await store.open()
    await p.registration.register(A, Mode.WRITABLE, info(1))
    assert await q.discovery.info(A) == info(1)
    assert await q.discovery.info(A) == info(1)
    await p.registration.unregister(A, Mode.WRITABLE)
    await p.registration.register(A, Mode.WRITABLE, info(2))

    async def changed() -> bool:
        return await q.discovery.info(A) == info(2)

    await until(changed)
    await p.registration.unregister(A, Mode.WRITABLE)

    async def gone() -> bool:
        try:
            await q.discovery.info(A)
        except NoSuchBookie:
            return True
        return False

    await until(gone)


async def test_a_watch_gives_full_sets_up_to_the_last(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.registration.register(A, Mode.WRITABLE, info())
    other = q.discovery.watch(Mode.READ_ONLY)
    assert (await anext(other)).value == frozenset()
    async with aclosing(q.discovery.watch(Mode.WRITABLE)) as watch:
        first = await anext(watch)
        assert first.value == {A}
        await p.registration.register(B, Mode.WRITABLE, info())
        await p.registration.register(C, Mode.WRITABLE, info())
        version = first.version
        async with asyncio.timeout(30):
            async for seen in watch:
                assert seen.version > version
                version = seen.version
                assert A in seen.value
                if seen.value == {A, B, C}:
                    break
    await p.registration.register(A, Mode.READ_ONLY, info())
    async with asyncio.timeout(30):
        assert (await anext(other)).value == {A}
    await other.aclose()


async def test_all_bookies_are_those_with_a_cookie(store: StoreUnderTest) -> None:
    p = await store.open()
    assert (await p.discovery.list_all()).value == frozenset()
    await p.registration.register(A, Mode.WRITABLE, info())
    await p.cookies.create(B, b"cookie")
    assert (await p.discovery.list_all()).value == {B}


# --- cookies ---


async def test_cookies_are_created_once_and_changed_by_version(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    version = await p.cookies.create(A, b"one")
    with pytest.raises(CookieExists):
        await q.cookies.create(A, b"other")
    assert (await q.cookies.read(A)).value == b"one"
    assert (await q.cookies.read(A)).version == version
    second = await q.cookies.write(A, b"two", version)
    with pytest.raises(CookieConflict):
        await p.cookies.write(A, b"three", version)
    with pytest.raises(CookieConflict):
        await p.cookies.remove(A, version)
    assert (await p.cookies.read(A)).value == b"two"
    await p.cookies.write(A, b"three", ANY)
    with pytest.raises(CookieConflict):
        await p.cookies.remove(A, second)
    await p.cookies.remove(A, (await p.cookies.read(A)).version)
    await p.cookies.create(A, b"four")
    await p.cookies.remove(A, ANY)


async def test_an_absent_cookie_is_reported_as_such(store: StoreUnderTest) -> None:
    p = await store.open()
    with pytest.raises(CookieNotFound):
        await p.cookies.read(A)
    for version in (0, ANY):
        with pytest.raises(CookieNotFound):
            await p.cookies.write(A, b"", version)
        with pytest.raises(CookieNotFound):
            await p.cookies.remove(A, version)
