"""What a bookie still knows after it was killed: its directories are copied while it runs, and booted again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from bookkeeper.bookie import shutdown
from bookkeeper.bookie.bookie import Bookie, ExitCode
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata import open_driver
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2
from bookkeeper.protocol.messages import Status
from bookkeeper.runtime import DiskUsage, File
from bookkeeper.runtime.disk.files import RealFile, RealFiles
from bookkeeper.runtime.real import RealRuntime
from tests.support.bookie import (
    DIGEST,
    KEY,
    METADATA_URI,
    CrashImage,
    GatedRuntime,
    RawClient,
    add,
    bookie_config,
    bytes_of,
    entry,
    fence,
    init_cluster,
    read,
    running_bookie,
)
from tests.support.waiting import until

OTHER_KEY = b"x" * 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The bookie's directory; crash images are made beside it."""
    path = tmp_path / "bookie"
    path.mkdir()
    return path


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_acknowledged_entries_keys_fences_and_lacs_outlast_a_kill(home: Path, checkpointed: bool) -> None:
    """PI-10, BI-1, BI-2, BI-3, BI-23, FX-43, FX-44, gap G2."""
    runtime = RealRuntime()
    async with running_bookie(home, runtime, flushInterval=3_600_000) as bookie, RawClient.to(bookie) as client:
        for i in range(100):
            client.send(v2.encode_add_request(KEY, entry(1, i)))
        for _ in range(100):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        assert (await client.v2(fence(2))).status == Status.ENOENTRY, "a fence alone creates the ledger"
        body = DIGEST.package_lac(3, 12)
        assert (await client.v3(m.WriteLacRequest(3, 12, KEY, body))).status == Status.EOK
        if checkpointed:
            await bookie.storage.flush()
        image = CrashImage(home)
    image.restore()
    async with running_bookie(home, runtime) as bookie, RawClient.to(bookie) as client:
        for i in range(100):
            assert (await client.v2(read(1, i))).entry == entry(1, i)
        assert (await client.v2(read(1, 100))).status == Status.ENOENTRY
        assert (await client.v2(add(1, 100, master_key=OTHER_KEY))).status == Status.EUA
        assert (await client.v2(add(1, 100))).status == Status.EOK
        assert (await client.v2(add(2, 0))).status == Status.EFENCED
        assert (await client.v2(fence(2, key=OTHER_KEY))).status == Status.EUA
        assert (await client.v3(m.ReadLacRequest(3))).lac_body == body
        assert (await client.v2(add(3, 0, master_key=OTHER_KEY))).status == Status.EUA
        assert (await client.v3(read(1, 5))).max_lac == 99


async def test_a_second_kill_after_replay_loses_nothing(home: Path) -> None:
    """R11, BI-8."""
    runtime = RealRuntime()
    for round_ in range(3):
        async with running_bookie(home, runtime, flushInterval=3_600_000) as bookie, RawClient.to(bookie) as client:
            for i in range(round_ * 10):
                assert (await client.v2(read(1, i))).entry == entry(1, i)
            for i in range(round_ * 10, round_ * 10 + 10):
                assert (await client.v2(add(1, i))).status == Status.EOK
            image = CrashImage(home)
        image.restore()


async def test_the_dirty_marker_stays_after_a_kill_and_goes_with_an_orderly_stop(home: Path) -> None:
    runtime = RealRuntime()
    marker = home / "ledgers" / "current" / "DIRTY"
    async with running_bookie(home, runtime):
        assert marker.exists()
        assert marker.read_bytes() == b""
        image = CrashImage(home)
    assert not marker.exists()
    image.restore()
    assert marker.exists()
    async with running_bookie(home, runtime):
        pass
    assert not marker.exists()


async def test_an_orderly_stop_leaves_nothing_to_replay(home: Path) -> None:
    """BI-21."""
    runtime = RealRuntime()
    async with running_bookie(home, runtime) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
    for journal in (home / "journal" / "current").glob("*.txn"):
        mark = (home / "ledgers" / "current" / "lastMark").read_bytes()
        assert int.from_bytes(mark[:8], "big") == int(journal.stem, 16)
    async with running_bookie(home, runtime) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(read(1, 0))).entry == entry(1, 0)


