"""The tree of records: the same on every store (spec metadata §12.7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing

import pytest

from bookkeeper.errors import (
    ConfigurationError,
    NoSuchRecord,
    RecordChanged,
    RecordExists,
    RecordNotEmpty,
    RecordTooLarge,
    ServiceUnavailable,
    SessionLost,
    VersionConflict,
)
from bookkeeper.metadata.api import ANY
from bookkeeper.metadata.tree import Check, Create, Delete, RecordTree, TransactionLimits, Write
from tests.support.metadata_stores import StoreUnderTest
from tests.support.waiting import until

COUNT = 300
"""Records of a large transaction or listing; more than a page of requests."""


async def tree_of(store: StoreUnderTest) -> RecordTree:
    driver = await store.open()
    await driver.tree.make(store.tree_root)
    return driver.tree


def at(store: StoreUnderTest, name: str) -> str:
    return f"{store.tree_root}/{name}"


def plain(session: int) -> str:
    return "member_"


# --- single records ---


async def test_what_was_created_is_read_by_all(store: StoreUnderTest) -> None:
    p, q = await tree_of(store), await tree_of(store)
    path = at(store, "a")
    version = await p.create(path, b"data")
    for tree in (p, q):
        node = await tree.get(path, fresh=True)
        assert node is not None
        assert (node.data, node.version, node.session) == (b"data", version, 0)
    with pytest.raises(RecordExists) as raised:
        await q.create(path, b"other")
    assert raised.value.path == path


async def test_a_write_needs_the_version_it_expects(store: StoreUnderTest) -> None:
    p, q = await tree_of(store), await tree_of(store)
    path = at(store, "a")
    first = await p.create(path, b"1")
    second = await q.write(path, b"2", first)
    assert second != first
    with pytest.raises(VersionConflict):
        await p.write(path, b"3", first)
    third = await p.write(path, b"3", ANY)
    node = await p.get(path)
    assert node is not None
    assert (node.data, node.version) == (b"3", third)


async def test_a_delete_needs_the_version_it_expects(store: StoreUnderTest) -> None:
    tree, path = await tree_of(store), at(store, "a")
    first = await tree.create(path)
    second = await tree.write(path, b"2", first)
    with pytest.raises(RecordChanged):
        await tree.delete(path, first)
    await tree.delete(path, second)
    assert await tree.get(path) is None
    with pytest.raises(NoSuchRecord):
        await tree.delete(path)
    with pytest.raises(NoSuchRecord):
        await tree.write(path, b"")


async def test_a_stamp_never_comes_back(store: StoreUnderTest) -> None:
    tree, path = await tree_of(store), at(store, "a")
    stamps = []
    for data in (b"1", b"2"):
        await tree.create(path, data)
        for _ in range(2):
            node = await tree.get(path)
            assert node is not None
            stamps.append(node.stamp)
            await tree.write(path, data)
        await tree.delete(path)
    assert len(set(stamps)) == len(stamps)


async def test_a_record_needs_a_parent_and_keeps_it(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    with pytest.raises(NoSuchRecord):
        await tree.create(at(store, "a/b"))
    await tree.make(at(store, "a/b/c"))
    await tree.make(at(store, "a/b/c"))
    with pytest.raises(RecordNotEmpty):
        await tree.delete(at(store, "a"))
    for path in ("a/b/c", "a/b", "a"):
        await tree.delete(at(store, path))


@pytest.mark.parametrize("path", ["", "a", "/", "/a/", "/a//b", "/a/../b", "/a/.", "/a\0b", "/\ud800", "/\U0001f600"])
async def test_a_bad_path_is_refused(store: StoreUnderTest, path: str) -> None:
    tree = await tree_of(store)
    with pytest.raises(ConfigurationError):
        await tree.get(path)
    with pytest.raises(ConfigurationError):
        await tree.create(path)


async def test_names_may_be_of_any_language(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    names = sorted(["z", "<default>", "ä", "日本", "a b", "%2F"])
    for name in names:
        await tree.create(at(store, name), name.encode())
    listing = await tree.children(store.tree_root)
    assert listing is not None
    assert list(listing.names) == names
    found = await tree.get_many([at(store, name) for name in [*names, "absent"]])
    assert [node and node.data for node in found] == [*(name.encode() for name in names), None]


# --- children ---


async def test_children_are_those_directly_below(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    assert await tree.children(at(store, "absent")) is None
    for path in ("a", "a/b", "a/b/c", "a0", "a!", "a/b0"):
        await tree.create(at(store, path))
    found = {path: await tree.children(at(store, path), fresh=True) for path in ("a", "a/b", "a0")}
    assert [listing and listing.names for listing in found.values()] == [("b", "b0"), ("c",), ()]


async def test_a_listing_counts_creations_and_removals(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    await tree.create(at(store, "d"))

    async def changes() -> int:
        listing = await tree.children(at(store, "d"))
        assert listing is not None
        return listing.changes

    assert await changes() == 0
    await tree.create(at(store, "d/a"))
    await tree.create(at(store, "d/b"))
    assert await changes() == 2
    await tree.write(at(store, "d/a"), b"data")
    assert await changes() == 2
    await tree.commit([Delete(at(store, "d/a")), Create(at(store, "d/a"))])
    assert await changes() == 4
    await tree.delete(at(store, "d/b"))
    assert await changes() == 5


async def test_another_life_of_a_parent_is_seen_in_its_listing(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    seen = []
    for _ in range(2):
        await tree.create(at(store, "d"))
        await tree.create(at(store, "d/a"))
        listing = await tree.children(at(store, "d"))
        assert listing is not None
        seen.append(listing)
        await tree.write(at(store, "d"), b"data")
        assert await tree.children(at(store, "d")) == listing
        await tree.commit([Delete(at(store, "d/a")), Delete(at(store, "d"))])
    assert [(listing.names, listing.changes) for listing in seen] == [(("a",), 1)] * 2
    assert seen[0].life != seen[1].life


async def test_many_children_are_listed_and_read(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    names = [f"{n:06d}" for n in range(COUNT)]
    await tree.commit([Create(at(store, name), name.encode()) for name in names])
    listing = await tree.children(store.tree_root)
    assert listing is not None
    assert list(listing.names) == names
    found = await tree.get_many([at(store, name) for name in names])
    assert [node.data if node else None for node in found] == [name.encode() for name in names]


# --- transactions ---


async def test_a_transaction_does_all_its_operations(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    version = await tree.create(at(store, "max"), b"0")
    await tree.create(at(store, "old"))
    written = await tree.commit(
        [
            Check(at(store, "max"), version),
            Delete(at(store, "old")),
            Create(at(store, "new")),
            Create(at(store, "new/child"), b"c"),
            Write(at(store, "max"), b"1", version),
        ]
    )
    assert set(written) == {at(store, name) for name in ("new", "new/child", "max")}
    nodes = await tree.get_many([at(store, name) for name in ("old", "new", "new/child", "max")])
    assert [node and node.data for node in nodes] == [None, b"", b"c", b"1"]
    assert nodes[3] is not None
    assert nodes[3].version == written[at(store, "max")]


async def test_a_transaction_with_one_refusal_does_nothing(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    version = await tree.create(at(store, "max"), b"0")
    await tree.make(at(store, "full/child"))
    later = await tree.write(at(store, "max"), b"1", version)
    refused = {
        Check(at(store, "max"), version): RecordChanged,
        Check(at(store, "absent")): NoSuchRecord,
        Write(at(store, "max"), b"2", version): RecordChanged,
        Create(at(store, "max")): RecordExists,
        Create(at(store, "absent/child")): NoSuchRecord,
        Delete(at(store, "absent")): NoSuchRecord,
        Delete(at(store, "max"), version): RecordChanged,
        Delete(at(store, "full")): RecordNotEmpty,
    }
    for bad, error in refused.items():
        with pytest.raises(error) as raised:
            await tree.commit([Create(at(store, "new")), bad])
        assert raised.value.path.startswith(bad.path.rpartition("/")[0])
        listing = await tree.children(store.tree_root)
        assert listing is not None
        assert listing.names == ("full", "max")
    node = await tree.get(at(store, "max"))
    assert node is not None
    assert (node.data, node.version) == (b"1", later)


async def test_a_transaction_larger_than_the_store_takes_is_refused(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    limits = tree.limits
    changes = [Create(at(store, f"{n:05d}")) for n in range(10_001)]
    if limits == TransactionLimits():
        assert len(await tree.commit(changes)) == len(changes)
        return
    with pytest.raises(RecordTooLarge):
        await tree.commit(changes)
    holds = max(n for n in range(0, len(changes), 100) if limits.hold(changes[:n]))
    assert holds >= 1_500
    assert len(await tree.commit(changes[:holds])) == holds


async def test_a_transaction_may_replace_a_record(store: StoreUnderTest) -> None:
    tree, path = await tree_of(store), at(store, "a")
    await tree.create(path, b"old")
    await tree.commit([Delete(path), Create(path, b"new")])
    node = await tree.get(path)
    assert node is not None
    assert node.data == b"new"


async def test_increments_of_two_clients_are_all_there(store: StoreUnderTest) -> None:
    p, q = await tree_of(store), await tree_of(store)
    await p.create(at(store, "n"), b"0")

    async def increment(tree: RecordTree, who: str) -> None:
        for n in range(20):
            while True:
                node = await tree.get(at(store, "n"), fresh=True)
                assert node is not None
                change = Write(at(store, "n"), b"%d" % (int(node.data) + 1), node.version)
                try:
                    await tree.commit([change, Create(at(store, f"{who}{n}"))])
                    break
                except RecordChanged:
                    continue

    await asyncio.gather(increment(p, "p"), increment(q, "q"))
    node = await p.get(at(store, "n"), fresh=True)
    assert node is not None
    assert node.data == b"40"


# --- unknown outcomes ---


async def test_a_transaction_whose_answer_was_lost_counts_once(store: StoreUnderTest) -> None:
    driver = await store.open()
    tree = driver.tree
    await tree.make(store.tree_root)
    version = await tree.create(at(store, "max"), b"0")
    store.lose_answer(driver, "tree.commit")
    written = await tree.commit([Create(at(store, "a"), b"mine"), Write(at(store, "max"), b"1", version)])
    nodes = await tree.get_many([at(store, "a"), at(store, "max")])
    assert [node and node.version for node in nodes] == [written[at(store, "a")], written[at(store, "max")]]


async def test_a_removal_whose_answer_was_lost_is_not_known_to_be_ours(store: StoreUnderTest) -> None:
    """Who removes a record may own what it names."""
    driver = await store.open()
    await driver.tree.make(at(store, "token"))
    store.lose_answer(driver, "tree.commit")
    with pytest.raises(ServiceUnavailable) as raised:
        await driver.tree.delete(at(store, "token"))
    assert raised.value.maybe_applied
    assert await driver.tree.get(at(store, "token")) is None


# --- watches ---


async def test_a_watch_follows_a_record_through_its_lives(store: StoreUnderTest) -> None:
    p, q = await tree_of(store), await tree_of(store)
    path = at(store, "a")
    async with aclosing(p.watch(path)) as watch, asyncio.timeout(60):
        assert await anext(watch) is None
        for data in (b"1", b"2"):
            await q.create(path, data)
            node = await anext(watch)
            assert node is not None
            assert node.data == data
            await q.write(path, data * 2)
            node = await anext(watch)
            assert node is not None
            assert node.data == data * 2
            await q.delete(path)
            assert await anext(watch) is None


async def test_a_watch_of_children_follows_their_names(store: StoreUnderTest) -> None:
    p, q = await tree_of(store), await tree_of(store)
    path = at(store, "d")
    async with aclosing(p.watch_children(path)) as watch, asyncio.timeout(60):
        assert await anext(watch) is None
        await q.create(path)
        seen = await anext(watch)
        assert seen is not None
        assert seen.names == ()
        member = await q.enter(path, plain)
        seen = await anext(watch)
        assert seen is not None
        assert seen.names == ("member_0000000000",)
        await member.leave()
        seen = await anext(watch)
        assert seen is not None
        assert seen.names == ()


async def test_a_watch_of_children_sees_those_that_end_with_a_session(store: StoreUnderTest) -> None:
    driver, q = await store.open(), await tree_of(store)
    await q.create(at(store, "d"))
    await driver.tree.enter(at(store, "d"), plain)
    async with aclosing(q.watch_children(at(store, "d"))) as watch, asyncio.timeout(60):
        seen = await anext(watch)
        assert seen is not None
        assert len(seen.names) == 1
        await driver.close()
        seen = await anext(watch)
        assert seen is not None
        assert (seen.names, seen.changes) == ((), 2)


async def test_watches_end_with_the_driver(store: StoreUnderTest) -> None:
    driver = await store.open()
    await driver.tree.make(at(store, "a"))

    told: Counter[str] = Counter()

    async def follow() -> None:
        async for _ in driver.tree.watch(at(store, "a")):
            told["the node"] += 1

    async def follow_children() -> None:
        async for _ in driver.tree.watch_children(at(store, "a")):
            told["its children"] += 1

    following = [asyncio.create_task(follow()), asyncio.create_task(follow_children())]
    await until(lambda: told.total() == 2)
    await driver.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*following)
    assert told == {"the node": 1, "its children": 1}


# --- members ---


async def test_members_are_numbered_in_the_order_of_their_coming(store: StoreUnderTest) -> None:
    p, q = await tree_of(store), await tree_of(store)
    await p.create(at(store, "d"))
    entered = [await tree.enter(at(store, "d"), lambda session: f"m_s{session}_", b"who") for tree in (p, q, p)]
    await entered[0].leave()
    entered.append(await q.enter(at(store, "d"), lambda session: f"m_s{session}_", b"who"))
    assert [member.path.rpartition("_")[2] for member in entered] == [f"{n:010d}" for n in range(4)]
    for member in entered[1:]:
        node = await p.get(member.path, fresh=True)
        assert node is not None
        assert (node.data, node.session) == (b"who", member.session)
        assert f"_s{member.session}_" in member.path
    assert entered[0].lost.is_set()
    assert await p.get(entered[0].path) is None


async def test_a_member_needs_its_directory(store: StoreUnderTest) -> None:
    tree = await tree_of(store)
    with pytest.raises(NoSuchRecord):
        await tree.enter(at(store, "absent"), plain)


async def test_members_end_with_their_session(store: StoreUnderTest) -> None:
    p, q = await store.open(session_timeout_ms=2000), await tree_of(store)
    await q.create(at(store, "d"))
    member = await p.tree.enter(at(store, "d"), plain)
    await store.expire(p)
    async with asyncio.timeout(60):
        await member.lost.wait()
    await until(lambda: _empty(q, at(store, "d")))
    await member.leave()
    again = await p.tree.enter(at(store, "d"), plain)
    assert again.session != member.session


async def test_a_member_whose_answer_was_lost_leaves_no_double(store: StoreUnderTest) -> None:
    driver = await store.open()
    await driver.tree.make(at(store, "d"))
    store.lose_answer(driver, "tree.enter")
    member = await driver.tree.enter(at(store, "d"), plain)

    async def alone() -> bool:
        listing = await driver.tree.children(at(store, "d"))
        return listing is not None and listing.names == (member.path.rpartition("/")[2],)

    await until(alone)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_a_member_that_nobody_waits_for_leaves_nothing_behind(store: StoreUnderTest, turns: int) -> None:
    driver = await store.open()
    await driver.tree.make(at(store, "d"))
    entering = asyncio.create_task(driver.tree.enter(at(store, "d"), plain))
    for _ in range(turns):
        await asyncio.sleep(0)
    entering.cancel()
    (outcome,) = await asyncio.gather(entering, return_exceptions=True)
    if not isinstance(outcome, BaseException):
        await outcome.leave()
    await until(lambda: _empty(driver.tree, at(store, "d")))


async def test_a_closed_driver_takes_nothing_more(store: StoreUnderTest) -> None:
    driver = await store.open()
    await driver.tree.make(at(store, "d"))
    member = await driver.tree.enter(at(store, "d"), plain)
    await driver.close()
    assert member.lost.is_set()
    with pytest.raises(ServiceUnavailable):
        await driver.tree.get(at(store, "d"))
    with pytest.raises((ServiceUnavailable, SessionLost)):
        await driver.tree.enter(at(store, "d"), plain)


async def _empty(tree: RecordTree, path: str) -> bool:
    listing = await tree.children(path, fresh=True)
    return listing is not None and listing.names == ()
