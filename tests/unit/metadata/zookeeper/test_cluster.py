"""Layout, initialisation, format, removal; registration data, repair state, security (spec metadata §4, §7 to §10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import (
    ConfigurationError,
    CorruptMetadata,
    LayoutExists,
    LayoutMismatch,
    NoSuchBookie,
    NotInitialized,
    UnderreplicationIncompatible,
    Unsupported,
)
from bookkeeper.metadata.api import BookieServiceInfo, CheckKind, Endpoint, LedgerLayout, Mode
from bookkeeper.metadata.formats.ledger import serialize
from bookkeeper.metadata.formats.service_info import encode_service_info
from bookkeeper.metadata.zookeeper import ZooKeeperDriver
from bookkeeper.types import BookieId
from tests.support.waiting import until
from tests.support.zookeeper import LossyKazoo, _Loss, expire_session, zookeeper_driver

from .conftest import Cluster, ledger

pytestmark = pytest.mark.zookeeper

A, B = BookieId("127.0.0.1:3181"), BookieId("bookie-b")
GOLDEN = Path(__file__).parents[3] / "data" / "metadata" / "golden-db.json"
FACTORY = "org.apache.bookkeeper.meta.{}LedgerManagerFactory"


def info(port: int = 3181) -> BookieServiceInfo:
    return BookieServiceInfo((Endpoint("bookie", "127.0.0.1", port),))


async def names(driver: ZooKeeperDriver, path: str = "") -> list[str]:
    return (await driver.zk.children(driver.zk.root + path))[0]


async def data(driver: ZooKeeperDriver, path: str) -> bytes:
    return (await driver.zk.get(f"{driver.zk.root}/{path}"))[0]


# --- data of the Java system ---


async def test_the_tree_of_a_java_cluster_is_read_and_written_byte_for_byte(cluster: Cluster) -> None:
    nodes = json.loads(GOLDEN.read_text())
    driver = await cluster.open()
    holder = await cluster.open()
    for path, node in nodes.items():
        await driver.zk.create(
            cluster.root + path.removeprefix("/ledgers"), bytes.fromhex(node["data"]), ephemeral=node["ephemeral"]
        )
    del holder
    ledgers = [ledger_id async for range_ in driver.ledgers.ranges() for ledger_id in range_.ids]
    assert ledgers == [*range(14), 5000000000]
    for ledger_id in ledgers:
        found = await driver.ledgers.read(ledger_id)
        path = (await driver.layout.open()).scheme.path(ledger_id)
        stored = bytes.fromhex(nodes[f"/ledgers/{path}"]["data"])
        assert serialize(found.value) == stored
        written = await driver.ledgers.write(ledger_id, found.value, found.version)
        assert written.version == found.version + 1
        assert await data(driver, path) == stored
    bookies = {BookieId(f"127.0.0.1:{port}") for port in (31841, 31842, 31843)}
    assert (await driver.discovery.list(Mode.WRITABLE)).value == bookies
    assert (await driver.discovery.list_all()).value == bookies
    assert (await driver.discovery.list(Mode.READ_ONLY)).value == frozenset()
    for bookie in sorted(bookies):
        endpoint = (await driver.discovery.info(bookie)).bookie_rpc()
        assert endpoint is not None
        assert f"{endpoint.host}:{endpoint.port}" == bookie
        stored = bytes.fromhex(nodes[f"/ledgers/available/{bookie}"]["data"])
        assert encode_service_info(await driver.discovery.info(bookie)) == stored
        assert (await driver.cookies.read(bookie)).value == bytes.fromhex(nodes[f"/ledgers/cookies/{bookie}"]["data"])
    assert await driver.admin.instance_id() == "aebbf035-397f-49d4-8532-91a954737eea"
    assert await driver.layout.read() == LedgerLayout(FACTORY.format("Hierarchical"), 1)


# --- layout ---


@pytest.mark.parametrize(
    ("scheme", "factory"),
    [
        ("zk", "Hierarchical"),
        ("zk+null", "Hierarchical"),
        ("zk+hierarchical", "Hierarchical"),
        ("zk+longhierarchical", "LongHierarchical"),
        ("zk+flat", "Flat"),
    ],
)
async def test_a_new_cluster_has_the_layout_of_its_address(cluster: Cluster, scheme: str, factory: str) -> None:
    driver = await cluster.init(scheme=scheme)
    assert await data(driver, "LAYOUT") == f"2\n{FACTORY.format(factory)}:1".encode()
    assert await names(driver) == ["INSTANCEID", "LAYOUT", "available"]
    assert await names(driver, "/available") == ["readonly"]
    instance = await driver.admin.instance_id()
    assert instance is not None
    assert len(instance) == 36
    unnamed = await cluster.open()
    await unnamed.ledgers.create(5, ledger(5))
    assert (await driver.ledgers.read(5)).value.ledger_id == 5


async def test_another_manager_than_the_stored_one_is_refused(cluster: Cluster) -> None:
    await cluster.init(scheme="zk+longhierarchical")
    with pytest.raises(LayoutMismatch, match="does not match existing layout"):
        await (await cluster.open(scheme="zk+flat")).ledgers.read(1)


@pytest.mark.parametrize(
    ("stored", "conf", "outcome"),
    [
        (b"1\nhierarchical:1", {}, None),
        (b"1\nflat:1", {"ledgerManagerType": "flat"}, None),
        (b"1\nflat:1", {"ledgerManagerType": "hierarchical"}, LayoutMismatch),
        (b"1\nother:1", {}, Unsupported),
        (b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1", {}, Unsupported),
        (b"2\n" + FACTORY.format("Hierarchical").encode() + b":2", {}, LayoutMismatch),
        (b"2\ndlshade." + FACTORY.format("Hierarchical").encode() + b":1", {}, Unsupported),
        (
            b"2\ndlshade." + FACTORY.format("Hierarchical").encode() + b":1",
            {"allowShadedLedgerManagerFactoryClass": "true"},
            None,
        ),
        (b"3\nx:1", {}, CorruptMetadata),
        (b"junk", {}, CorruptMetadata),
    ],
)
async def test_stored_layouts(cluster: Cluster, stored: bytes, conf: dict[str, Any], outcome: Any) -> None:
    driver = await cluster.init()
    await driver.zk.set(f"{cluster.root}/LAYOUT", stored)
    other = await cluster.open(**conf)
    if outcome is None:
        await other.ledgers.create(1, ledger(1))
    else:
        with pytest.raises(outcome):
            await other.ledgers.create(1, ledger(1))


async def test_the_first_to_open_writes_a_missing_layout(cluster: Cluster) -> None:
    await (await cluster.init()).layout.delete()
    drivers = [await cluster.open() for _ in range(4)]
    await asyncio.gather(*(driver.ledgers.create(i, ledger(i)) for i, driver in enumerate(drivers)))
    assert await drivers[0].layout.read() == LedgerLayout(FACTORY.format("Hierarchical"), 1)
    with pytest.raises(LayoutExists):
        await drivers[0].layout.create(LedgerLayout(FACTORY.format("Flat"), 1))


async def test_an_unknown_manager_is_refused_before_anything_is_created(cluster: Cluster) -> None:
    with pytest.raises(ConfigurationError):
        await cluster.open(scheme="zk+legacyhierarchical")
    with pytest.raises(Unsupported):
        await cluster.open(scheme="zk+ms")
    driver = await cluster.open(ledgerManagerType="nonsense")
    with pytest.raises(ConfigurationError, match="nonsense"):
        await driver.admin.init_new_cluster()
    assert not await driver.admin.exists()


# --- the cluster as a whole ---


async def test_of_two_initialisations_one_is_the_first(cluster: Cluster) -> None:
    one, two = await cluster.open(), await cluster.open()
    assert not await one.admin.exists()
    assert await one.admin.instance_id() is None
    results = await asyncio.gather(one.admin.init_new_cluster(), two.admin.init_new_cluster())
    assert sorted(results) == [False, True]
    before = await one.admin.instance_id()
    assert not await one.admin.init_new_cluster()
    assert await two.admin.instance_id() == before


async def test_initialisation_whose_answer_was_lost_is_ours(cluster: Cluster) -> None:
    driver = await cluster.open()
    lossy = LossyKazoo(driver)
    real = lossy._real.transaction

    def transaction() -> Any:
        found = real()
        commit = found.commit_async
        found.commit_async = lambda: lossy._lossy(_Loss("commit", lambda path: True, True), commit)
        lossy.transaction = real  # type: ignore[attr-defined]
        return found

    lossy.transaction = transaction  # type: ignore[attr-defined]
    assert await driver.admin.init_new_cluster()
    assert lossy.lost == 1


async def test_a_root_below_a_missing_node_is_refused(cluster: Cluster) -> None:
    cluster.root += "/deeper"
    driver = await cluster.open()
    with pytest.raises(NotInitialized):
        await driver.admin.init_new_cluster()
    assert not await driver.admin.prepare_format()  # makes the way
    assert await driver.admin.exists()


async def test_nothing_but_the_tools_makes_a_cluster(cluster: Cluster) -> None:
    driver = await cluster.open()
    for work in (
        driver.ledgers.create(1, ledger(1)),
        driver.ids.allocate(),
        driver.cookies.create(A, b"x"),
        driver.registration.register(A, Mode.WRITABLE, info()),
        driver.registration.register(A, Mode.READ_ONLY, info()),
        driver.underreplication.mark(1, [A]),
        driver.auditor.campaign(A),
        driver.discovery.list(Mode.WRITABLE),
        driver.flags.set_health_check(False),
    ):
        with pytest.raises(NotInitialized):
            await work
    assert not await driver.admin.exists()


@pytest.mark.parametrize("scheme", ["zk", "zk+flat", "zk+longhierarchical"])
async def test_format_removes_data_and_keeps_the_living(cluster: Cluster, scheme: str) -> None:
    driver = await cluster.init(scheme=scheme)
    instance = await driver.admin.instance_id()
    ledger_id = await driver.ids.allocate()
    for chosen in (ledger_id, 2**31 - 2, 2**40):
        await driver.ledgers.create(chosen, ledger(chosen))
    await driver.cookies.create(A, b"x")
    await driver.registration.register(A, Mode.WRITABLE, info())
    await driver.underreplication.mark(1, [A])
    assert await driver.underreplication.poll() is not None
    await driver.underreplication.disable()
    await driver.underreplication.set_check_time(CheckKind.REPLICAS, 5)
    assert await driver.admin.prepare_format()
    await driver.admin.format()
    assert [found async for found in driver.ledgers.ranges()] == []
    assert await driver.admin.instance_id() not in (None, instance)
    assert (await driver.discovery.list_all()).value == frozenset()
    assert (await driver.discovery.list(Mode.WRITABLE)).value == {A}
    assert await driver.underreplication.info(1) is None
    assert not await driver.underreplication.is_locked(1)
    assert not await driver.underreplication.is_enabled()
    assert await driver.underreplication.get_check_time(CheckKind.REPLICAS) == 5
    again = await cluster.open(scheme=scheme)
    await again.ledgers.create(ledger_id, ledger(ledger_id))
    if scheme != "zk+flat":
        assert await again.ids.allocate() == 0
    await driver.underreplication.mark(2, [A])  # the directories come back


async def test_a_worker_waits_on_over_a_format(cluster: Cluster) -> None:
    driver, worker = await cluster.init(), await cluster.open()
    waiting = asyncio.create_task(worker.underreplication.get())
    await until(lambda: worker.underreplication._listings._known)
    await driver.admin.format()
    await driver.underreplication.mark(3, [A])
    assert (await waiting).ledger_id == 3


async def test_a_worker_that_saw_no_directories_looks_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come back between its look at them and its check that they are there: no watch tells of that."""
    driver, worker = await cluster.init(), await cluster.open()
    marks, gate = worker.underreplication, asyncio.Event()
    opens, searches = marks._open, marks._search

    async def open_behind_gate() -> None:
        await gate.wait()
        await opens()

    async def search(names: Any) -> Any:
        found = await searches(names)
        if not gone.is_set():
            return found
        gone.clear()
        assert found is None
        await driver.underreplication.mark(3, [A])
        return found

    monkeypatch.setattr(marks, "_open", open_behind_gate)
    monkeypatch.setattr(marks, "_search", search)
    gone = asyncio.Event()
    gate.set()
    waiting = asyncio.create_task(marks.get())
    await until(lambda: len(marks._listings._known) == 2)
    gate.clear()
    await driver.admin.format()
    await until(lambda: not marks._listings._known)
    gone.set()
    gate.set()
    assert (await waiting).ledger_id == 3


