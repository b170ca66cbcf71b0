"""The SQLite store's own properties (spec metadata §12.6, §13: 83)."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bookkeeper.errors import (
    ConfigurationError,
    CorruptMetadata,
    LayoutMismatch,
    NotInitialized,
    RecordTooLarge,
    ServiceUnavailable,
    SessionLost,
)
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, LedgerLayout, Mode
from bookkeeper.metadata.records.store import Topic, Transaction
from bookkeeper.metadata.sqlite import TOGETHER, SqliteDriver, SqliteStore
from bookkeeper.metadata.sqlite_file import LARGEST_RECORD, Call, SqliteFile
from bookkeeper.metadata.uri import parse_service_uri
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, LedgerState
from tests.support.metadata_stores import ledger
from tests.support.waiting import until

T = TypeVar("T")

A = BookieId("127.0.0.1:1")
INFO = BookieServiceInfo((Endpoint("bookie", "127.0.0.1", 1),))
FOREVER_MS = 600_000
"""A session timeout no test outlives: what ends earlier ended for another reason."""


class Drivers:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: list[SqliteDriver] = []

    def new(self, *, root: str = "ledgers", timeout_ms: int = FOREVER_MS, retry_ms: int = 2000) -> SqliteDriver:
        uri = parse_service_uri(f"sqlite://{self.path}?root={root}")
        driver = SqliteDriver(uri, RealRuntime(), session_timeout_ms=timeout_ms, retry_ms=retry_ms, poll_interval_ms=10)
        self._opened.append(driver)
        return driver

    async def open(self, **options: object) -> SqliteDriver:
        driver = self.new(**options)  # type: ignore[arg-type]
        await driver.open(create=True)
        return driver

    async def close(self) -> None:
        for driver in self._opened:
            await driver.close()


@pytest.fixture
async def drivers(tmp_path: Path) -> AsyncIterator[Drivers]:
    found = Drivers(tmp_path / "metadata.db")
    yield found
    await found.close()


HOLDER = f"""
import asyncio, sys
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, Mode
from bookkeeper.runtime.real import RealRuntime

async def main():
    driver = open_driver(sys.argv[1], RealRuntime(), {{"zkTimeout": {FOREVER_MS}}})
    await driver.open()
    await driver.registration.register("{A}", Mode.WRITABLE, BookieServiceInfo((Endpoint("b", "h", 1),)))
    await driver.underreplication.mark(5, ["x:1"])
    await driver.underreplication.get()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_what_a_killed_process_held_is_free_at_once(drivers: Drivers) -> None:
    q = await drivers.open()
    await q.admin.init_new_cluster()
    async with aclosing(q.discovery.watch(Mode.WRITABLE)) as watch:
        assert (await anext(watch)).value == frozenset()
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, f"sqlite://{drivers.path}"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == "ready\n"
            assert (await anext(watch)).value == {A}
            assert await q.underreplication.poll() is None
            holder.kill()
            async with asyncio.timeout(30):
                assert (await anext(watch)).value == frozenset()
                assert (await q.underreplication.get()).ledger_id == 5
        finally:
            holder.kill()
            holder.communicate()
    assert len(list(drivers.path.parent.glob("*.s*"))) == 1  # that of q


async def test_a_reboot_ends_all_sessions(drivers: Drivers) -> None:
    p = await drivers.open()
    await p.registration.register(A, Mode.WRITABLE, INFO)
    after = SqliteStore(str(drivers.path), "ledgers", RealRuntime(), boot_id="another")
    after.on_changes = lambda _: None
    await after.open()
    try:
        assert await after.run("look", lambda tx: tx.keys(Topic.AVAILABLE), write=False) == []
    finally:
        await after.close()


async def test_a_closed_driver_leaves_no_file_but_the_database(drivers: Drivers) -> None:
    p, q = await drivers.open(), await drivers.open()
    await p.registration.register(A, Mode.WRITABLE, INFO)
    assert len(list(drivers.path.parent.glob("*.s*"))) == 2
    await p.close()
    await q.close()
    assert list(drivers.path.parent.iterdir()) == [drivers.path]


async def test_watches_survive_a_pruned_change_log(drivers: Drivers) -> None:
    p, q = await drivers.open(), await drivers.open()
    created = await p.ledgers.create(1, ledger(1))
    async with aclosing(q.ledgers.watch(1)) as watch:
        await anext(watch)
        with sqlite3.connect(drivers.path, isolation_level=None) as other:
            # As another process would, and the log pruned before anybody looked.
            other.execute("BEGIN IMMEDIATE")
            other.execute("INSERT INTO changes (root, topic, key, at_ms) VALUES ('ledgers', 'ledgers', 'x', 0)")
            other.execute("UPDATE records SET version = version + 100 WHERE topic = 'ledgers'")
            other.execute("DELETE FROM changes")
            other.execute("COMMIT")
        other.close()
        async with asyncio.timeout(30):
            seen = await anext(watch)
    assert seen is not None
    assert seen.version == created.version + 100


