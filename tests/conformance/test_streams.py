"""Streams' names, segments, locks and allocated ledgers, on every store (spec streams §2, §3, §4.4, §6, §7, §10).

`tests/data/metadata/dlog.json` is a namespace that Java's DistributedLog 4.17.3 wrote.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import (
    InvalidStreamNameError,
    LockError,
    NamespaceExistsError,
    NamespaceNotBoundError,
    NamespaceNotEmptyError,
    NotOwnerError,
    ServiceUnavailable,
    StreamConflictError,
    StreamExistsError,
    StreamMetadataError,
    StreamNotFoundError,
    StreamStateError,
)
from bookkeeper.metadata.api import ANY, MetadataDriver
from bookkeeper.metadata.tree import Create, Delete, Node, RecordTree
from bookkeeper.metadata.zookeeper import ZooKeeperDriver
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.names import namespaces
from bookkeeper.streams.names.allocation import LedgerAllocator, Phase
from bookkeeper.streams.names.head import LogHead
from bookkeeper.streams.names.lock import LockState, LogLock
from bookkeeper.streams.names.logs import LogRecords, Logs
from bookkeeper.streams.names.namespaces import NamespaceSettings
from bookkeeper.streams.names.paths import completed_name, inprogress_name, names_of_interest_to_a_writer
from bookkeeper.streams.names.segments import SegmentCodec, SegmentList
from tests.support.metadata_stores import StoreUnderTest
from tests.support.waiting import until

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "metadata" / "dlog.json").read_text()
)
PUBLISHED_AT_ONCE = 1_500
"""Segments that one transaction must hold (spec streams §15.7)."""

GOLDEN_ROOT = "/golden/dlog"
GOLDEN_STREAMS = ["empty", "open", "plain", "recovered", "sealed/lz4"]
BINDING = bytes.fromhex(GOLDEN[GOLDEN_ROOT]["data"])


@dataclass(frozen=True)
class Segment:
    """A segment as these tests need it, read from the text of version 5."""

    number: int
    ledger: int
    completed: bool
    text: str


def decode(data: bytes) -> Segment:
    fields = data.decode().split(";")
    completed = len(fields) == 11
    return Segment(int(fields[5] if completed else fields[3]), int(fields[1]), completed, data.decode())


CODEC = SegmentCodec(decode, lambda s: s.number, lambda s: (s.number, s.completed))


def inprogress(number: int, ledger: int) -> bytes:
    return b"5;%d;1;%d;0;0;-1" % (ledger, number)


def completed(number: int, ledger: int, status: int = 0) -> bytes:
    return b"%d;%d;1;9;1700000000000;%d;0;0;0;0;0" % (5 | status << 8 | 1 << 32, ledger, number)


class FakeLedgers:
    """Ledgers that are nothing but their ids."""

    def __init__(self, first: int = 100) -> None:
        self.next = first
        self.alive: set[int] = set()
        self.deleted: list[int] = []

    async def create(self) -> int:
        self.next += 1
        self.alive.add(self.next)
        return self.next

    def id_of(self, ledger: int) -> int:
        return ledger

    async def close(self, ledger: int) -> None:
        """There are no writers here."""

    async def delete(self, ledger_id: int) -> None:
        self.alive.discard(ledger_id)
        self.deleted.append(ledger_id)


class Place:
    """A bound namespace in a store, and clients of it."""

    def __init__(self, store: StoreUnderTest) -> None:
        self.store = store
        self.path = f"{store.tree_root}/ns"
        self._locks: list[LogLock] = []

    async def client(self, **options: Any) -> MetadataDriver:
        return await self.store.open(**options)

    async def logs(self) -> Logs:
        return Logs((await self.client()).tree, self.path)

    def lock(self, driver: MetadataDriver, name: str, client: str) -> LogLock:
        lock = LogLock(driver.tree, RealRuntime(), Logs(driver.tree, self.path).paths(name).lock, client)
        self._locks.append(lock)
        return lock

    async def kill(self, driver: MetadataDriver, lock: LogLock) -> None:
        """The process of a lock's owner dies."""
        await self.store.kill(driver)
        self._locks.remove(lock)
        await lock._tasks.close()

    async def close(self) -> None:
        for lock in self._locks:
            await lock.release()