async def test_a_failed_sync_ends_the_bookie_without_an_answer(home: Path) -> None:
    """BI-17, FX-35."""
    runtime = GatedRuntime()
    async with running_bookie(home, runtime) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(add(1, 0))).status == Status.EOK
        runtime.sync_error = OSError(5, "Input/output error")
        client.send(v2.encode_request(add(1, 1)))
        assert await client.closed()
        assert await bookie.wait_stopped() == ExitCode.BOOKIE_EXCEPTION
        with pytest.raises(OSError, match=r".*"):
            await RawClient.to(bookie).__aenter__()
    assert (home / "ledgers" / "current" / "DIRTY").exists()
    runtime.sync_error = None
    async with running_bookie(home, runtime) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(read(1, 0))).entry == entry(1, 0)


async def test_damage_in_a_synced_journal_stops_the_start(home: Path) -> None:
    """JH-15, BI-9, BI-22."""
    runtime = RealRuntime()
    async with running_bookie(home, runtime, flushInterval=3_600_000) as bookie, RawClient.to(bookie) as client:
        for i in range(3):
            await client.v2(add(1, i, bytes(3000)))
        image = CrashImage(home)
    image.restore()
    (journal,) = (home / "journal" / "current").glob("*.txn")
    data = bytearray(journal.read_bytes())
    data[600] ^= 0xFF
    journal.write_bytes(bytes(data))
    with pytest.raises(BookKeeperError) as failure:
        async with running_bookie(home, runtime):
            pass
    assert journal.name in str(failure.value)


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_ledger_that_was_deleted_and_created_anew_is_the_new_one_after_a_kill(
    home: Path, flushed: bool
) -> None:
    runtime = RealRuntime()
    async with running_bookie(home, runtime, flushInterval=3_600_000) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(fence(7))).status == Status.ENOENTRY
        assert (await client.v2(add(7, 0, flags=2))).status == Status.EOK
        bookie.storage.delete_ledger(7)
        bookie.service.adds.ledgers._deleted.clear()  # as after its time
        assert (await client.v2(add(7, 1, master_key=OTHER_KEY))).status == Status.EOK
        if flushed:
            await bookie.storage.flush()
        image = CrashImage(home)
    image.restore()
    for _ in range(2):
        async with running_bookie(home, runtime) as bookie, RawClient.to(bookie) as client:
            assert (await client.v2(read(7, 1))).entry == entry(7, 1)
            assert (await client.v2(read(7, 0))).status == Status.ENOENTRY
            assert (await client.v2(add(7, 2))).status == Status.EUA
            assert (await client.v2(add(7, 2, master_key=OTHER_KEY))).status == Status.EOK


async def test_old_journals_are_deleted_before_the_next_one_is_made(home: Path) -> None:
    """A full disk may have room only then: this one holds six journals. FX-52."""

    class SmallFiles(RealFiles):
        def open(self, path: str, mode: str = "r") -> File:
            if mode == "x+" and len(list((home / "journal" / "current").glob("*.txn"))) >= 6:
                raise OSError(28, "No space left on device", path)
            return super().open(path, mode)

    runtime = RealRuntime()
    runtime.files = SmallFiles()
    for _ in range(6):
        async with running_bookie(home, runtime, journalMaxBackups=100):
            pass
    with pytest.raises(OSError, match=r"lower journalMaxBackups \(100 now\)"):
        async with running_bookie(home, runtime, journalMaxBackups=100):
            pass
    async with running_bookie(home, runtime, journalMaxBackups=1):
        pass


async def test_a_stray_file_among_the_journals_ends_neither_the_bookie_nor_its_start(home: Path) -> None:
    """SEC-37."""
    runtime = RealRuntime()
    async with running_bookie(home, runtime, flushInterval=10) as bookie:
        (home / "journal" / "current" / "backup-1.txn").write_bytes(b"")
        async with RawClient.to(bookie) as client:
            before = bookie.journals.of(1).mark()
            await client.v2(add(1, 0))
            await until(lambda: bookie.journals.of(1).retention.persisted > before)
        assert not bookie.ending
    async with running_bookie(home, runtime):
        pass


