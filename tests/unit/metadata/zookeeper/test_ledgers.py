"""Ledger records, ids and ranges in a real ZooKeeper (spec metadata §5, §13 Z)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from bookkeeper.errors import (
    CorruptMetadata,
    LedgerExists,
    LedgerIdOverflow,
    NoSuchLedger,
    RecordTooLarge,
    ServiceUnavailable,
    VersionConflict,
)
from bookkeeper.metadata.api import SessionEvent
from bookkeeper.metadata.formats.ledger import serialize
from bookkeeper.metadata.zookeeper import ZooKeeperDriver, ids
from tests.support.waiting import until
from tests.support.zookeeper import LossyKazoo

from .conftest import Cluster, ledger

pytestmark = pytest.mark.zookeeper


async def tree(driver: ZooKeeperDriver, path: str = "") -> list[str]:
    """All paths below the root, sorted."""
    found = []
    for name in (await driver.zk.children(f"{driver.zk.root}{path}"))[0]:
        found.append(f"{path}/{name}"[1:])
        found += await tree(driver, f"{path}/{name}")
    return found


async def ranges(driver: ZooKeeperDriver) -> list[tuple[int, ...]]:
    return [found.ids async for found in driver.ledgers.ranges()]


# --- nodes ---


async def test_a_record_above_the_servers_limit_is_refused_and_the_session_goes_on(cluster: Cluster) -> None:
    """SEC-49."""
    driver = await cluster.init()
    events: list[SessionEvent] = []
    driver.add_session_listener(events.append)
    with pytest.raises(RecordTooLarge, match="zkJuteMaxBuffer"):
        await driver.ledgers.create(1, replace(ledger(1), custom_metadata={"key": bytes(1_048_576)}))
    fits = replace(ledger(1), custom_metadata={"key": bytes(1_040_000)})
    created = await driver.ledgers.create(1, fits)
    with pytest.raises(RecordTooLarge):
        await driver.ledgers.write(1, replace(fits, custom_metadata={"key": bytes(2_000_000)}), created.version)
    assert (await driver.ledgers.read(1)).version == created.version
    assert events == []


async def test_a_record_is_the_node_the_layout_says_with_version_0_and_empty_parents(cluster: Cluster) -> None:
    driver = await cluster.init()
    created = await driver.ledgers.create(1234567, ledger(1234567))
    assert created.version == 0
    data, stat = await driver.zk.get(f"{cluster.root}/00/0123/L4567")
    assert data == serialize(created.value)
    assert stat.version == 0
    for parent in ("00", "00/0123"):
        assert (await driver.zk.get(f"{cluster.root}/{parent}"))[0] == b""


@pytest.mark.parametrize("scheme", ["zk", "zk+longhierarchical"])
async def test_removal_takes_empty_directories_along_and_leaves_others(cluster: Cluster, scheme: str) -> None:
    driver = await cluster.init(scheme=scheme)
    before = await tree(driver)
    for ledger_id in (1, 2, 20000):
        await driver.ledgers.create(ledger_id, ledger(ledger_id))
    full = await tree(driver)
    await driver.ledgers.remove(20000)
    await driver.ledgers.remove(1)
    left = await tree(driver)
    assert len([path for path in full if path not in left]) == 3  # two ledgers, one directory
    await driver.ledgers.remove(2)
    assert await tree(driver) == before


async def test_the_flat_layout_keeps_everything_at_the_root(cluster: Cluster) -> None:
    driver = await cluster.init(scheme="zk+flat")
    before = await tree(driver)
    await driver.ledgers.create(5, ledger(5))
    assert sorted(await tree(driver)) == sorted([*before, "L0000000005"])
    assert await ranges(driver) == [(5,)]
    await driver.ledgers.remove(5)
    assert await tree(driver) == before


async def test_the_legacy_layout_keeps_directories(cluster: Cluster) -> None:
    driver = await cluster.init()
    await driver.zk.set(
        f"{cluster.root}/LAYOUT", b"2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1"
    )
    legacy = await cluster.open()
    await legacy.ledgers.create(9999999999, ledger(9999999999))
    with pytest.raises(LedgerIdOverflow):
        await legacy.ledgers.create(10**10, ledger(10**10))
    await legacy.ledgers.remove(9999999999)
    assert "99/9999" in await tree(legacy)


async def test_removing_the_last_ledger_of_a_directory_while_others_are_created_there(cluster: Cluster) -> None:
    one, two = await cluster.init(), await cluster.open()
    rounds = 150
    for step in range(rounds):
        first, second = 2 * step, 2 * step + 1
        await one.ledgers.create(first, ledger(first))
        await asyncio.gather(one.ledgers.remove(first), two.ledgers.create(second, ledger(second)))
        assert (await one.ledgers.read(second)).value.ledger_id == second
        await two.ledgers.remove(second)
    assert await ranges(one) == []


async def test_an_unreadable_record_is_corrupt_and_still_listed(cluster: Cluster) -> None:
    """MF-10."""
    driver = await cluster.init()
    await driver.ledgers.create(3, ledger(3))
    await driver.zk.set(f"{cluster.root}/00/0000/L0003", b"garbage")
    with pytest.raises(CorruptMetadata):
        await driver.ledgers.read(3)
    assert await ranges(driver) == [(3,)]


# --- unknown outcomes ---


@pytest.mark.parametrize("applied", [True, False])
async def test_a_create_whose_answer_was_lost_succeeds(cluster: Cluster, applied: bool) -> None:
    """MF-7."""
    driver = await cluster.init()
    await driver.ledgers.create(1, ledger(1))  # the directories are there
    lossy = LossyKazoo(driver)
    lossy.lose("create", applied=applied, path=lambda path: path.endswith("L0002"))
    created = await driver.ledgers.create(2, ledger(2))
    assert lossy.lost == 1
    stored = await driver.ledgers.read(2)
    assert (created.version, created.value.ctoken) == (stored.version, stored.value.ctoken)


async def test_a_create_whose_answer_was_lost_fails_if_the_ledger_is_anothers(cluster: Cluster) -> None:
    driver, other = await cluster.init(), await cluster.open()
    theirs = await other.ledgers.create(2, ledger(2))  # equal to ours but for the token
    lossy = LossyKazoo(driver)
    lossy.lose("create", applied=False, path=lambda path: path.endswith("L0002"))
    with pytest.raises(LedgerExists):
        await driver.ledgers.create(2, ledger(2))
    assert lossy.lost == 1
    assert (await driver.ledgers.read(2)).value.ctoken == theirs.value.ctoken


async def test_a_create_without_token_never_takes_an_existing_ledger_for_its_own(cluster: Cluster) -> None:
    driver = await cluster.init()
    lossy = LossyKazoo(driver)
    await driver.ledgers.create(1, ledger(1))
    lossy.lose("create", applied=True, path=lambda path: path.endswith("L0002"))
    with pytest.raises(LedgerExists):
        await driver.ledgers.create(2, ledger(2, format_version=2))


@pytest.mark.parametrize("applied", [True, False])
async def test_a_write_whose_answer_was_lost_succeeds_with_the_right_version(cluster: Cluster, applied: bool) -> None:
    """MF-7."""
    driver = await cluster.init()
    created = await driver.ledgers.create(2, ledger(2))
    lossy = LossyKazoo(driver)
    lossy.lose("set", applied=applied)
    written = await driver.ledgers.write(2, created.value.in_recovery(), created.version)
    assert lossy.lost == 1
    assert written.version == 1
    stored = await driver.ledgers.read(2)
    assert stored.version == 1
    assert stored.value.state == written.value.state
    assert stored.value.ctoken == 0


async def test_a_write_whose_answer_was_lost_fails_if_another_came_between(cluster: Cluster) -> None:
    driver, other = await cluster.init(), await cluster.open()
    created = await driver.ledgers.create(2, ledger(2))
    await other.ledgers.write(2, created.value.close(5, 50), created.version)
    lossy = LossyKazoo(driver)
    lossy.lose("set", applied=False)
    with pytest.raises(VersionConflict):
        await driver.ledgers.write(2, created.value.close(6, 60), created.version)


async def test_a_removal_whose_answer_was_lost_succeeds(cluster: Cluster) -> None:
    """MF-7."""
    driver = await cluster.init()
    await driver.ledgers.create(2, ledger(2))
    LossyKazoo(driver).lose("delete", applied=True)
    await driver.ledgers.remove(2, 0)
    with pytest.raises(NoSuchLedger):
        await driver.ledgers.read(2)


async def test_without_retries_an_unknown_outcome_is_reported_as_such(cluster: Cluster) -> None:
    driver = await cluster.init(zkRetryBackoffMaxRetries=0)
    LossyKazoo(driver).lose("set", applied=True)
    created = await driver.ledgers.create(2, ledger(2))
    with pytest.raises(ServiceUnavailable) as caught:
        await driver.ledgers.write(2, created.value.in_recovery(), created.version)
    assert caught.value.maybe_applied


# --- ids ---


async def test_ids_are_zookeepers_numbers_and_their_nodes_go(cluster: Cluster) -> None:
    driver = await cluster.init()
    assert [await driver.ids.allocate() for _ in range(3)] == [0, 1, 2]

    async def clean() -> bool:
        return (await driver.zk.children(f"{cluster.root}/idgen"))[0] == []

    await until(clean, "no id node is left")
    other = await cluster.open()
    assert await other.ids.allocate() == 3


async def test_flat_ids_are_drawn_at_the_root_and_skip_other_nodes(cluster: Cluster) -> None:
    driver = await cluster.init(scheme="zk+flat")  # the root has 3 children, LAYOUT included
    found = []
    for _ in range(2):
        found.append(await driver.ids.allocate())
        await driver.ledgers.create(found[-1], ledger(found[-1]))
    assert found == [3, 5]


async def test_an_id_whose_answer_was_lost_is_skipped(cluster: Cluster) -> None:
    driver = await cluster.init()
    await driver.ids.allocate()
    LossyKazoo(driver).lose("create", applied=True)
    assert await driver.ids.allocate() == 2


async def test_after_31_bits_ids_go_on_above_32(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, other = await cluster.init(), await cluster.open()
    assert await other.ids.allocate() == 0  # remembers that there are no long ids yet
    monkeypatch.setattr(ids, "ID_LIMIT", 2)
    assert await driver.ids.allocate() == 1
    assert await driver.ids.allocate() == 1 << 32
    assert "idgen-long/HOB-0000000001" in await tree(driver)
    assert await other.ids.allocate() == 1 << 32 | 1
    assert await other.ids.allocate() == 2 << 32
    assert await driver.ids.allocate() == 2 << 32 | 1
    assert await (await cluster.open()).ids.allocate() == 3 << 32


async def test_only_the_newest_id_counters_are_kept(cluster: Cluster) -> None:
    driver = await cluster.init()
    base = f"{cluster.root}/idgen-long"
    for number in range(1, 6):
        await driver.zk.ensure(f"{base}/HOB-{number:010d}", world=True)
    await driver.zk.ensure(f"{base}/HOB-x", world=True)
    assert await driver.ids.allocate() == 5 << 32

    async def dropped() -> bool:
        names, _ = await driver.zk.children(base)
        return names == [*(f"HOB-{number:010d}" for number in (3, 4, 5)), "HOB-x"]

    await until(dropped, "old counters are gone")


async def test_a_client_with_an_old_counter_does_not_bring_it_back(cluster: Cluster) -> None:
    driver = await cluster.init()
    base = f"{cluster.root}/idgen-long"
    await driver.zk.ensure(f"{base}/HOB-0000000001", world=True)
    assert await driver.ids.allocate() == 1 << 32
    await until(lambda: driver.zk.connected)
    await driver.zk.delete_tree(f"{base}/HOB-0000000001")
    await driver.zk.ensure(f"{base}/HOB-0000000004", world=True)
    assert await driver.ids.allocate() == 4 << 32


# --- ranges ---


async def test_short_ids_come_before_long_ones_and_other_nodes_never(cluster: Cluster) -> None:
    """SEC-36, FX-81."""
    driver = await cluster.init()
    chosen = [0, 9999, 10000, 2147483646, 2147483647, 4294967296, 81985529216486895]
    for ledger_id in reversed(chosen):
        await driver.ledgers.create(ledger_id, ledger(ledger_id))
    for name in ("disableHealthCheck", "L0000000001", "0", "0000", "00/00", "00/0000/X0001", "00/0000/L00x1", "ID-1"):
        await driver.zk.ensure(f"{cluster.root}/{name}")
    await driver.zk.ensure(f"{cluster.root}/underreplication/ledgers")
    found = await ranges(driver)
    assert [ledger_id for ids_ in found for ledger_id in ids_] == chosen
    assert found[0] == (0, 9999)
    assert len(found) == len(chosen) - 1


async def test_ranges_after_a_lost_connection_are_complete(cluster: Cluster) -> None:
    """FX-81."""
    driver = await cluster.init()
    for ledger_id in (1, 10001, 20001):
        await driver.ledgers.create(ledger_id, ledger(ledger_id))
    LossyKazoo(driver).lose("get_children", applied=True, path=lambda path: path.endswith("0001"))
    assert await ranges(driver) == [(1,), (10001,), (20001,)]


async def test_ranges_never_end_quietly_without_the_store(cluster: Cluster) -> None:
    """FX-41, FX-81."""
    driver = await cluster.init(zkRetryBackoffMaxRetries=0)
    for ledger_id in (1, 10001, 20001):
        await driver.ledgers.create(ledger_id, ledger(ledger_id))
    LossyKazoo(driver).lose("get_children", applied=True, path=lambda path: path.endswith("0002"))
    walk = driver.ledgers.ranges()
    assert (await anext(walk)).ids == (1,)
    assert (await anext(walk)).ids == (10001,)
    with pytest.raises(ServiceUnavailable):
        await anext(walk)


async def test_directories_removed_meanwhile_are_empty(cluster: Cluster) -> None:
    driver = await cluster.init()
    for ledger_id in (1, 10001, 2**40):
        await driver.ledgers.create(ledger_id, ledger(ledger_id))
    async with aclosing(driver.ledgers.ranges()) as walk:
        assert (await anext(walk)).ids == (1,)
        await driver.ledgers.remove(10001)
        await driver.ledgers.remove(2**40)
        assert [range_.ids async for range_ in walk] == []


# --- watches ---


async def test_many_short_watches_leave_nothing_in_the_server(cluster: Cluster) -> None:
    driver = await cluster.init()
    for ledger_id in range(20):
        await driver.ledgers.create(ledger_id, ledger(ledger_id))
    for step in range(200):
        async with aclosing(driver.ledgers.watch(step % 20)) as watch:
            assert await anext(watch) is not None

    async def forgotten() -> bool:
        return f"{cluster.root}/00" not in await cluster.server.command("wchc")

    await until(forgotten, "the server's watches are gone")
    assert driver.zk._points == {}
    assert not any(driver.zk._kazoo._data_watchers.values())


async def test_a_watch_outlives_another_of_the_same_ledger(cluster: Cluster) -> None:
    driver = await cluster.init()
    created = await driver.ledgers.create(1, ledger(1))
    async with aclosing(driver.ledgers.watch(1)) as stays:
        assert await anext(stays) is not None
        async with aclosing(driver.ledgers.watch(1)) as leaves:
            assert await anext(leaves) is not None
        written = await driver.ledgers.write(1, created.value.in_recovery(), created.version)
        seen = await anext(stays)
        assert seen is not None
        assert seen.version == written.version
