"""Crashes of the database storage at every disk call: what a flush has answered for stays, nothing false appears."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.errors import FatalBookieError, NoEntryError, NoLedgerError
from tests.support.storage import KEY, StorageMachine, entry

SMALL_LOGS = 4096
"""Some entries a log, so that logs roll in the middle of flushes."""


class Model:
    """What the storage was given, and what flushes have answered for."""

    def __init__(self) -> None:
        self.versions: dict[tuple[int, int], list[bytes]] = {}
        """All versions of each entry, in order. A crash may keep the last durable one or a later one."""
        self.added: dict[tuple[int, int], int] = {}
        """The latest version of each entry that was added since the last flush or crash."""
        self.durable: dict[tuple[int, int], int] = {}
        """The version that a flush has made durable."""
        self.deleted: dict[int, bool] = {}
        """Ledgers deleted, and whether a flush followed."""
        self.undecided: dict[int, None] = {}
        """Ledgers that were deleted right before a crash: there or not, whole or not."""
        self.fenced: dict[int, bool] = {}
        """Ledgers fenced, and whether a flush followed."""

    def add(self, storage: DbLedgerStorage, ledger_id: int, entry_id: int, size: int = 40) -> None:
        held = self.versions.setdefault((ledger_id, entry_id), [])
        data = entry(ledger_id, entry_id, size, len(held))
        storage.set_master_key(ledger_id, KEY)
        storage.add_entry(ledger_id, entry_id, data)
        self.added[ledger_id, entry_id] = len(held)
        held.append(data)

    def fence(self, storage: DbLedgerStorage, ledger_id: int) -> None:
        storage.set_master_key(ledger_id, KEY)
        storage.set_fenced(ledger_id)
        self.fenced.setdefault(ledger_id, False)

    def delete(self, storage: DbLedgerStorage, ledger_id: int) -> None:
        storage.delete_ledger(ledger_id)
        self.deleted[ledger_id] = False
        self.fenced.pop(ledger_id, None)
        self.added = {key: version for key, version in self.added.items() if key[0] != ledger_id}

    async def flush(self, storage: DbLedgerStorage) -> None:
        deleted, fenced, added = list(self.deleted), list(self.fenced), dict(self.added)
        await storage.flush()
        self.durable.update(added)
        self.deleted.update(dict.fromkeys(deleted, True))
        self.fenced.update(dict.fromkeys(fenced, True))

    async def check(self, storage: DbLedgerStorage) -> None:
        """The storage holds what it must, and nothing that it was not given."""
        for (ledger_id, entry_id), version in self.durable.items():
            if ledger_id not in self.deleted and ledger_id not in self.undecided:
                found = await storage.read_entry(ledger_id, entry_id)
                assert found in self.versions[ledger_id, entry_id][version:], (ledger_id, entry_id)
        for ledger_id in storage.ledgers():
            assert not self.deleted.get(ledger_id), f"ledger {ledger_id} came back"
            if ledger_id in self.undecided:
                continue
            for entry_id in await storage.list_entries(ledger_id):
                assert await storage.read_entry(ledger_id, entry_id) in self.versions[ledger_id, entry_id]
        for ledger_id, sure in self.fenced.items():
            assert storage.is_fenced(ledger_id) or not sure

    async def recover(self, storage: DbLedgerStorage) -> None:
        """After a crash: what is there is right, and what is not there is forgotten."""
        self.added = {}
        self.undecided.update(dict.fromkeys(ledger_id for ledger_id, sure in self.deleted.items() if not sure))
        self.deleted = {ledger_id: sure for ledger_id, sure in self.deleted.items() if sure}
        self.fenced = {
            ledger_id: sure for ledger_id, sure in self.fenced.items() if sure or storage.is_fenced(ledger_id)
        }
        await self.check(storage)


async def story(storage: DbLedgerStorage, model: Model) -> None:
    """One of everything that a flush may have to do."""
    for entry_id in range(60):
        model.add(storage, 1, entry_id)
        model.add(storage, 2, entry_id, 100)
    await model.flush(storage)
    for entry_id in range(50, 90):
        model.add(storage, 1, entry_id)  # some again
    model.fence(storage, 2)
    await model.flush(storage)
    model.fence(storage, 3)
    await model.flush(storage)
    model.delete(storage, 2)
    model.add(storage, 4, 0, 5000)
    await model.flush(storage)
    model.add(storage, 4, 1)


async def after(storage: DbLedgerStorage, model: Model) -> None:
    """After a crash: what is there is right, and the storage works on."""
    await model.recover(storage)
    for entry_id in range(100, 130):
        model.add(storage, 1, entry_id)
    await model.flush(storage)
    await model.check(storage)


@pytest.mark.parametrize("seed", range(3))
def test_a_power_loss_at_any_disk_call_loses_nothing_that_was_flushed(seed: int) -> None:
    """BI-4, BI-6, BI-11, DF-1."""
    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        model = Model()

        async def scene(storage: DbLedgerStorage, model: Model = model) -> bool:
            await story(storage, model)
            return True

        with StorageMachine(seed * 1000 + crash_at, logSizeLimit=SMALL_LOGS) as machine:
            machine.disk.faults.crash_after_calls = crash_at
            finished = bool(machine.run(scene))
            machine.disk.faults.crash_after_calls = None
            machine.run(lambda storage, model=model: after(storage, model))
            machine.run(lambda storage, model=model: model.check(storage))
    assert crash_at > 50


def test_a_kill_keeps_what_was_flushed() -> None:
    """BI-6, FX-30: of two directories. DF-5."""
    model = Model()
    with StorageMachine(1, directories=2, logSizeLimit=SMALL_LOGS) as machine:
        machine.run(lambda storage: story(storage, model), close=False)
        machine.run(lambda storage: after(storage, model))


# --- what a crash leaves in the logs ---


def parts(records: bytes) -> list[bytes]:
    """The entries of a batch answer."""
    found = []
    while records:
        size = int.from_bytes(records[:4], "big")
        found.append(records[4 : 4 + size])
        records = records[4 + size :]
    return found


async def read_every_way(storage: DbLedgerStorage, expected: dict[int, bytes]) -> None:
    """Entries of ledger 1, each read by itself, after the one before it, and together with it."""
    cache = storage.directories[0].caches.read_cache
    for entry_id, data in expected.items():
        cache.forget(1)
        assert await storage.read_entry(1, entry_id) == data
        if entry_id - 1 in expected:
            cache.forget(1)
            assert await storage.read_entry(1, entry_id - 1) == expected[entry_id - 1]
            assert await storage.read_entry(1, entry_id) == data
            cache.forget(1)
            assert parts(await storage.read_run(1, entry_id - 1, 2, 1 << 20)) == [expected[entry_id - 1], data]


@pytest.mark.parametrize("crash_at", range(1, 8))
def test_a_torn_copy_behind_its_predecessor_does_not_hide_the_one_that_replay_brought(crash_at: int) -> None:
    """BI-4, BI-10."""
    expected = {i: entry(1, i, 200) for i in range(5)} | {5: entry(1, 5, 3000)}

    async def before(storage: DbLedgerStorage) -> None:
        storage.set_master_key(1, KEY)
        for entry_id in range(5):
            storage.add_entry(1, entry_id, expected[entry_id])
        await storage.flush()
        storage.add_entry(1, 5, expected[5])
        machine.disk.faults.crash_after_calls = crash_at
        await storage.flush()

    async def after(storage: DbLedgerStorage) -> None:
        storage.set_master_key(1, KEY)
        storage.add_entry(1, 5, expected[5])  # the journal has it: it was acknowledged
        await storage.flush()
        await read_every_way(storage, expected)

    for seed in range(40):
        with StorageMachine(seed) as machine:
            machine.run(before, close=False)
            machine.machine.power_off()
            machine.disk.faults.crash_after_calls = None
            machine.run(after)
            machine.run(lambda storage: read_every_way(storage, expected))


def test_a_log_that_became_full_in_a_flush_that_did_not_end_is_not_trusted() -> None:
    """It is complete, but has an older version of an entry, which the index never knew."""
    old = {i: entry(1, i, 300) for i in range(20)}
    new = {i: entry(1, i, 300, 1) for i in range(20)}

    async def before(storage: DbLedgerStorage) -> None:
        storage.set_master_key(1, KEY)
        for entry_id in range(2):
            storage.add_entry(1, entry_id, old[entry_id])
        await storage.flush()
        for entry_id in range(2, 20):
            storage.add_entry(1, entry_id, old[entry_id])
        machine.disk.faults.crash_after_calls = crash_at
        await storage.flush()

    async def after(storage: DbLedgerStorage) -> None:
        storage.set_master_key(1, KEY)
        for entry_id in range(2, 20):  # in the journal there is one more version
            storage.add_entry(1, entry_id, new[entry_id])
        await storage.flush()
        await read_every_way(storage, {i: (old if i < 2 else new)[i] for i in range(20)})

    for crash_at in range(1, 30):
        with StorageMachine(crash_at, logSizeLimit=SMALL_LOGS) as machine:
            machine.run(before, close=False)
            machine.machine.kill()
            machine.disk.faults.crash_after_calls = None
            machine.run(after)


def test_a_crash_while_entries_are_moved_does_not_hide_where_they_are() -> None:
    """BI-13."""
    expected = {i: entry(1, i, 900) for i in range(12)}

    async def before(storage: DbLedgerStorage) -> bool:
        storage.set_master_key(1, KEY)
        for start in range(0, 12, 3):
            for entry_id in range(start, start + 3):
                storage.add_entry(1, entry_id, expected[entry_id])
            await storage.flush()
        directory = storage.directories[0]
        logs = await directory.closed_logs()
        machine.disk.faults.crash_after_calls = crash_at
        for log_id in logs:
            mover = directory.mover(log_id)
            while batch := mover.next_batch():
                for item in batch:
                    await directory.rewrite([item])
        return True

    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        with StorageMachine(crash_at, logSizeLimit=SMALL_LOGS) as machine:
            finished = bool(machine.run(before, close=False))
            machine.machine.power_off()
            machine.disk.faults.crash_after_calls = None
            machine.run(lambda storage: read_every_way(storage, expected))


def test_a_crash_at_any_step_of_building_the_index_anew_loses_nothing() -> None:
    """FX-46."""
    model = Model()

    async def write(storage: DbLedgerStorage) -> None:
        await story(storage, model)

    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        model = Model()
        with StorageMachine(crash_at, logSizeLimit=SMALL_LOGS) as machine:
            machine.run(write, close=False)
            assert machine.disk.flip_log("/storage/d0/current/locations")
            machine.disk.faults.crash_after_calls = crash_at
            finished = bool(machine.run(nothing, close=False))
            machine.disk.faults.crash_after_calls = None
            machine.run(lambda storage, model=model: after(storage, model))
            machine.run(lambda storage, model=model: model.check(storage))
    assert crash_at > 30


async def nothing(storage: DbLedgerStorage) -> bool:
    return storage.ledgers() != []


# --- disk faults ---


def test_a_full_disk_ends_no_flush_and_the_next_one_makes_up_for_it() -> None:
    """JH-4, BI-12, FX-36, DF-7."""
    model = Model()

    async def scene(storage: DbLedgerStorage) -> None:
        for entry_id in range(100):
            model.add(storage, 1, entry_id)
        await model.flush(storage)
        machine.disk.faults.full = True
        for entry_id in range(100, 200):
            model.add(storage, 1, entry_id)
        for _ in range(3):
            with pytest.raises(OSError, match="No space") as failure:
                await model.flush(storage)
            assert failure.value.errno == errno.ENOSPC
            await model.check(storage)
            assert await storage.read_entry(1, 150) == model.versions[1, 150][0]
        sizes = {name: len(inode.seen) for name, inode in machine.disk.names.items()}
        machine.disk.faults.full = False
        model.add(storage, 1, 200)
        await model.flush(storage)
        assert sum(len(inode.seen) for inode in machine.disk.names.values()) > sum(sizes.values())

    with StorageMachine(2, logSizeLimit=SMALL_LOGS) as machine:
        machine.run(scene, close=False)
        machine.machine.power_off()
        machine.run(lambda storage: after(storage, model))


def test_fences_reach_a_full_disk_from_its_reserve() -> None:
    """BI-18, FX-51."""

    async def scene(storage: DbLedgerStorage) -> None:
        model = Model()
        for entry_id in range(10):
            model.add(storage, 1, entry_id)
        await model.flush(storage)
        machine.disk.faults.full = True
        for ledger_id in range(1, 300):
            model.fence(storage, ledger_id)
        await model.flush(storage)
        await model.check(storage)

    async def again(storage: DbLedgerStorage) -> None:
        assert all(storage.is_fenced(ledger_id) for ledger_id in range(1, 300))

    with StorageMachine(2) as machine:
        machine.run(scene, close=False)
        machine.machine.kill()
        machine.disk.faults.full = True
        machine.run(again)


def test_an_index_without_space_behind_a_synced_log_ends_nothing() -> None:
    """BI-12, FX-36."""
    model = Model()

    async def scene(storage: DbLedgerStorage) -> None:
        for entry_id in range(10):
            model.add(storage, 1, entry_id)
        await model.flush(storage)
        stores: list[Any] = [storage.directories[0]._locations._store, storage.directories[0]._ledger_store]
        for fenced, store in enumerate(stores, 10):
            sync = store._sync

            def no_space(store: Any = store) -> None:
                store._no_space = True
                raise OSError(errno.ENOSPC, "No space left on device")

            store._sync = no_space
            for entry_id in range(20):
                model.add(storage, 1, entry_id, 100 + entry_id)
            model.fence(storage, fenced)
            for _ in range(2):
                with pytest.raises(OSError, match="No space"):
                    await model.flush(storage)
                await model.check(storage)
            store._sync = sync
            await model.flush(storage)
            await model.check(storage)

    with StorageMachine(4, logSizeLimit=SMALL_LOGS) as machine:
        machine.run(scene, close=False)
        machine.machine.power_off()
        machine.run(lambda storage: after(storage, model))


def test_an_index_that_cannot_be_read_ends_flushing_for_good() -> None:
    """It is not taken for a full disk, which would be tried again for ever. BI-17, FX-35."""
    heard: list[BaseException] = []

    def unreadable(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def scene(storage: DbLedgerStorage) -> None:
        storage.set_failure_listener(heard.append)
        storage.set_master_key(1, KEY)
        storage.add_entry(1, 0, entry(1, 0))
        storage.directories[0]._locations.last = unreadable  # type: ignore[method-assign, assignment]
        for _ in range(2):
            with pytest.raises(FatalBookieError):
                await storage.flush()
        assert len(heard) == 1
        await storage.close()

    with StorageMachine(3) as machine:
        machine.run(scene)


def test_everything_is_closed_although_one_part_fails() -> None:
    async def scene(storage: DbLedgerStorage) -> None:
        storage.set_master_key(1, KEY)
        storage.add_entry(1, 0, entry(1, 0))
        locations = storage.directories[0]._locations
        close = locations.close

        def failing() -> None:
            close()
            raise OSError(errno.EIO, "Input/output error")

        locations.close = failing  # type: ignore[method-assign]
        with pytest.raises(OSError, match="Input/output"):
            await storage.close()
        assert not any(state.opened for state in machine.disk.stores.values())

    with StorageMachine(3) as machine:
        machine.run(scene, close=False)


def test_a_stop_on_a_full_disk_is_orderly_when_all_is_flushed() -> None:
    model = Model()

    async def scene(storage: DbLedgerStorage) -> bool:
        model.add(storage, 1, 0)
        await model.flush(storage)
        machine.disk.faults.full = True
        await storage.close()
        machine.disk.faults.full = False
        return True

    with StorageMachine(6) as machine:
        assert machine.run(scene)
        machine.run(lambda storage: after(storage, model))


@pytest.mark.parametrize("fault", ["fail_next_sync", "fail_next_write"])
def test_a_failed_write_or_sync_ends_flushing_for_good(fault: str) -> None:
    """BI-12, BI-17, FX-35."""
    model = Model()
    heard: list[BaseException] = []

    async def scene(storage: DbLedgerStorage) -> None:
        storage.set_failure_listener(heard.append)
        for entry_id in range(10):
            model.add(storage, 1, entry_id)
        await model.flush(storage)
        model.add(storage, 1, 10)
        assert heard == []
        setattr(machine.disk.faults, fault, True)
        for _ in range(3):
            with pytest.raises(FatalBookieError):
                await storage.flush()
        assert len(heard) == 1
        assert await storage.read_entry(1, 10) == entry(1, 10, 40)  # still in memory
        await storage.close()

    with StorageMachine(3) as machine:
        machine.run(scene)
        machine.machine.power_off()
        machine.run(lambda storage: after(storage, model))


def test_all_who_wait_for_room_hear_of_a_failure_each_by_an_error_of_its_own() -> None:
    """BI-17."""

    async def scene(storage: DbLedgerStorage) -> None:
        storage.set_failure_listener(lambda _: None)
        storage.set_master_key(1, KEY)
        big = entry(1, 0, 600_000)
        while storage.has_room(1, len(big), 1):
            storage.add_entry(1, 0, big)
            storage.add_entry(1, 1, big)
        machine.disk.faults.fail_next_write = True
        waiting = [asyncio.ensure_future(storage.wait_for_room(1, len(big), 1, 1000)) for _ in range(3)]
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in errors] == [FatalBookieError] * 3
        assert len({id(error) for error in errors}) == 3
        assert all(isinstance(error, FatalBookieError) and error.__cause__ is not None for error in errors)
        await storage.close()

    with StorageMachine(3, dbStorage_writeCacheMaxSizeMb=1) as machine:
        machine.run(scene)


def test_an_unreadable_log_is_an_error_not_absence() -> None:
    """BI-5, BI-16, FX-14, DF-8."""
    model = Model()

    async def scene(storage: DbLedgerStorage) -> None:
        model.add(storage, 1, 0)
        await model.flush(storage)
        machine.disk.faults.fail_reads_of = ".log"
        with pytest.raises(OSError, match="simulated read"):
            await storage.read_entry(1, 0)
        with pytest.raises(OSError, match="simulated read"):
            await storage.read_run(1, 0, 10, 1000)
        machine.disk.faults.fail_reads_of = None
        await model.check(storage)

    with StorageMachine(4) as machine:
        machine.run(scene)


# --- any sequence of operations ---

ledger_ids = st.integers(0, 3)
entry_ids = st.integers(0, 15)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ledger_ids, entry_ids),
        st.tuples(st.just("run"), ledger_ids, entry_ids),
        st.tuples(st.just("add"), ledger_ids, entry_ids),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("delete"), ledger_ids, st.just(0)),
        st.tuples(st.just("read"), ledger_ids, entry_ids),
        st.tuples(st.just("reads"), ledger_ids, entry_ids),
        st.tuples(st.just("last"), ledger_ids, st.just(0)),
        st.tuples(st.just("list"), ledger_ids, st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
        st.tuples(st.just("background flush"), st.just(0), st.just(0)),
    ),
    max_size=50,
)


class Mirror:
    """A dictionary that does what the storage should."""

    def __init__(self) -> None:
        self.ledgers: dict[int, dict[int, bytes]] = {}
        self.count = 0

    def data(self, ledger_id: int, entry_id: int) -> bytes:
        self.count += 1
        return entry(ledger_id, entry_id, 30 + self.count % 50, self.count)

    def put(self, ledger_id: int, entry_id: int, data: bytes) -> None:
        self.ledgers.setdefault(ledger_id, {})[entry_id] = data

    async def apply(self, storage: DbLedgerStorage, what: str, ledger_id: int, entry_id: int) -> None:
        held = self.ledgers.get(ledger_id)
        if what == "add":
            storage.set_master_key(ledger_id, KEY)
            data = self.data(ledger_id, entry_id)
            storage.add_entry(ledger_id, entry_id, data)
            self.put(ledger_id, entry_id, data)
        elif what == "run":
            storage.set_master_key(ledger_id, KEY)
            ids = list(range(entry_id, entry_id + 4))
            entries = [self.data(ledger_id, i) for i in ids]
            storage.add_entries(ledger_id, ids, entries)
            for i, data in zip(ids, entries, strict=True):
                self.put(ledger_id, i, data)
        elif what == "flush":
            await storage.flush()
        elif what == "delete":
            storage.delete_ledger(ledger_id)
            self.ledgers.pop(ledger_id, None)
        elif what == "read":
            await self.read(storage, held, ledger_id, entry_id)
        elif what == "reads":
            await self.read_run(storage, held, ledger_id, entry_id)
        elif what == "last":
            await self.last(storage, held, ledger_id)
        elif what == "list" and held is not None:
            assert list(await storage.list_entries(ledger_id)) == sorted(held)
        assert storage.ledgers() == sorted(self.ledgers)

    async def read(
        self, storage: DbLedgerStorage, held: dict[int, bytes] | None, ledger_id: int, entry_id: int
    ) -> None:
        if held is None or entry_id not in held:
            with pytest.raises(NoLedgerError if held is None else NoEntryError):
                await storage.read_entry(ledger_id, entry_id)
            assert not await storage.entry_exists(ledger_id, entry_id)
        else:
            assert await storage.read_entry(ledger_id, entry_id) == held[entry_id]
            assert await storage.entry_exists(ledger_id, entry_id)

    async def read_run(
        self, storage: DbLedgerStorage, held: dict[int, bytes] | None, ledger_id: int, first: int
    ) -> None:
        if held is None or first not in held:
            with pytest.raises(NoLedgerError if held is None else NoEntryError):
                await storage.read_run(ledger_id, first, 10, 400)
            return
        raw = await storage.read_run(ledger_id, first, 10, 400)
        entry_id = first
        while raw:
            size = int.from_bytes(raw[:4], "big")
            assert raw[4 : 4 + size] == held[entry_id]
            raw = raw[4 + size :]
            entry_id += 1
        assert first < entry_id <= first + 10

    async def last(self, storage: DbLedgerStorage, held: dict[int, bytes] | None, ledger_id: int) -> None:
        if not held:
            with pytest.raises(NoLedgerError):
                await storage.last_entry(ledger_id)
        else:
            assert await storage.last_entry(ledger_id) == held[max(held)]


@settings(max_examples=200)
@given(operations, st.integers(0, 2**32), st.integers(1, 2))
def test_the_storage_is_a_dictionary(plan: list[tuple[str, int, int]], seed: int, directories: int) -> None:
    mirror = Mirror()
    rest = iter([*plan, ("restart", 0, 0)])

    async def until_restart(storage: DbLedgerStorage) -> bool:
        flushes = []
        going_on = False
        for what, ledger_id, entry_id in rest:
            if what == "restart":
                going_on = True
                break
            if what == "background flush":
                flushes.append(machine.world.loop.create_task(storage.flush()))
            else:
                await mirror.apply(storage, what, ledger_id, entry_id)
        for task in flushes:
            await task
        return going_on

    with StorageMachine(seed, directories, logSizeLimit=SMALL_LOGS) as machine:
        while machine.run(until_restart):
            pass

        async def everything(storage: DbLedgerStorage) -> None:
            for ledger_id in range(4):
                for entry_id in range(20):
                    await mirror.read(storage, mirror.ledgers.get(ledger_id), ledger_id, entry_id)

        machine.run(everything)