async def test_nuke_refuses_with_bookies_and_unknown_nodes_and_then_removes_everything(cluster: Cluster) -> None:
    driver, other = await cluster.init(), await cluster.open()
    await driver.ledgers.create(1, ledger(1))
    await driver.ids.allocate()
    await driver.underreplication.mark(1, [A])
    await driver.flags.set_health_check(False)
    for mode in Mode:
        await other.registration.register(A, mode, info())
        assert not await driver.admin.nuke()
        await other.registration.unregister(A, mode)
    await driver.zk.ensure(f"{cluster.root}/something")
    assert not await driver.admin.nuke()
    assert (await driver.ledgers.read(1)).version == 0
    await driver.zk.delete(f"{cluster.root}/something")
    assert await driver.admin.nuke()
    assert not await driver.admin.exists()
    assert await driver.admin.nuke()
    assert await driver.admin.init_new_cluster()


async def test_the_health_check_flag(cluster: Cluster) -> None:
    driver = await cluster.init()
    assert await driver.flags.health_check_enabled()
    for enabled in (False, False, True, True):
        await driver.flags.set_health_check(enabled)
        assert await driver.flags.health_check_enabled() is enabled


# --- registration ---


async def test_a_change_to_read_only_never_leaves_the_bookie_unlisted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, other = await cluster.init(), await cluster.open()
    await driver.registration.register(A, Mode.WRITABLE, info())
    seen: list[set[Mode]] = []

    def and_look(change: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
        async def changed(*args: Any, **kwargs: Any) -> None:
            await change(*args, **kwargs)
            seen.append({mode for mode in Mode if A in (await other.discovery.list(mode)).value})

        return changed

    for name in ("create", "delete"):
        monkeypatch.setattr(driver.zk, name, and_look(getattr(driver.zk, name)))
    await driver.registration.register(A, Mode.READ_ONLY, info())
    await driver.registration.register(A, Mode.WRITABLE, info())
    await driver.registration.unregister(A, Mode.READ_ONLY)
    both = {Mode.WRITABLE, Mode.READ_ONLY}
    assert seen == [both, {Mode.READ_ONLY}, both, {Mode.WRITABLE}]


async def test_a_missing_readonly_directory_is_made(cluster: Cluster) -> None:
    driver = await cluster.init()
    await driver.zk.delete(f"{cluster.root}/available/readonly")
    assert (await driver.discovery.list(Mode.READ_ONLY)).value == frozenset()
    async with aclosing(driver.discovery.watch(Mode.READ_ONLY)) as watch:
        assert (await anext(watch)).value == frozenset()
        await driver.registration.register(A, Mode.READ_ONLY, info())
        assert (await anext(watch)).value == {A}


async def test_bookies_without_data_are_listed_and_found_by_their_id(cluster: Cluster) -> None:
    driver = await cluster.init()
    for name in (A, B, "a b", "READONLY"):
        await driver.zk.create(f"{cluster.root}/available/{name}", ephemeral=True)
    assert (await driver.discovery.list(Mode.WRITABLE)).value == {A, B}
    endpoint = (await driver.discovery.info(A)).bookie_rpc()
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", 3181)
    with pytest.raises(NoSuchBookie):
        await driver.discovery.info(B)
    with pytest.raises(NoSuchBookie):
        await driver.discovery.info(BookieId("nobody:1"))


async def test_addresses_follow_the_bookie(cluster: Cluster) -> None:
    """FX-21."""
    driver, client = await cluster.init(), await cluster.open()
    await driver.registration.register(A, Mode.WRITABLE, info(1))
    assert (await client.discovery.list(Mode.WRITABLE)).value == {A}
    assert await client.discovery.info(A) == info(1)
    await driver.registration.unregister(A, Mode.WRITABLE)
    await driver.registration.register(A, Mode.WRITABLE, info(2))

    async def port() -> int:
        found = (await client.discovery.info(A)).bookie_rpc()
        return found.port if found else 0

    async def is_two() -> bool:
        try:
            return await port() == 2
        except NoSuchBookie:
            return False

    await until(is_two, "the new address is known")
    await driver.registration.register(A, Mode.READ_ONLY, info(2))
    await until(is_two)
    await driver.registration.unregister(A, Mode.READ_ONLY)
    await until(lambda: A not in client.discovery._addresses._known)
    with pytest.raises(NoSuchBookie):
        await client.discovery.info(A)


async def test_known_addresses_serve_while_the_store_is_away(cluster: Cluster) -> None:
    driver, client = await cluster.init(), await cluster.open()
    await driver.registration.register(A, Mode.WRITABLE, info(1))
    await client.discovery.list(Mode.WRITABLE)
    await cluster.server.stop()
    await until(lambda: not client.zk.connected)
    assert await client.discovery.info(A) == info(1)
    await cluster.server.start()
    await until(lambda: client.zk.connected)


async def test_repeated_listings_of_an_unreadable_address_do_not_pile_up(cluster: Cluster) -> None:
    driver = await cluster.init()
    await driver.zk.create(f"{cluster.root}/available/{B}", ephemeral=True)
    for _ in range(5):
        await driver.discovery.list(Mode.WRITABLE)
    [point] = driver.zk._points.values()
    assert len(point.subscribers) == 1


async def test_the_version_of_a_set_grows_over_a_session_and_its_removal(cluster: Cluster) -> None:
    driver = await cluster.init()
    versions = [(await driver.discovery.list(Mode.WRITABLE)).version]
    for _ in range(2):
        await driver.registration.register(A, Mode.WRITABLE, info())
        versions.append((await driver.discovery.list(Mode.WRITABLE)).version)
        await expire_session(driver)
        versions.append((await driver.discovery.list(Mode.WRITABLE)).version)
    assert await driver.admin.nuke()
    await driver.admin.init_new_cluster()
    versions.append((await driver.discovery.list(Mode.WRITABLE)).version)
    assert versions == sorted(set(versions))


# --- repair ---


async def test_marks_and_values_are_the_bytes_of_the_java_system(cluster: Cluster) -> None:
    driver = await cluster.init()
    store = driver.underreplication
    await store.mark(5000000000, ["10.0.0.1:3181", "10.0.0.2:3181"])
    mark = await store.info(5000000000)
    assert mark is not None
    text = f'replica: "10.0.0.1:3181"\nreplica: "10.0.0.2:3181"\nctime: {mark.ctime}\n'
    assert await data(driver, "underreplication/ledgers/0000/0001/2a05/f200/urL5000000000") == text.encode()
    assert await data(driver, "underreplication/LAYOUT") == b'type: "BASIC"\nversion: 1\n'
    lock = await store.poll()
    assert lock is not None
    owner = await store.lock_owner(5000000000)
    assert await data(driver, "underreplication/locks/urL5000000000") == f'bookieId: "{owner}"\n'.encode()
    await store.set_lost_bookie_recovery_delay(36)
    assert await data(driver, "underreplication/lostBookieRecoveryDelay") == b"36"
    for kind in CheckKind:
        await store.set_check_time(kind, 1700000000123)
        assert await data(driver, f"underreplication/{kind.value}") == bytes.fromhex("08fbd095ffbc31")


async def test_finished_marks_take_empty_directories_along(cluster: Cluster) -> None:
    driver = await cluster.init()
    await driver.underreplication.mark(1, [A])
    await driver.underreplication.mark(0x10001, [A])
    lock = await driver.underreplication.poll()
    assert lock is not None
    assert await lock.mark_replicated()
    other = 0x10001 if lock.ledger_id == 1 else 1
    assert await names(driver, "/underreplication/ledgers/0000/0000") == ["0000" if other == 1 else "0001"]
    lock = await driver.underreplication.poll()
    assert lock is not None
    assert await lock.mark_replicated()
    assert await names(driver, "/underreplication/ledgers") == []
    assert await names(driver, "/underreplication/locks") == []


async def test_a_mark_made_while_its_predecessor_is_removed_is_kept(cluster: Cluster) -> None:
    driver, other = await cluster.init(), await cluster.open()
    for step in range(30):
        await driver.underreplication.mark(1, [f"{step}:1"])
        lock = await driver.underreplication.poll()
        assert lock is not None
        gone, _ = await asyncio.gather(lock.mark_replicated(), other.underreplication.mark(1, [f"{step}:2"]))
        mark = await driver.underreplication.info(1)
        assert mark is not None
        assert f"{step}:2" in mark.replicas
        assert gone or f"{step}:1" in mark.replicas
        last = await driver.underreplication.poll()
        assert last is not None
        assert await last.mark_replicated()


@pytest.mark.parametrize("stored", [b'type: "BASIC"\nversion: 2\n', b'type: "OTHER"\nversion: 1\n', b"garbage"])
async def test_another_kind_of_repair_state_is_not_touched(cluster: Cluster, stored: bytes) -> None:
    driver = await cluster.init()
    await driver.zk.ensure(f"{cluster.root}/underreplication")
    await driver.zk.create(f"{cluster.root}/underreplication/LAYOUT", stored)
    with pytest.raises(UnderreplicationIncompatible):
        await driver.underreplication.mark(1, [A])
    with pytest.raises(UnderreplicationIncompatible):
        await driver.underreplication.poll()


async def test_a_waiting_worker_costs_the_server_nothing(cluster: Cluster) -> None:
    driver, worker = await cluster.init(), await cluster.open()
    for ledger_id in range(8):
        await driver.underreplication.mark(ledger_id, [A])
        await driver.underreplication.acquire(ledger_id)
    waiting = asyncio.create_task(worker.underreplication.get())
    await until(lambda: len(worker.underreplication._listings._known) == 13)  # 4 levels, 8 leaves, locks
    requests = 0
    real = worker.zk._attempt

    async def counted(submit: Any) -> Any:
        nonlocal requests
        requests += 1
        return await real(submit)

    worker.zk._attempt = counted  # type: ignore[method-assign]
    await asyncio.sleep(0.1)
    assert requests <= 2  # the end of its look around
    await driver.underreplication.mark(8, [A])
    assert (await waiting).ledger_id == 8


# --- security ---


async def test_nodes_belong_to_their_creator_when_security_is_on(cluster: Cluster) -> None:
    """MF-12."""
    driver = await cluster.init(zkEnableSecurity="true", zkAuth="digest:bookkeeper:secret")
    await driver.ledgers.create(1, ledger(1))
    await driver.zk.ensure(f"{cluster.root}/idgen-long/HOB-0000000001", world=True)
    await driver.ids.allocate()
    await driver.underreplication.mark(1, [A])
    await driver.underreplication.set_lost_bookie_recovery_delay(5)
    await driver.registration.register(A, Mode.WRITABLE, info())
    await driver.cookies.create(A, b"x")
    open_to_all = {"idgen-long", "idgen-long/HOB-0000000001", "underreplication/lostBookieRecoveryDelay"}
    pending = [""]
    seen = 0
    while pending:
        path = pending.pop()
        pending += [f"{path}/{name}"[not path :] for name in await names(driver, f"/{path}" if path else "")]
        full = f"{cluster.root}/{path}".rstrip("/")
        acls, _ = await asyncio.wrap_future(_acls(driver, full))
        seen += 1
        assert [acl.id.scheme for acl in acls] == (["world"] if path in open_to_all else ["digest"]), path
    assert seen > 15
    stranger = await cluster.open()
    with pytest.raises(Exception, match="NoAuth"):
        await stranger.ledgers.read(1)


def _acls(driver: ZooKeeperDriver, path: str) -> Any:
    from concurrent.futures import Future

    future: Future[Any] = Future()
    driver.zk._kazoo.get_acls_async(path).rawlink(lambda result: future.set_result(result.value))
    return future


def test_bad_settings_are_refused() -> None:
    for conf in ({"zkTimeout": "soon"}, {"zkTimeout": -5}, {"zkAuth": "digest"}):
        with pytest.raises(ConfigurationError):
            zookeeper_driver("zk://127.0.0.1:1/ledgers", **conf)
