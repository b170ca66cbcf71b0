"""When a bookie starts, when it refuses, and what it says then."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.bookie import Bookie, ExitCode
from bookkeeper.bookie.checkpoint import Checkpointer
from bookkeeper.bookie.node import dirty
from bookkeeper.errors import ConfigurationError, FatalBookieError, InvalidCookieError, NotInitialized
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import Mode
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.metadata.records.bookies import Registration
from bookkeeper.peers import open_peers
from bookkeeper.protocol.messages import Status
from bookkeeper.runtime import DiskUsage
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.support.bookie import (
    METADATA_URI,
    PASSWORD,
    GatedRuntime,
    RawClient,
    add,
    bookie_config,
    init_cluster,
    read,
    running_bookie,
)
from tests.support.waiting import until

NAME = BookieId("bookie-under-test")


async def registered(runtime: RealRuntime) -> tuple[bool, bool]:
    """Whether the bookie is in the list of writable ones, and in that of read-only ones."""
    driver = open_driver(METADATA_URI, runtime)
    await driver.open()
    try:
        lists = [(await driver.discovery.list(mode)).value for mode in (Mode.WRITABLE, Mode.READ_ONLY)]
        return NAME in lists[0], NAME in lists[1]
    finally:
        await driver.close()


async def refuses(
    directory: Path, error: type[BaseException], text: str, code: ExitCode, runtime: RealRuntime, **settings: Any
) -> None:
    """The start fails with this error and exit code, and the same bookie object is ended."""
    bookie = Bookie(runtime, bookie_config(directory, **settings), open_peers=open_peers)
    with pytest.raises(error) as failure:
        await bookie.start()
    assert text in str(failure.value)
    assert bookie.exit_code_of(failure.value) is code
    assert await bookie.wait_stopped() is code


async def test_a_bookie_is_registered_while_it_runs(tmp_path: Path) -> None:
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime) as bookie:
        assert await registered(runtime) == (True, False)
        info = await bookie.metadata.discovery.info(NAME)
        endpoint = info.bookie_rpc()
        assert endpoint is not None
        assert (endpoint.host, endpoint.port) == ("127.0.0.1", bookie.port)
    assert await registered(runtime) == (False, False)
    assert await bookie.wait_stopped() is ExitCode.OK


async def test_a_bookie_serves_before_anybody_is_sent_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gap G20."""
    runtime = RealRuntime()
    await init_cluster(runtime)
    bookie = Bookie(runtime, bookie_config(tmp_path))
    register = Registration.register
    answered: list[Status] = []

    async def serves_already(self: Registration, *arguments: Any) -> None:
        async with RawClient.to(bookie) as client:
            answered.append((await client.v2(read(1, 0))).status)
        await register(self, *arguments)

    monkeypatch.setattr(Registration, "register", serves_already)
    await bookie.start()
    await bookie.stop()
    assert answered == [Status.ENOLEDGER]


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.BOOKIE_EXCEPTION])
async def test_a_start_is_given_up_when_there_is_a_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ExitCode
) -> None:
    """It is stopped, or something fails, while the journals are replayed: no client is sent to it then."""
    runtime = RealRuntime()
    await init_cluster(runtime)
    bookie = Bookie(runtime, bookie_config(tmp_path))
    flush = Checkpointer.flush

    async def end(self: Checkpointer, *, compact: bool = False) -> None:
        if code is ExitCode.OK:
            stopping.append(asyncio.create_task(bookie.stop()))
            await asyncio.sleep(0)
        else:
            context = {"message": "", "exception": RuntimeError("boom"), "handle": None}
            bookie.on_loop_error(asyncio.get_running_loop(), context)
        await flush(self, compact=compact)

    stopping: list[asyncio.Task[None]] = []
    monkeypatch.setattr(Checkpointer, "flush", end)
    with pytest.raises(FatalBookieError, match="registering"):
        await bookie.start()
    assert await bookie.wait_stopped() is code
    await asyncio.gather(*stopping)
    assert await registered(runtime) == (False, False)


async def test_mode_changes_reach_the_metadata_store(tmp_path: Path) -> None:
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime) as bookie:
        bookie.state.to_read_only("test")
        await bookie.state.settled()
        assert await registered(runtime) == (False, True)
        assert bookie.state.server_status == 0
        bookie.state.to_writable("test")
        bookie.state.to_read_only("test")
        bookie.state.to_writable("test")
        await bookie.state.settled()
        assert await registered(runtime) == (True, False)


async def test_a_forced_read_only_bookie_stays_so(tmp_path: Path) -> None:
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime, forceReadOnlyBookie=True) as bookie, RawClient.to(bookie) as client:
        assert await registered(runtime) == (False, True)
        bookie.state.to_writable("test", manual=True)
        assert (await client.v2(add(1, 0))).status == Status.EREADONLY