@pytest.fixture
async def place(store: StoreUnderTest) -> AsyncIterator[Place]:
    found = Place(store)
    await namespaces.bind((await store.open()).tree, found.path, BINDING)
    yield found
    await found.close()


async def load_golden(tree: RecordTree, root: str) -> None:
    """What Java wrote, below another path; without the lock of its writer, which belongs to a session."""
    nodes = sorted((path, node) for path, node in GOLDEN.items() if path.startswith(GOLDEN_ROOT))
    for path, node in nodes:
        if not node["ephemeral"]:
            target = root + path.removeprefix(GOLDEN_ROOT)
            await tree.make(target.rpartition("/")[0])
            if await tree.get(target) is None:
                await tree.create(target, bytes.fromhex(node["data"]))


# --- namespaces ---


async def test_a_binding_holds_for_what_is_below_it(store: StoreUnderTest) -> None:
    tree, path = (await store.open()).tree, f"{store.tree_root}/ns"
    with pytest.raises(NamespaceNotBoundError):
        await namespaces.resolve(tree, path)
    await namespaces.bind(tree, path, BINDING)
    await namespaces.bind(tree, path, BINDING)
    with pytest.raises(NamespaceExistsError):
        await namespaces.bind(tree, path, BINDING + b"\n")
    for below in (path, f"{path}/team", f"{path}/team/a"):
        assert await namespaces.resolve(tree, below) == (path, BINDING)
    await namespaces.bind(tree, f"{path}/team", b"other")
    assert await namespaces.resolve(tree, f"{path}/team/a") == (f"{path}/team", b"other")
    await namespaces.bind(tree, f"{path}/team", b"third", replace=True)
    assert (await namespaces.resolve(tree, f"{path}/team")).data == b"third"


async def test_a_namespace_with_streams_is_not_unbound_unless_forced(place: Place) -> None:
    tree = (await place.client()).tree
    await (await place.logs()).create("a")
    with pytest.raises(NamespaceNotEmptyError):
        await namespaces.unbind(tree, place.path)
    await namespaces.unbind(tree, place.path, force=True)
    with pytest.raises(NamespaceNotBoundError):
        await namespaces.resolve(tree, place.path)
    assert await (await place.logs()).exists("a")


async def test_settings_of_a_stream_go_before_those_of_its_namespace(place: Place) -> None:
    p = NamespaceSettings((await place.client()).tree, place.path)
    q = NamespaceSettings((await place.client()).tree, place.path)
    assert await p.get() is None
    await p.put({"retention": "none", "ensemble": 3})
    await q.put({"ensemble": 5, "a key of later": [1]}, stream="team/a")
    assert await p.effective("team/a") == {"retention": "none", "ensemble": 5, "a key of later": [1]}
    assert await p.effective("team/b") == {"retention": "none", "ensemble": 3}
    found = await p.get()
    assert found is not None
    await q.put({"ensemble": 2}, expected=found.version)
    with pytest.raises(StreamConflictError):
        await p.put({"ensemble": 1}, expected=found.version)
    assert await p.effective("team/b") == {"ensemble": 2}
    assert [name async for name in (await place.logs()).names(recursive=True)] == []


async def test_settings_of_no_sense_are_said(place: Place) -> None:
    tree = (await place.client()).tree
    await tree.create(f"{place.path}/.config", b"{")
    with pytest.raises(StreamMetadataError):
        await NamespaceSettings(tree, place.path).get()


# --- streams ---


