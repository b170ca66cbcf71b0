"""Ledger records, ids, ranges and watches (spec metadata §13: 14 to 21, 24, 25, 29 to 33, 36 to 40)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from bookkeeper.errors import CorruptMetadata, LedgerExists, NoSuchLedger, ServiceUnavailable, VersionConflict
from bookkeeper.metadata import update_ledger
from bookkeeper.metadata.api import ANY, LedgerStore
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from tests.support.metadata_stores import StoreUnderTest, ledger
from tests.support.waiting import until

# --- records ---


async def test_a_created_ledger_is_read_back_with_its_version(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    created = await p.ledgers.create(7, ledger(7, custom_metadata={"k": b"v"}))
    for driver in (p, q):
        found = await driver.ledgers.read(7)
        assert replace(found.value, ctime=-1) == replace(created.value, ctime=-1)
        assert found.version == created.version


async def test_a_ledger_can_be_created_once(store: StoreUnderTest) -> None:
    """MI-2."""
    p, q = await store.open(), await store.open()
    created = await p.ledgers.create(7, ledger(7, custom_metadata={"k": b"v"}))
    for driver in (p, q):
        with pytest.raises(LedgerExists):
            await driver.ledgers.create(7, ledger(7))
    assert (await q.ledgers.read(7)).value.custom_metadata == {"k": b"v"}
    assert (await q.ledgers.read(7)).version == created.version


async def test_a_write_needs_the_current_version(store: StoreUnderTest) -> None:
    """MI-1."""
    p, q = await store.open(), await store.open()
    created = await p.ledgers.create(7, ledger(7))
    written = await q.ledgers.write(7, created.value.in_recovery(), created.version)
    assert written.version != created.version
    assert (await p.ledgers.read(7)).version == written.version
    with pytest.raises(VersionConflict):
        await p.ledgers.write(7, created.value.close(5, 10), created.version)
    assert (await p.ledgers.read(7)).value.state == created.value.in_recovery().state
    again = await p.ledgers.write(7, created.value.close(5, 10), ANY)
    found = await q.ledgers.read(7)
    assert (found.version, found.value.last_entry_id) == (again.version, 5)


async def test_an_absent_ledger_is_reported_as_such(store: StoreUnderTest) -> None:
    p = await store.open()
    with pytest.raises(NoSuchLedger):
        await p.ledgers.read(7)
    for version in (0, ANY):
        with pytest.raises(NoSuchLedger):
            await p.ledgers.write(7, ledger(7), version)


async def test_remove_needs_the_current_version_or_any(store: StoreUnderTest) -> None:
    p = await store.open()
    created = await p.ledgers.create(7, ledger(7))
    written = await p.ledgers.write(7, created.value.in_recovery(), created.version)
    with pytest.raises(VersionConflict):
        await p.ledgers.remove(7, created.version)
    await p.ledgers.remove(7, written.version)
    with pytest.raises(NoSuchLedger):
        await p.ledgers.read(7)
    await p.ledgers.create(7, ledger(7))
    await p.ledgers.remove(7)
    await p.ledgers.remove(7)
    await p.ledgers.remove(7, written.version)


async def test_two_clients_lose_no_update_through_the_update_loop(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.ledgers.create(7, ledger(7, custom_metadata={"n": b"0"}))

    def increment(metadata: LedgerMetadata) -> LedgerMetadata:
        return replace(metadata, custom_metadata={"n": b"%d" % (int(metadata.custom_metadata["n"]) + 1)}, ctoken=0)

    async def count(ledgers: LedgerStore) -> None:
        for _ in range(100):
            await update_ledger(ledgers, 7, await ledgers.read(7), lambda _: True, increment)

    await asyncio.gather(count(p.ledgers), count(q.ledgers))
    assert (await p.ledgers.read(7)).value.custom_metadata == {"n": b"200"}


async def test_a_create_without_an_answer_is_recognised_by_its_token(store: StoreUnderTest) -> None:
    """MF-7."""
    p, q = await store.open(), await store.open()
    store.lose_answer(p, "ledgers.create")
    created = await p.ledgers.create(7, ledger(7))
    assert created.value.ctoken != 0
    found = await q.ledgers.read(7)
    assert (found.version, found.value.ctoken) == (created.version, created.value.ctoken)


async def test_a_foreign_ledger_is_not_taken_for_ones_own(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await q.ledgers.create(7, ledger(7))
    store.lose_answer(p, "ledgers.create")
    with pytest.raises(LedgerExists):
        await p.ledgers.create(7, ledger(7))


async def test_a_create_without_token_or_answer_reports_that_the_ledger_exists(store: StoreUnderTest) -> None:
    p = await store.open()
    store.lose_answer(p, "ledgers.create")
    with pytest.raises(LedgerExists):
        await p.ledgers.create(7, ledger(7, format_version=2))


async def test_a_write_without_an_answer_is_recognised(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    created = await p.ledgers.create(7, ledger(7))
    store.lose_answer(p, "ledgers.write")
    written = await p.ledgers.write(7, created.value.close(5, 10), created.version)
    assert (await q.ledgers.read(7)).version == written.version
    again = await p.ledgers.write(7, replace(written.value, custom_metadata={"k": b""}), written.version)
    assert (await q.ledgers.read(7)).version == again.version


async def test_the_first_update_forgets_the_creation_token(store: StoreUnderTest) -> None:
    p = await store.open()
    created = await p.ledgers.create(7, ledger(7))
    assert (await p.ledgers.read(7)).value.ctoken == created.value.ctoken != 0
    await p.ledgers.write(7, created.value.in_recovery(), created.version)
    assert (await p.ledgers.read(7)).value.ctoken == 0


async def test_an_unreadable_record_is_reported_and_still_listed(store: StoreUnderTest) -> None:
    """MF-10."""
    p = await store.open()
    await p.ledgers.create(7, ledger(7))
    await store.put_raw(7, b"garbage")
    with pytest.raises(CorruptMetadata):
        await p.ledgers.read(7)
    assert [found.ids async for found in p.ledgers.ranges()] == [(7,)]


# --- ids ---


async def test_ids_are_never_given_out_twice(store: StoreUnderTest) -> None:
    """MI-7."""
    p, q = await store.open(), await store.open()
    found = await asyncio.gather(*(driver.ids.allocate() for driver in (p, q) for _ in range(150)))
    assert len(set(found)) == len(found)
    assert min(found) >= 0
    last = await store.open()
    assert await last.ids.allocate() not in found


# --- ranges ---


async def all_ids(ledgers: LedgerStore) -> list[int]:
    ids: list[int] = []
    async for found in ledgers.ranges():
        assert found.ids
        assert found.end == found.ids[-1]
        ids += found.ids
    assert ids == sorted(set(ids))
    return ids


async def test_an_empty_store_has_no_range(store: StoreUnderTest) -> None:
    p = await store.open()
    assert await all_ids(p.ledgers) == []


async def test_ranges_ascend_over_small_and_large_ids(store: StoreUnderTest) -> None:
    """FX-81."""
    p = await store.open()
    ids = [0, 1, 9999, 10000, 2147483646, 2147483647, 4294967296, 2**63 - 1]
    for ledger_id in reversed(ids):
        await p.ledgers.create(ledger_id, ledger(ledger_id))
    assert await all_ids(p.ledgers) == ids


@pytest.mark.slow
async def test_many_ledgers_are_all_listed(store: StoreUnderTest) -> None:
    """FX-81."""
    p = await store.open()
    ids = range(3, 3 + store.many)
    for start in range(0, store.many, 200):
        await asyncio.gather(*(p.ledgers.create(i, ledger(i)) for i in ids[start : start + 200]))
    assert await all_ids(p.ledgers) == list(ids)


async def test_ledgers_removed_and_created_during_the_walk_do_no_harm(store: StoreUnderTest) -> None:
    """MI-8, FX-81."""
    p, q = await store.open(), await store.open()
    ids = list(range(0, 60_000, 5_000))
    for ledger_id in ids:
        await p.ledgers.create(ledger_id, ledger(ledger_id))
    seen: list[int] = []
    removed: set[int] = set()
    async for found in p.ledgers.ranges():
        if not seen:
            removed = {10_000, 45_000, 50_000}
            for ledger_id in sorted(removed):
                await q.ledgers.remove(ledger_id)
            await q.ledgers.create(7, ledger(7))
        seen += found.ids
    assert seen == sorted(set(seen))
    assert set(ids) - removed <= set(seen)


async def test_a_walk_that_loses_the_store_raises(store: StoreUnderTest) -> None:
    """FX-41, FX-81."""
    p, q = await store.open(session_timeout_ms=500), await store.open()
    for ledger_id in range(3):
        await q.ledgers.create(ledger_id, ledger(ledger_id))
    store.cut(p)
    with pytest.raises(ServiceUnavailable):
        await all_ids(p.ledgers)


# --- watches ---


async def test_a_watch_sees_the_current_record_and_the_last_of_many_changes(store: StoreUnderTest) -> None:
    """MI-6, MF-4."""
    p, q = await store.open(), await store.open()
    current = await q.ledgers.create(7, ledger(7))
    async with aclosing(p.ledgers.watch(7)) as watch:
        first = await anext(watch)
        assert first is not None
        assert first.version == current.version
        for n in range(100):
            changed = replace(current.value, custom_metadata={"n": b"%d" % n})
            current = await q.ledgers.write(7, changed, current.version)
        version = first.version
        async with asyncio.timeout(30):
            async for seen in watch:
                assert seen is not None
                assert seen.version > version
                version = seen.version
                if seen.value.custom_metadata == {"n": b"99"}:
                    break
        assert version == current.version


async def test_a_watch_ends_with_the_ledger(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    assert [seen async for seen in p.ledgers.watch(7)] == [None]
    await q.ledgers.create(7, ledger(7))
    seen = []
    async with asyncio.timeout(30):
        async for record in p.ledgers.watch(7):
            seen.append(record)
            if record is not None:
                await q.ledgers.remove(7)
    assert seen[-1] is None
    assert len(seen) == 2


async def test_watchers_are_independent(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    created = await q.ledgers.create(7, ledger(7))
    one, two = p.ledgers.watch(7), p.ledgers.watch(7)
    await anext(one)
    await anext(two)
    await one.aclose()
    await q.ledgers.write(7, created.value.in_recovery(), created.version)
    async with asyncio.timeout(30):
        seen = await anext(two)
    assert seen is not None
    assert seen.version > created.version
    await two.aclose()


async def test_changes_made_while_cut_off_are_seen_later(store: StoreUnderTest) -> None:
    """FX-82, MF-4."""
    p, q = await store.open(session_timeout_ms=1000), await store.open()
    current = await q.ledgers.create(7, ledger(7))
    async with aclosing(p.ledgers.watch(7)) as watch:
        await anext(watch)
        store.cut(p)
        current = await q.ledgers.write(7, replace(current.value, custom_metadata={"n": b"1"}), current.version)
        store.heal(p)
        async with asyncio.timeout(30):
            seen = await anext(watch)
        assert seen is not None
        assert seen.version == current.version
        await store.expire(p)
        current = await q.ledgers.write(7, replace(current.value, custom_metadata={"n": b"2"}), current.version)
        async with asyncio.timeout(30):
            seen = await anext(watch)
        assert seen is not None
        assert seen.version == current.version


async def test_closed_watches_leave_nothing_behind(store: StoreUnderTest) -> None:
    p = await store.open()
    await p.ledgers.create(7, ledger(7))
    before = len(asyncio.all_tasks())
    for _ in range(100):
        watch = p.ledgers.watch(7)
        await anext(watch)
        await watch.aclose()
        await p.ledgers.watch(7).aclose()
    await until(lambda: len(asyncio.all_tasks()) <= before)