async def test_old_changes_are_pruned(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.metadata.sqlite_file.KEEP_CHANGES", 10)
    monkeypatch.setattr("bookkeeper.metadata.sqlite_file.KEEP_CHANGES_MS", -1)
    monkeypatch.setattr("bookkeeper.metadata.sqlite_file.PRUNE_EVERY", 20)
    p = await drivers.open()
    for ledger_id in range(50):
        await p.ledgers.create(ledger_id, ledger(ledger_id))
    with sqlite3.connect(drivers.path) as other:
        assert other.execute("SELECT count(*) FROM changes").fetchone()[0] <= 30
    other.close()


async def test_clusters_in_one_file_do_not_see_each_other(drivers: Drivers) -> None:
    p, q = await drivers.open(root="one"), await drivers.open(root="two")
    assert await p.admin.init_new_cluster()
    assert not await q.admin.exists()
    await p.ledgers.create(1, ledger(1))
    await p.registration.register(A, Mode.WRITABLE, INFO)
    assert [found async for found in q.ledgers.ranges()] == []
    for listing in q.discovery.list(Mode.WRITABLE), q.discovery.list_all():
        with pytest.raises(NotInitialized, match="initnewcluster"):
            await listing
    assert await q.admin.nuke()
    assert await p.admin.exists()


async def test_many_can_open_a_new_file_together(drivers: Drivers) -> None:
    opened = await asyncio.gather(*(drivers.open() for _ in range(6)))
    assert sorted(await asyncio.gather(*(driver.admin.init_new_cluster() for driver in opened))) == [False] * 5 + [True]


async def test_data_outlives_the_drivers(drivers: Drivers) -> None:
    """MI-3."""
    p = await drivers.open()
    created = await p.ledgers.create(1, ledger(1))
    ids = [await p.ids.allocate() for _ in range(3)]
    await p.close()
    q = await drivers.open()
    assert (await q.ledgers.read(1)).version == created.version
    assert await q.ids.allocate() == ids[-1] + 1


async def test_a_version_is_not_used_again_when_a_ledger_is_created_again(drivers: Drivers) -> None:
    """JH-9, MI-1."""
    p = await drivers.open()
    first = await p.ledgers.create(1, ledger(1))
    await p.ledgers.remove(1)
    assert (await p.ledgers.create(1, ledger(1))).version > first.version


async def test_a_missing_directory_is_a_configuration_error(tmp_path: Path) -> None:
    driver = Drivers(tmp_path / "missing" / "m.db").new()
    with pytest.raises(ConfigurationError, match="no directory"):
        await driver.open()
    await driver.close()


async def test_a_file_of_another_layout_is_refused(drivers: Drivers) -> None:
    await (await drivers.open()).close()
    with sqlite3.connect(drivers.path) as other:
        other.execute("PRAGMA user_version=2")
    other.close()
    with pytest.raises(ConfigurationError, match="layout 2"):
        await drivers.open()


async def test_a_cluster_of_another_layout_is_refused(drivers: Drivers) -> None:
    p = await drivers.open()
    await p.layout.create(LedgerLayout("sqlite", 2))
    with pytest.raises(LayoutMismatch):
        await drivers.open()


async def test_a_file_that_is_no_database_is_reported(drivers: Drivers) -> None:
    drivers.path.write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptMetadata):
        await drivers.open()


def file(path: Path, *, clock_ms: Callable[[], int] = lambda: 0) -> SqliteFile:
    return SqliteFile(str(path), "ledgers", boot_id="b", clock_ms=clock_ms, wall_ms=lambda: 0)


def run(file: SqliteFile, transaction: Callable[[Transaction], T], *, write: bool) -> T:
    """One transaction alone."""
    call = Call(transaction)
    file.run([call], write=write)
    return call.outcome()