async def test_what_java_wrote_is_read(store: StoreUnderTest) -> None:
    tree, root = (await store.open()).tree, f"{store.tree_root}/golden"
    await load_golden(tree, root)
    assert (await namespaces.resolve(tree, root)).data == BINDING
    logs = Logs(tree, root)
    assert [name async for name in logs.names(recursive=True)] == GOLDEN_STREAMS
    assert [name async for name in logs.names()] == ["empty", "open", "plain", "recovered"]
    assert [name async for name in logs.names("sealed")] == ["sealed/lz4"]
    loaded = {name: await logs.load(name) for name in GOLDEN_STREAMS}
    assert {name: (r.max_segment.value, r.max_txid.value) for name, r in loaded.items()} == {
        "empty": (0, 0),
        "open": (1, 0),
        "plain": (4, 4000),
        "recovered": (1, 8),
        "sealed/lz4": (1, 2**63 - 1),
    }
    assert {r.allocation.value for r in loaded.values()} == {None}
    plain = await SegmentList(tree, logs.paths("plain"), CODEC).refresh()
    assert [(s.number, s.ledger, s.completed) for s in plain] == [(n, n + 18, True) for n in (1, 2, 3, 4)]
    last = await SegmentList(tree, logs.paths("plain"), CODEC).refresh(
        interest=lambda names: names_of_interest_to_a_writer(names)
    )
    assert [s.number for s in last] == [4]


async def test_a_new_stream_has_the_records_that_java_gives_it(place: Place) -> None:
    logs = await place.logs()
    await logs.create("empty")
    tree = (await place.client()).tree
    expected = {path: node["data"] for path, node in GOLDEN.items() if path.startswith(f"{GOLDEN_ROOT}/empty")}
    found = {}
    for path in expected:
        node = await tree.get(place.path + path.removeprefix(GOLDEN_ROOT))
        found[path] = None if node is None else node.data.hex()
    assert found == expected


async def test_a_stream_is_created_once(place: Place) -> None:
    p, q = await place.logs(), await place.logs()
    first = await p.create("team/a")
    assert (first.max_segment.value, first.max_txid.value, first.allocation.value) == (0, 0, None)
    with pytest.raises(StreamExistsError):
        await q.create("/team/a")
    assert await q.create("team/a", exist_ok=True) == first
    assert await q.exists("team/a")
    assert not await q.exists("team")
    with pytest.raises(StreamNotFoundError):
        await q.load("team")
    with pytest.raises(InvalidStreamNameError):
        await q.create(".config")


async def test_of_many_who_create_a_stream_each_finds_it(place: Place) -> None:
    every = [await place.logs() for _ in range(4)]
    found = await asyncio.gather(*(logs.create("a", exist_ok=True) for logs in every))
    assert len(set(found)) == 1


async def test_a_half_made_stream_is_completed(place: Place) -> None:
    tree, logs = (await place.client()).tree, await place.logs()
    records = logs.paths("a").records()
    await tree.commit([Create(path, data) for path, data in list(records.items())[:4]])
    assert not await logs.exists("a")
    await logs.create("a")
    assert await logs.exists("a")


async def test_a_stream_needs_its_namespace(store: StoreUnderTest) -> None:
    tree = (await store.open()).tree
    with pytest.raises(NamespaceNotBoundError):
        await Logs(tree, f"{store.tree_root}/absent").create("a")


async def test_a_stream_of_another_layout_is_refused(place: Place) -> None:
    tree, logs = (await place.client()).tree, await place.logs()
    paths = (await logs.create("a")).paths
    await tree.write(paths.version, b"\0\0\0\1")
    with pytest.raises(StreamMetadataError):
        await logs.load("a")


async def test_a_deleted_stream_is_gone_with_its_ledgers_but_not_what_is_named_below_it(place: Place) -> None:
    driver, logs = await place.client(), await place.logs()
    paths = (await logs.create("a")).paths
    await logs.create("a/b")
    await driver.tree.write(paths.allocation, b"77")
    await driver.tree.make(f"{paths.subscribers}/reader/readLock")
    for number in (1, 2):
        await driver.tree.create(paths.segment(completed_name(number)), completed(number, number + 10))
    lock, ledgers = place.lock(driver, "a", "me"), FakeLedgers()
    await lock.acquire()
    await logs.delete("a", lock.member, ledger_of=lambda data: decode(data).ledger, delete_ledger=ledgers.delete)
    assert ledgers.deleted == [11, 12, 77]
    assert not await logs.exists("a")
    assert [name async for name in logs.names(recursive=True)] == ["a/b"]
    await logs.create("a")