async def test_a_journal_that_fills_its_disk_makes_the_bookie_read_only_before_it_is_full(home: Path) -> None:
    """And writable again as soon as a checkpoint let old journals go. The disk is looked at as the journal grows.
    BI-18, FX-60, LV-6."""

    class SmallDisk(RealFiles):
        def disk_usage(self, path: str) -> DiskUsage:
            used = bytes_of((home / "journal" / "current").glob("*.txn"))
            room = (20 << 20) if "journal" in path else (1 << 40)
            return DiskUsage(room, max(0, room - used) if "journal" in path else room, len(path))

    runtime = RealRuntime()
    runtime.files = SmallDisk()
    settings = {"journalMaxSizeMB": 2, "journalMaxBackups": 0, "flushInterval": 3_600_000, "diskCheckInterval": 50}
    async with running_bookie(home, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        statuses = [(await client.v2(add(1, i, bytes(500_000)))).status for i in range(100)]
        assert Status.EREADONLY in statuses
        assert set(statuses) == {Status.EOK, Status.EREADONLY}
        await until(lambda: not bookie.state.read_only)
    assert await bookie.wait_stopped() is ExitCode.OK


class _HungFile(RealFile):
    """An entry log on a disk that answers no sync until it is let go."""

    def __init__(self, path: str, mode: str, runtime: HungRuntime) -> None:
        super().__init__(path, mode)
        self._runtime = runtime

    def fdatasync(self) -> None:
        if self.path.endswith(".txn") and self._runtime.sync_error is not None:
            raise self._runtime.sync_error
        if self.path.endswith(".log") and self._runtime.stuck:
            self._runtime.hung.set()
            assert self._runtime.let_go.wait(60)
        super().fdatasync()


class _HungFiles(RealFiles):
    def __init__(self, runtime: HungRuntime) -> None:
        self._runtime = runtime

    def open(self, path: str, mode: str = "r") -> File:
        return _HungFile(path, mode, self._runtime)


class HungRuntime(RealRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.files = _HungFiles(self)
        self.stuck = False
        self.hung = threading.Event()
        self.let_go = threading.Event()
        self.sync_error: OSError | None = None


async def test_a_failed_bookie_ends_within_a_bound_though_a_disk_call_hangs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BI-17, DF-10."""
    monkeypatch.setattr(shutdown, "FAILURE_SECONDS", 0.2)
    runtime = HungRuntime()
    await init_cluster(runtime)
    bookie = Bookie(runtime, bookie_config(home, flushInterval=10))
    await bookie.start()
    async with RawClient.to(bookie) as client:
        runtime.stuck = True
        assert (await client.v2(add(1, 0))).status == Status.EOK
        assert await asyncio.to_thread(runtime.hung.wait, 20)
        runtime.sync_error = OSError(5, "Input/output error")
        client.send(v2.encode_request(add(1, 1)))
        assert await bookie.wait_stopped() is ExitCode.BOOKIE_EXCEPTION
    assert bookie.hangs
    driver = open_driver(METADATA_URI, runtime)
    await driver.open()
    assert not await driver.registration.is_registered(bookie.bookie_id), "nobody is sent to it any more"
    await driver.close()
    runtime.let_go.set()


async def test_an_orderly_stop_ends_within_a_bound_though_a_disk_call_hangs(home: Path) -> None:
    """DF-10."""
    runtime = HungRuntime()
    await init_cluster(runtime)
    bookie = Bookie(runtime, bookie_config(home, flushInterval=3_600_000, shutdownTimeoutMs=200))
    await bookie.start()
    async with RawClient.to(bookie) as client:
        assert (await client.v2(add(1, 0))).status == Status.EOK
    runtime.stuck = True
    await bookie.stop()
    assert await bookie.wait_stopped() is ExitCode.SERVER_EXCEPTION
    assert bookie.hangs
    runtime.let_go.set()
    assert (home / "ledgers" / "current" / "DIRTY").exists()