async def test_the_mode_is_kept_over_a_restart_if_configured(tmp_path: Path) -> None:
    runtime = RealRuntime()
    settings = {"persistBookieStatusEnabled": True}
    async with running_bookie(tmp_path, runtime, **settings) as bookie:
        bookie.state.to_read_only("test", manual=True)
        await bookie.state.settled()
    async with running_bookie(tmp_path, runtime, **settings) as bookie:
        assert bookie.state.read_only
        bookie.state.to_writable("the disks are free again")
        assert bookie.state.read_only, "what a person chose stays"
        bookie.state.to_writable("a person", manual=True)
        await bookie.state.settled()
    async with running_bookie(tmp_path, runtime, **settings) as bookie:
        assert not bookie.state.read_only


async def test_a_mode_that_the_bookie_chose_itself_ends_after_a_restart_when_the_disks_have_room(
    tmp_path: Path,
) -> None:
    """FX-53, LV-6."""
    runtime = RealRuntime()
    settings = {"persistBookieStatusEnabled": True}
    async with running_bookie(tmp_path, runtime, **settings) as bookie:
        bookie.state.to_read_only("test")
        await bookie.state.settled()
    async with running_bookie(tmp_path, runtime, **settings) as bookie:
        await until(lambda: not bookie.state.read_only)


async def test_losing_the_session_is_survived(tmp_path: Path) -> None:
    """FX-71, MF-1, LV-6."""
    runtime = RealRuntime()
    await init_cluster(runtime)
    driver: Any = open_driver(METADATA_URI, runtime)
    await driver.open()
    bookie = Bookie(runtime, bookie_config(tmp_path), driver)
    await bookie.start()
    try:
        store: Any = runtime.services["memory://test"]
        session = next(iter(store._sessions))
        store.expire(session)
        async with RawClient.to(bookie) as client:
            assert (await client.v2(add(1, 0))).status == Status.EOK
        async with asyncio.timeout(20):
            while await registered(runtime) != (True, False):
                await asyncio.sleep(0.01)
    finally:
        await bookie.stop()
        await driver.close()


async def test_without_a_cluster_the_start_says_what_to_do(tmp_path: Path) -> None:
    """JH-15, FX-58, gap G5."""
    await refuses(tmp_path, NotInitialized, "initnewcluster", ExitCode.SERVER_EXCEPTION, RealRuntime())


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    runtime = RealRuntime()
    async with running_bookie(tmp_path / "one", runtime) as bookie:
        await refuses(
            tmp_path / "two",
            OSError,
            f"port {bookie.port}",
            ExitCode.SERVER_EXCEPTION,
            runtime,
            bookiePort=bookie.port,
            bookieId="another",
        )


async def test_another_bookies_directory_is_refused(tmp_path: Path) -> None:
    """BI-20, FX-66."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime):
        pass
    await refuses(tmp_path, InvalidCookieError, "bookie id", ExitCode.SERVER_EXCEPTION, runtime, bookieId="another")


async def test_a_lost_ledger_directory_is_refused(tmp_path: Path) -> None:
    """BI-20, DF-11."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime):
        pass
    shutil.rmtree(tmp_path / "ledgers")
    await refuses(tmp_path, InvalidCookieError, "ledgers", ExitCode.SERVER_EXCEPTION, runtime)
    assert not list((tmp_path / "ledgers" / "current").iterdir()), "nothing has been written"


async def test_a_decommissioned_bookies_directories_are_refused(tmp_path: Path) -> None:
    """BI-20."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime) as bookie:
        found = await bookie.metadata.cookies.read(NAME)
        await bookie.metadata.cookies.remove(NAME, found.version)
    await refuses(tmp_path, InvalidCookieError, "metadata store has none", ExitCode.SERVER_EXCEPTION, runtime)


async def test_a_cookie_of_other_bytes_is_refused(tmp_path: Path) -> None:
    """SEC-39."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime):
        pass
    (tmp_path / "ledgers" / "current" / "VERSION").write_bytes(bytes(range(256)) * 10_000)
    await refuses(tmp_path, InvalidCookieError, "VERSION", ExitCode.SERVER_EXCEPTION, runtime)