async def test_a_stream_that_others_wait_for_is_neither_deleted_nor_renamed(place: Place) -> None:
    p, q, logs = await place.client(), await place.client(), await place.logs()
    await logs.create("a")
    lock, other = place.lock(p, "a", "me"), place.lock(q, "a", "other")
    await lock.acquire()
    waiting = asyncio.create_task(other.acquire(timeout=None))
    await until(lambda: _members(p.tree, logs, "a", 2))
    with pytest.raises(LockError):
        await logs.rename("a", "b", lock.member)
    with pytest.raises(LockError):
        await logs.delete("a", lock.member, ledger_of=lambda _: 0, delete_ledger=FakeLedgers().delete)
    assert await logs.exists("a")
    await lock.release()
    await waiting


async def test_a_renamed_stream_has_all_it_had(place: Place) -> None:
    driver, logs = await place.client(), await place.logs()
    await load_golden(driver.tree, f"{place.path}")
    before = await SegmentList(driver.tree, logs.paths("plain"), CODEC).refresh()
    await driver.tree.make(f"{logs.paths('plain').subscribers}/reader")
    lock = place.lock(driver, "plain", "me")
    await lock.acquire()
    await logs.rename("plain", "team/other", lock.member)
    records = await logs.load("team/other")
    assert (records.max_segment.value, records.max_txid.value) == (4, 4000)
    assert await SegmentList(driver.tree, records.paths, CODEC).refresh() == before
    assert await driver.tree.get(f"{records.paths.subscribers}/reader") is not None
    assert "plain" not in [name async for name in logs.names()]
    again = place.lock(driver, "team/other", "me")
    await again.acquire(timeout=0)
    with pytest.raises(StreamExistsError):
        await logs.rename("team/other", "open", again.member)


# --- segments ---


class Writer:
    """The owner of a stream, who writes nothing."""

    def __init__(self, tree: RecordTree, records: LogRecords, ledgers: FakeLedgers) -> None:
        self.head = LogHead(tree, records)
        self.allocator = LedgerAllocator(tree, records, ledgers)
        self.ledger = -1

    async def start(self, number: int) -> None:
        self.ledger = await self.allocator.allocate()
        try:
            written = await self.head.start(number, inprogress(number, self.ledger), handover=self.allocator.offer())
        except BaseException as error:
            self.allocator.refused(error)
            raise
        self.allocator.taken(written)

    async def complete(self, number: int, last_txid: int) -> None:
        await self.head.complete(number, completed(number, self.ledger), last_txid=last_txid)


async def writer(place: Place, name: str, ledgers: FakeLedgers) -> Writer:
    driver = await place.client()
    return Writer(driver.tree, await Logs(driver.tree, place.path).create(name, exist_ok=True), ledgers)


async def test_segments_come_and_are_completed(place: Place) -> None:
    owner, logs, ledgers = await writer(place, "a", FakeLedgers()), await place.logs(), FakeLedgers()
    tree = (await place.client()).tree
    segments = SegmentList(tree, logs.paths("a"), CODEC)
    async with aclosing(segments.watch()) as watch, asyncio.timeout(60):
        assert await anext(watch) == []
        await owner.start(1)
        assert [(s.number, s.completed) for s in await anext(watch)] == [(1, False)]
        await owner.complete(1, 500)
        assert [(s.number, s.completed) for s in await anext(watch)] == [(1, True)]
    records = await logs.load("a")
    assert (records.max_segment.value, records.max_txid.value, records.allocation.value) == (1, 500, None)
    assert ledgers.deleted == []