def test_a_file_in_use_for_too_long_did_not_take_the_change(tmp_path: Path) -> None:
    mine = file(tmp_path / "m.db")
    mine.open(busy_timeout_ms=10, create=True)
    with sqlite3.connect(tmp_path / "m.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ServiceUnavailable) as raised:
            run(mine, lambda tx: tx.put(Topic.CLUSTER, "k", b""), write=True)
        assert not raised.value.maybe_applied
        run(mine, lambda tx: tx.get(Topic.CLUSTER, "k"), write=False)
        other.execute("ROLLBACK")
    other.close()
    run(mine, lambda tx: tx.put(Topic.CLUSTER, "k", b""), write=True)
    mine.close()


def test_a_transaction_that_raises_changes_nothing(tmp_path: Path) -> None:
    mine = file(tmp_path / "m.db")
    mine.open(busy_timeout_ms=10, create=True)
    version = run(mine, lambda tx: tx.put(Topic.CLUSTER, "k", b"old"), write=True)

    def fail(tx: Transaction) -> None:
        tx.put(Topic.CLUSTER, "k", b"new")
        tx.put(Topic.CLUSTER, "other", b"new")
        raise SessionLost("no")

    with pytest.raises(SessionLost):
        run(mine, fail, write=True)
    record = run(mine, lambda tx: tx.get(Topic.CLUSTER, "k"), write=False)
    assert record is not None
    assert (record.data, record.version) == (b"old", version)
    assert run(mine, lambda tx: tx.keys(Topic.CLUSTER), write=False) == ["k"]
    assert run(mine, lambda tx: tx.revision(Topic.CLUSTER), write=False) == version
    mine.close()


def test_of_transactions_that_run_together_one_that_raises_leaves_nothing(tmp_path: Path) -> None:
    mine = file(tmp_path / "m.db")
    mine.open(busy_timeout_ms=10, create=True)

    def put(key: str, error: Exception | None = None) -> Call[int]:
        def transaction(tx: Transaction) -> int:
            assert tx.get(Topic.CLUSTER, key) is None
            version = tx.put(Topic.CLUSTER, key, b"")
            if error is not None:
                raise error
            return version

        return Call(transaction)

    def too_large(tx: Transaction) -> int:
        return tx.put(Topic.CLUSTER, "large", bytes(LARGEST_RECORD + 1))

    calls = [put("a"), put("b", SessionLost("no")), Call(too_large), put("c"), put("a")]
    mine.run(calls, write=True)
    assert [type(call.error) for call in calls] == [type(None), SessionLost, RecordTooLarge, type(None), AssertionError]
    assert calls[0].outcome() < calls[3].outcome()
    assert mine.take_changes() == [(Topic.CLUSTER, "a"), (Topic.CLUSTER, "c")]
    mine.close()
    after = file(tmp_path / "m.db")
    after.open(busy_timeout_ms=10, create=False)
    assert run(after, lambda tx: tx.keys(Topic.CLUSTER), write=False) == ["a", "c"]
    after.close()


def test_transactions_that_cannot_be_committed_have_each_an_error_of_its_own(tmp_path: Path) -> None:
    mine = file(tmp_path / "m.db")
    mine.open(busy_timeout_ms=10, create=True)
    with sqlite3.connect(tmp_path / "m.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        calls = [Call(lambda tx: tx.put(Topic.CLUSTER, "k", b"")) for _ in range(3)]
        mine.run(calls, write=True)
        assert len({id(call.error) for call in calls}) == 3
        for call in calls:
            with pytest.raises(ServiceUnavailable):
                call.outcome()
        other.execute("ROLLBACK")
    other.close()
    assert run(mine, lambda tx: tx.keys(Topic.CLUSTER), write=False) == []
    mine.close()


async def test_what_is_asked_for_while_the_thread_is_busy_shares_a_commit(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await drivers.open()
    original = SqliteFile.run
    entered, go_on = threading.Event(), threading.Event()
    together: list[int] = []

    def counted(self: SqliteFile, calls: Sequence[Call[Any]], *, write: bool) -> None:
        if write:
            together.append(len(calls))
            entered.set()
            assert go_on.wait(30)
        original(self, calls, write=write)

    monkeypatch.setattr(SqliteFile, "run", counted)
    first = asyncio.create_task(driver.ledgers.create(0, ledger(0)))
    await until(entered.is_set)
    others = [asyncio.create_task(driver.ledgers.create(1 + i, ledger(1 + i))) for i in range(TOGETHER + 10)]
    await asyncio.sleep(0)  # handed to the thread
    go_on.set()
    created = await asyncio.gather(first, *others)
    assert together == [1, TOGETHER, 10]
    versions = [each.version for each in created]
    assert versions == sorted(set(versions))
    assert (await driver.ledgers.read(5)).version == versions[5]


def test_a_session_ends_at_its_deadline_though_its_process_lives(tmp_path: Path) -> None:
    now = 0
    mine, other = (file(tmp_path / "m.db", clock_ms=lambda: now) for _ in range(2))
    mine.open(busy_timeout_ms=10, create=True)
    other.open(busy_timeout_ms=10, create=True)
    session = mine.start_session(1000)
    run(mine, lambda tx: tx.put(Topic.LOCKS, "k", b"", session=session), write=True)
    now = 900
    assert mine.renew_session(session, 1000)
    now = 1900
    assert run(other, lambda tx: tx.keys(Topic.LOCKS), write=False) == ["k"]
    assert other.take_changes() == []
    now = 1901
    assert run(other, lambda tx: tx.keys(Topic.LOCKS), write=False) == []
    assert other.take_changes() == [(Topic.LOCKS, "k")]
    with pytest.raises(SessionLost):
        run(mine, lambda tx: tx.put(Topic.LOCKS, "k", b"", session=session), write=True)
    assert not mine.renew_session(session, 1000)
    mine.close()
    other.close()


async def test_a_change_whose_caller_was_cancelled_is_told_to_watches(drivers: Drivers) -> None:
    p = await drivers.open()
    created = await p.ledgers.create(1, ledger(1))
    async with aclosing(p.ledgers.watch(1)) as watch:
        await anext(watch)
        writing = asyncio.create_task(p.ledgers.write(1, created.value.in_recovery(), created.version))
        await asyncio.sleep(0)  # handed to the thread
        writing.cancel()
        async with asyncio.timeout(30):
            seen = await anext(watch)
    assert seen is not None
    assert seen.value.state is LedgerState.IN_RECOVERY


async def test_an_address_that_leads_nowhere_makes_no_store(drivers: Drivers) -> None:
    driver = drivers.new()
    with pytest.raises(NotInitialized, match="initnewcluster"):
        await driver.open()
    assert list(drivers.path.parent.iterdir()) == []


async def test_a_record_larger_than_the_store_takes_is_refused(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-49."""
    monkeypatch.setattr("bookkeeper.metadata.sqlite_file.LARGEST_RECORD", 100_000)
    p = await drivers.open()
    with pytest.raises(RecordTooLarge, match="100000"):
        await p.ledgers.create(1, replace(ledger(1), custom_metadata={"key": bytes(100_000)}))
    await p.ledgers.create(1, ledger(1))


class Sessions:
    """Sessions of many processes in one file; each process is one `SqliteFile`."""

    def __init__(self, path: Path, count: int) -> None:
        self.now_ms = 1_000_000
        self.files = [
            SqliteFile(str(path), "ledgers", boot_id="b", clock_ms=lambda: self.now_ms, wall_ms=lambda: self.now_ms)
            for _ in range(count)
        ]
        self.ids = []
        for file in self.files:
            file.open(5000, create=True)
            self.ids.append(file.start_session(FOREVER_MS))

    def kill(self, number: int) -> None:
        """The process ends without a word: its locks are freed, its session stays."""
        self.files[number].close()

    def left(self) -> list[int]:
        with sqlite3.connect(self.files[0].path) as db:
            found = [number for (number,) in db.execute("SELECT id FROM sessions ORDER BY id")]
        db.close()
        return found

    def close(self) -> None:
        for file in self.files:
            file.close()


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    found = Sessions(tmp_path / "metadata.db", 30)
    for file in found.files:
        file.poll()  # each has looked at all others now
    yield found
    found.close()


def test_idle_clients_look_at_one_lock_each(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("bookkeeper.metadata.sqlite_file._is_unlocked", lambda path: bool(looked.append(path)))
    for file in sessions.files:
        file.poll()
    assert len(looked) == len(set(looked)) == 30


def test_a_killed_process_is_noticed_by_its_neighbour_at_once(sessions: Sessions) -> None:
    for number in 7, 8, 29:
        sessions.kill(number)
    survivors = [number for number in range(30) if number not in (7, 8, 29)]
    for file in [sessions.files[number] for number in survivors] * 2:
        file.poll()
    assert sessions.left() == [sessions.ids[number] for number in survivors]


def test_killed_processes_are_noticed_although_their_neighbour_looks_no_more(sessions: Sessions) -> None:
    sessions.kill(7)
    sessions.files[20].poll()
    assert sessions.ids[7] in sessions.left()  # 6 is the neighbour, and stands still
    sessions.now_ms += 2_000
    sessions.files[20].poll()
    assert sessions.ids[7] not in sessions.left()


async def test_a_damaged_file_is_told_once_and_does_not_keep_a_driver_from_closing(
    drivers: Drivers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def damaged(file: SqliteFile, *args: object) -> None:
        looks.append(args)
        raise CorruptMetadata(f"metadata file {file.path} is damaged")

    driver = await drivers.open(retry_ms=0)
    monkeypatch.setattr(SqliteFile, "poll", damaged)
    monkeypatch.setattr(SqliteFile, "end_session", damaged)
    await until(lambda: len(looks) > 4)
    await driver.close()
    await driver.close()
    assert caplog.text.count("not seen for now") == 1
    assert "the session is left to its timeout" in caplog.text
    assert not [thread for thread in threading.enumerate() if "metadata-sqlite" in thread.name]