async def test_ledger_directories_cannot_be_added_with_db_storage(tmp_path: Path) -> None:
    """BI-20, defect A14."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime):
        pass
    both = [str(tmp_path / "ledgers"), str(tmp_path / "more")]
    settings = {"ledgerDirectories": both, "allowStorageExpansion": True}
    await refuses(tmp_path, InvalidCookieError, "cannot be added", ExitCode.SERVER_EXCEPTION, runtime, **settings)


async def test_ledger_directories_cannot_change_places_with_db_storage(tmp_path: Path) -> None:
    """BI-20, defect A14."""
    runtime = RealRuntime()
    settings: dict[str, Any] = {"allowStorageExpansion": True}
    both = [str(tmp_path / "l0"), str(tmp_path / "l1")]
    async with running_bookie(tmp_path, runtime, **settings, ledgerDirectories=both):
        pass
    settings["ledgerDirectories"] = both[::-1]
    await refuses(tmp_path, InvalidCookieError, "in another order", ExitCode.SERVER_EXCEPTION, runtime, **settings)


async def test_a_first_start_that_was_killed_while_it_wrote_its_cookies_starts_by_itself(tmp_path: Path) -> None:
    for directory in ("journal", "ledgers"):
        (tmp_path / directory / "current").mkdir(parents=True)
        (tmp_path / directory / "current" / "VERSION.tmp").write_bytes(b"5\nbookieHost")
    async with running_bookie(tmp_path):
        pass


async def test_a_first_start_that_was_killed_before_the_store_had_its_cookie_starts_by_itself(tmp_path: Path) -> None:
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime) as bookie:
        found = await bookie.metadata.cookies.read(NAME)
        await bookie.metadata.cookies.remove(NAME, found.version)
    for directory in ("journal", "ledgers"):
        current = tmp_path / directory / "current"
        cookie = (current / "VERSION").read_bytes()
        shutil.rmtree(current)
        current.mkdir()
        (current / "VERSION").write_bytes(cookie)
    async with running_bookie(tmp_path, runtime):
        pass


async def test_a_directory_of_another_engine_is_refused(tmp_path: Path) -> None:
    """FX-47."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime):
        pass
    bucket = tmp_path / "ledgers" / "current" / "0" / "7"
    bucket.mkdir(parents=True)
    (bucket / "7.idx").write_bytes(b"BKLE")
    await refuses(tmp_path, ConfigurationError, "7.idx", ExitCode.INVALID_CONF, runtime)


async def test_a_layout_before_4_1_is_refused(tmp_path: Path) -> None:
    runtime = RealRuntime()
    await init_cluster(runtime)
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "0.log").write_bytes(b"")
    await refuses(tmp_path, ConfigurationError, "before 4.1", ExitCode.INVALID_CONF, runtime)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"allowEphemeralPorts": False}, "bookiePort=0"),
        ({"bookieId": None}, "bookieId"),
        ({"journalAlignmentSize": 100}, "journalAlignmentSize=100"),
        ({"diskUsageWarnThreshold": 0.9995}, "diskUsageWarnThreshold"),
        ({"minorCompactionInterval": 10}, "minorCompactionInterval=10"),
        ({"tlsProviderFactoryClass": "x.Y"}, "tlsProviderFactoryClass=x.Y"),
        ({"bookieAuthProviderFactoryClass": "x.Y"}, "bookieAuthProviderFactoryClass=x.Y"),
        ({"forceReadOnlyBookie": True, "readOnlyModeEnabled": False}, "forceReadOnlyBookie"),
        ({"ledgerStorageClass": "x.NoSuchStorage"}, "NoSuchStorage"),
        ({"allowLoopback": False}, "loopback"),
        ({"metadataServiceUri": None}, "metadataServiceUri"),
    ],
)
async def test_settings_that_cannot_be(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    runtime = RealRuntime()
    await init_cluster(runtime)
    await refuses(tmp_path, ConfigurationError, text, ExitCode.INVALID_CONF, runtime, **settings)


async def test_full_disks_make_the_bookie_read_only_and_back(tmp_path: Path) -> None:
    """BI-18, LV-6."""
    runtime = GatedRuntime()
    gib = 1 << 30
    settings = {"diskCheckInterval": 10, "minUsableSizeForHighPriorityWrites": gib}
    runtime.usage = DiskUsage(total=100 * gib, usable=50 * gib, device=1)
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(add(1, 0))).status == Status.EOK
        runtime.usage = DiskUsage(total=100 * gib, usable=1000, device=1)
        async with asyncio.timeout(20):
            while (await client.v2(add(1, 1))).status != Status.EREADONLY:
                await asyncio.sleep(0.01)
        assert (await client.v2(add(1, 1, flags=4))).status == Status.EREADONLY, "no room for recovery either"
        assert (await client.v2(read(1, 0))).status == Status.EOK
        runtime.usage = DiskUsage(total=100 * gib, usable=50 * gib, device=1)
        async with asyncio.timeout(20):
            while (await client.v2(add(1, 1))).status != Status.EOK:
                await asyncio.sleep(0.01)
    assert await bookie.wait_stopped() is ExitCode.OK