async def test_versions_after_four_segments_are_those_that_java_left(place: Place) -> None:
    """On ZooKeeper versions count writes: the same transactions leave the same numbers."""
    owner = await writer(place, "plain", FakeLedgers())
    for number in (1, 2, 3, 4):
        await owner.start(number)
        await owner.complete(number, number * 1000)
    driver, paths = await place.client(), (await place.logs()).paths("plain")
    found = await driver.tree.get_many([paths.segments, paths.max_txid, paths.allocation])
    golden = [GOLDEN[f"{GOLDEN_ROOT}/plain/<default>/{name}"] for name in ("ledgers", "maxtxid", "allocation")]
    assert [node and node.data.hex() for node in found] == [node["data"] for node in golden]
    if isinstance(driver, ZooKeeperDriver):
        assert [node and node.version for node in found] == [node["version"] for node in golden]


async def test_of_two_owners_one_is_refused(place: Place) -> None:
    ledgers = FakeLedgers()
    await (await place.logs()).create("a")
    first, second = await writer(place, "a", ledgers), await writer(place, "a", ledgers)
    await first.start(1)
    with pytest.raises(NotOwnerError):
        await second.start(1)
    assert second.allocator.phase is Phase.FAILED
    assert ledgers.alive == {first.ledger}
    await first.complete(1, 10)
    with pytest.raises(NotOwnerError):
        await second.head.complete(1, completed(1, 5), last_txid=10)


async def test_a_segment_number_must_follow(place: Place) -> None:
    owner = await writer(place, "a", FakeLedgers())
    with pytest.raises(StreamStateError):
        await owner.start(2)
    assert owner.allocator.phase is Phase.READY
    await owner.start(1)
    with pytest.raises(StreamStateError):
        await owner.start(0)


async def test_a_number_is_used_again_after_an_empty_segment_was_removed(place: Place) -> None:
    owner = await writer(place, "a", FakeLedgers())
    await owner.start(1)
    await owner.head.remove(inprogress_name(1))
    await owner.head.remove(inprogress_name(1))
    await owner.start(1)
    await owner.complete(1, 5)
    assert owner.head.max_segment == 1


async def test_a_marked_segment_is_seen_although_its_name_stays(place: Place) -> None:
    owner, logs = await writer(place, "a", FakeLedgers()), await place.logs()
    for number in (1, 2):
        await owner.start(number)
        await owner.complete(number, number)
    segments = SegmentList((await place.client()).tree, logs.paths("a"), CODEC)
    before = await segments.refresh()
    await segments.refresh()
    assert segments.reads == 2
    await owner.head.replace({completed_name(1): completed(1, before[0].ledger, status=2)})
    after = await segments.refresh()
    assert (after[0].text != before[0].text, after[1]) == (True, before[1])
    await owner.head.remove(completed_name(1))
    assert [s.number for s in await segments.refresh()] == [2]
    assert segments.reads == 4


async def test_a_stream_made_again_is_read_again(place: Place) -> None:
    logs, driver, texts = await place.logs(), await place.client(), []
    segments = SegmentList(driver.tree, logs.paths("a"), CODEC)
    for ledger in (1, 2):
        paths = (await logs.create("a")).paths
        await driver.tree.create(paths.segment(completed_name(1)), completed(1, ledger))
        texts += [s.ledger for s in await segments.refresh()]
        lock = place.lock(driver, "a", "me")
        await lock.acquire()
        await logs.delete("a", lock.member, ledger_of=lambda _: 0, delete_ledger=FakeLedgers().delete)
        with pytest.raises(StreamNotFoundError):
            await segments.refresh()
    assert texts == [1, 2]


async def test_a_list_may_be_refreshed_while_it_is_watched(place: Place) -> None:
    owner, logs = await writer(place, "a", FakeLedgers()), await place.logs()
    segments = SegmentList((await place.client()).tree, logs.paths("a"), CODEC)
    last: dict[str, list[int]] = {}

    async def follow() -> None:
        async with aclosing(segments.watch()) as watch:
            async for found in watch:
                last["seen"] = [s.number for s in found]

    following = asyncio.create_task(follow())
    for number in range(1, 21):
        await owner.start(number)
        await owner.complete(number, number)
        found = await asyncio.gather(*(segments.refresh() for _ in range(3)))
        assert {tuple(s.number for s in each) for each in found} == {tuple(range(1, number + 1))}
    await until(lambda: last.get("seen") == list(range(1, 21)))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize("way", ["refresh", "interest", "watch"])