async def test_a_directory_whose_disk_is_gone_ends_the_bookie_and_is_not_made_anew(tmp_path: Path) -> None:
    """DF-11."""
    async with running_bookie(tmp_path, diskCheckInterval=10) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(add(1, 0))).status == Status.EOK
        (tmp_path / "ledgers").rename(tmp_path / "elsewhere")
        (tmp_path / "ledgers").mkdir()
        assert await bookie.wait_stopped() is ExitCode.BOOKIE_EXCEPTION
    assert not list((tmp_path / "ledgers").iterdir())


async def test_a_directory_on_another_file_system_than_at_the_start_ends_the_bookie(tmp_path: Path) -> None:
    """DF-11."""
    runtime = GatedRuntime()
    runtime.usage = DiskUsage(total=1 << 40, usable=1 << 39, device=1)
    async with running_bookie(tmp_path, runtime, diskCheckInterval=10) as bookie:
        runtime.usage = DiskUsage(total=1 << 40, usable=1 << 39, device=2)
        assert await bookie.wait_stopped() is ExitCode.BOOKIE_EXCEPTION


async def test_a_full_disk_ends_a_bookie_that_may_not_be_read_only(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    runtime.usage = DiskUsage(total=1 << 40, usable=1 << 39, device=1)
    settings = {"diskCheckInterval": 10, "readOnlyModeEnabled": False}
    async with running_bookie(tmp_path, runtime, **settings) as bookie:
        runtime.usage = DiskUsage(total=1 << 40, usable=0, device=1)
        assert await bookie.wait_stopped() is ExitCode.BOOKIE_EXCEPTION


async def test_a_bookie_starts_read_only_on_full_disks(tmp_path: Path) -> None:
    """BI-18, FX-51, FX-52."""
    runtime = GatedRuntime()
    runtime.usage = DiskUsage(total=100, usable=0, device=1)
    async with running_bookie(tmp_path, runtime):
        assert await registered(runtime) == (False, True)


@pytest.mark.parametrize(
    ("settings", "content"),
    [
        ({}, b""),
        ({"dataIntegrityChecking": True}, b""),
        ({"journalSyncData": False}, b""),
        ({"dataIntegrityChecking": True, "journalWriteData": False}, dirty.ADDS),
        ({"dataIntegrityChecking": True, "journalSyncData": False}, dirty.ADDS + dirty.FENCES),
    ],
)
async def test_the_marker_says_what_an_unclean_end_loses(
    tmp_path: Path, settings: dict[str, Any], content: bytes
) -> None:
    """Spec bookie-storage §2.3: empty, as Java's, unless something may be lost."""
    marker = tmp_path / "ledgers" / "current" / "DIRTY"
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime, **settings):
        assert marker.read_bytes() == content
    assert not marker.exists()


async def test_what_may_be_lost_is_not_forgotten_by_a_start_without_data_integrity(tmp_path: Path) -> None:
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime, dataIntegrityChecking=True, journalWriteData=False):
        shutil.copytree(tmp_path / "ledgers", tmp_path / "crashed")
    shutil.rmtree(tmp_path / "ledgers")
    (tmp_path / "crashed").rename(tmp_path / "ledgers")
    await refuses(tmp_path, ConfigurationError, "dataIntegrityChecking=true", ExitCode.INVALID_CONF, runtime)


async def test_a_bookie_with_an_empty_disk_comes_back_and_stamps_it_if_allowed(tmp_path: Path) -> None:
    """Its ledger of a peer that is not there stays in limbo, fenced, and is answered with "unknown"."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime) as bookie:
        peer = BookieId("peer:3181")
        metadata = LedgerMetadata(1, 2, 2, 2, {0: (NAME, peer)}, password=PASSWORD)
        await bookie.metadata.ledgers.create(1, metadata)
    shutil.rmtree(tmp_path / "ledgers")
    settings = {"dataIntegrityChecking": True}
    text = "dataIntegrityStampMissingCookies"
    await refuses(tmp_path, InvalidCookieError, text, ExitCode.SERVER_EXCEPTION, runtime, **settings)
    settings["dataIntegrityStampMissingCookies"] = True
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        assert (await client.v3(read(1, 0))).status == Status.EUNKNOWNLEDGERSTATE
        assert (await client.v2(add(1, 0))).status == Status.EFENCED
        assert await bookie.storage.needs_integrity_check()
    async with running_bookie(tmp_path, runtime, dataIntegrityChecking=True) as bookie, RawClient.to(bookie) as client:
        assert (await client.v3(read(1, 0))).status == Status.EUNKNOWNLEDGERSTATE