async def test_a_list_that_changes_while_it_is_read_is_listed_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A segment is completed between the listing and the reading, while the next one is there already."""
    logs, tree = await place.logs(), (await place.client()).tree
    paths = (await logs.create("a")).paths
    data = {
        completed_name(1): completed(1, 1),
        inprogress_name(2): inprogress(2, 2),
        inprogress_name(3): inprogress(3, 3),
    }
    await tree.commit([Create(paths.segment(name), text) for name, text in data.items()])
    get_many, asked = tree.get_many, []

    async def complete_second(wanted: Sequence[str]) -> list[Node | None]:
        asked.append(len(wanted))
        if len(asked) == 1:
            done = Create(paths.segment(completed_name(2)), completed(2, 2))
            await tree.commit([done, Delete(paths.segment(inprogress_name(2)), ANY)])
        return await get_many(wanted)

    monkeypatch.setattr(tree, "get_many", complete_second)
    segments = SegmentList(tree, paths, CODEC)
    if way == "watch":
        async with aclosing(segments.watch()) as lists:
            found = await anext(lists)
    else:
        found = await segments.refresh(interest=names_of_interest_to_a_writer if way == "interest" else None)
    assert [s.number for s in found] == ([2, 3] if way == "interest" else [1, 2, 3])
    assert len(asked) == 2


async def test_missing_segments_are_said(place: Place) -> None:
    logs, tree = await place.logs(), (await place.client()).tree
    paths = (await logs.create("a")).paths
    await tree.commit([Create(paths.segment(completed_name(n)), completed(n, n)) for n in (1, 2, 4)])
    with pytest.raises(StreamStateError, match="4 follows 2"):
        await SegmentList(tree, paths, CODEC).refresh()


async def test_many_segments_are_listed_and_followed(place: Place) -> None:
    count = place.store.many_segments
    logs, driver = await place.logs(), await place.client()
    paths = (await logs.create("a")).paths
    for start in range(1, count + 1, PUBLISHED_AT_ONCE):
        numbers = range(start, min(start + PUBLISHED_AT_ONCE, count + 1))
        await driver.tree.commit([Create(paths.segment(completed_name(n)), completed(n, n)) for n in numbers])
    segments = SegmentList(driver.tree, paths, CODEC)
    assert [s.number for s in await segments.refresh()] == list(range(1, count + 1))
    await driver.tree.create(paths.segment(completed_name(count + 1)), completed(count + 1, 1))
    await driver.tree.delete(paths.segment(completed_name(1)))
    assert [s.number for s in await segments.refresh()] == list(range(2, count + 2))
    assert segments.reads == count + 1


# --- the allocated ledger ---


async def test_a_left_ledger_is_deleted_when_the_next_one_is_in_its_place(place: Place) -> None:
    ledgers = FakeLedgers()
    first = await writer(place, "a", ledgers)
    left = await first.allocator.allocate()
    assert await first.allocator.allocate() == left
    second = await writer(place, "a", ledgers)
    assert ledgers.deleted == []
    await second.start(1)
    assert ledgers.deleted == [left]
    assert ledgers.alive == {second.ledger}
    with pytest.raises(NotOwnerError):
        await first.head.start(1, inprogress(1, left), handover=first.allocator.offer())


async def test_a_ledger_that_cannot_be_made_is_tried_again(place: Place) -> None:
    class Failing(FakeLedgers):
        async def create(self) -> int:
            if self.next == 100:
                self.next = 200
                raise ServiceUnavailable("no bookies")
            return await super().create()

    owner = await writer(place, "a", Failing())
    with pytest.raises(ServiceUnavailable):
        await owner.start(1)
    await owner.start(1)
    assert owner.ledger == 201


async def test_a_start_whose_answer_was_lost_has_happened_once(place: Place) -> None:
    driver, ledgers = await place.client(), FakeLedgers()
    owner = Writer(driver.tree, await Logs(driver.tree, place.path).create("a"), ledgers)
    await owner.allocator.allocate()
    place.store.lose_answer(driver, "tree.commit")
    await owner.start(1)
    await owner.complete(1, 5)
    assert ledgers.deleted == []


# --- the lock ---


async def _members(tree: RecordTree, logs: Logs, name: str, count: int) -> bool:
    listing = await tree.children(logs.paths(name).lock, fresh=True)
    return listing is not None and len(listing.names) == count


async def test_a_lock_goes_from_hand_to_hand_in_order(place: Place) -> None:
    logs = await place.logs()
    await logs.create("a")
    drivers = [await place.client() for _ in range(3)]
    locks = [place.lock(driver, "a", f"client {n}") for n, driver in enumerate(drivers)]
    await locks[0].acquire()
    waiting = []
    for n in (1, 2):
        waiting.append(asyncio.create_task(locks[n].acquire(timeout=None)))
        await until(lambda n=n: _members(drivers[0].tree, logs, "a", n + 1))  # type: ignore[misc]
    for n in (1, 2):
        assert [lock.state for lock in locks[n:]] == [LockState.NEW] * (3 - n)
        await locks[n - 1].release()
        async with asyncio.timeout(60):
            await waiting[n - 1]
        locks[n].check()
        with pytest.raises(LockError):
            locks[n - 1].check()
    await locks[2].release()
    await locks[2].release()
    assert await _members(drivers[0].tree, logs, "a", 0)
    with pytest.raises(LockError):
        await locks[2].acquire()


@pytest.mark.parametrize("seconds", [0, 0.2])
async def test_who_cannot_have_the_lock_is_told_the_owner_and_leaves_nothing(place: Place, seconds: float) -> None:
    p, q, logs = await place.client(), await place.client(), await place.logs()
    await logs.create("a")
    held = place.lock(p, "a", "the owner_of it")
    await held.acquire()
    with pytest.raises(NotOwnerError) as raised:
        await place.lock(q, "a", "other").acquire(timeout=seconds)
    assert raised.value.owner == "the owner_of it"
    await until(lambda: _members(p.tree, logs, "a", 1))
    held.check()


async def test_a_dead_owner_gives_way(place: Place) -> None:
    p, q, logs = await place.client(session_timeout_ms=2000), await place.client(), await place.logs()
    await logs.create("a")
    first, second = place.lock(p, "a", "one"), place.lock(q, "a", "two")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire(timeout=None))
    await until(lambda: _members(q.tree, logs, "a", 2))
    await place.kill(p, first)
    async with asyncio.timeout(60):
        await waiting
    second.check()


async def test_a_lock_is_taken_again_after_its_session_was_lost(place: Place) -> None:
    p, logs = await place.client(session_timeout_ms=2000), await place.logs()
    await logs.create("a")
    lock = place.lock(p, "a", "one")
    await lock.acquire()
    before = lock.member.session
    await place.store.expire(p)
    await until(lambda: lock.member.session != before)
    lock.check()
    assert await _members((await place.client()).tree, logs, "a", 1)


async def test_a_lock_that_another_has_by_then_is_lost_for_good(place: Place) -> None:
    p, q, logs = await place.client(session_timeout_ms=2000), await place.client(), await place.logs()
    await logs.create("a")
    first, second = place.lock(p, "a", "one"), place.lock(q, "a", "two")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire(timeout=None))
    await until(lambda: _members(q.tree, logs, "a", 2))
    await place.store.expire(p)
    async with asyncio.timeout(60):
        await waiting
        await first.lost.wait()
    with pytest.raises(NotOwnerError, match="taken over"):
        first.check()
    second.check()


@pytest.mark.parametrize("turns", [0, 1, 3, 8])
async def test_who_stops_waiting_leaves_nothing_behind(place: Place, turns: int) -> None:
    p, q, logs = await place.client(), await place.client(), await place.logs()
    await logs.create("a")
    held, other = place.lock(p, "a", "one"), place.lock(q, "a", "two")
    await held.acquire()
    waiting = asyncio.create_task(other.acquire(timeout=None))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: _members(p.tree, logs, "a", 1))
    held.check()
