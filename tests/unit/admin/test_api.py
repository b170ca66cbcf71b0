"""The endpoints under `/api/v1`, asked of a running bookie (spec autorecovery-admin §9.2)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

import bookkeeper
from bookkeeper.admin.metrics.page import Metrics
from bookkeeper.admin.service import serving
from bookkeeper.autorecovery.daemon import run_autorecovery
from bookkeeper.bookie.bookie import Bookie
from bookkeeper.client.client import BookKeeper
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import BKError, NoSuchLedgerError
from bookkeeper.metadata.api import Mode
from bookkeeper.peers import open_peers
from bookkeeper.runtime import DiskUsage
from bookkeeper.runtime.ports import free_port
from tests.support.bookie import METADATA_URI, GatedRuntime, bookie_config, bytes_of, init_cluster
from tests.support.http import Answer, ask
from tests.support.waiting import until

API = "/api/v1"


@dataclass
class Served:
    """A bookie with its HTTP API."""

    runtime: GatedRuntime
    bookie: Bookie
    bk: BookKeeper
    port: int

    async def get(self, path: str) -> Answer:
        return await ask(self.port, path)

    async def json(self, path: str) -> Any:
        found = await ask(self.port, path)
        assert found.status == 200, found
        return found.json

    async def put(self, path: str, body: str = "") -> Answer:
        return await ask(self.port, path, "PUT", body)

    async def write(self, count: int = 3, size: int = 5) -> int:
        async with self.bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
            for number in range(count):
                await writer.append_soon(b"%d" % number * size)
            await writer.flush()
        return writer.id

    async def has(self, ledger_id: int) -> bool:
        """Whether the bookie knows a ledger."""
        try:
            await self.bk.list_entries_of(ledger_id, self.bookie.bookie_id)
        except NoSuchLedgerError:
            return False
        return True

    async def write_on(self) -> None:
        """Until the bookie takes no more, which raises."""
        while True:
            await self.write(100, 10_000)


@asynccontextmanager
async def served(
    directory: Path, measured: Callable[[], DiskUsage] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """`measured`: what its disk says."""
    runtime = GatedRuntime()
    runtime.measured = measured
    await init_cluster(runtime)
    config = bookie_config(directory, httpServerEnabled=True, httpServerPort=free_port(), **settings)
    async with AsyncExitStack() as held:
        bookie = Bookie(runtime, config, open_peers=open_peers)
        told = await held.enter_async_context(serving(runtime, config, bookie))
        assert (await ask(config.httpServerPort, f"{API}/bookie/is_ready")).status == 503
        assert (await ask(config.httpServerPort, f"{API}/bookie/state")).status == 503
        assert (await ask(config.httpServerPort, "/heartbeat")).text == "OK\n"
        await bookie.start()
        held.push_async_callback(bookie.stop)
        healing = asyncio.ensure_future(run_autorecovery(runtime, config, bookie.bookie_id, told))

        async def stop_healing() -> None:
            healing.cancel()
            await asyncio.wait([healing])

        held.push_async_callback(stop_healing)
        bk = await held.enter_async_context(bookkeeper.connect(METADATA_URI, runtime=runtime))
        yield Served(runtime, bookie, bk, config.httpServerPort)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as found:
        yield found


async def test_how_the_bookie_stands(api: Served) -> None:
    own = api.bookie.bookie_id
    assert (await api.get(f"{API}/bookie/is_ready")).text == "OK"
    assert await api.json(f"{API}/bookie/state") == {
        "running": True,
        "readOnly": False,
        "shuttingDown": False,
        "availableForHighPriorityWrites": True,
    }
    space = await api.json(f"{API}/bookie/info")
    assert 0 < space["freeSpace"] <= space["totalSpace"]
    assert await api.json(f"{API}/bookie/list_bookies") == {own: None}
    assert await api.json(f"{API}/bookie/list_bookies?print_hostnames=true") == {own: "127.0.0.1"}
    assert await api.json(f"{API}/bookie/list_bookies?type=ro") == {}
    assert own in await api.json(f"{API}/bookie/list_bookie_info")
    assert (await api.json(f"{API}/bookie/cluster_info"))["writableBookiesCount"] == 1
    assert await api.json(f"{API}/bookie/sanity") == {"passed": True, "readOnly": False}
    (mark,) = await api.json(f"{API}/bookie/last_log_mark")
    assert mark.startswith("LastLogMark: Journal Id - ")
    files = await api.json(f"{API}/bookie/list_disk_file")
    assert files["journal files"].endswith(".txn \t")
    assert list(await api.json(f"{API}/bookie/list_disk_file?file_type=index")) == ["index files"]
    settings = await api.json(f"{API}/config/server_config")
    assert settings["httpServerEnabled"] == "true"
    assert (await api.put(f"{API}/config/server_config", '{"gcWaitTime": 1}')).status == 400
    assert (await api.put(f"{API}/bookie/expand_storage")).status == 500
    published = await api.bookie.metadata.discovery.info(own)
    assert [(each.id, each.port) for each in published.endpoints] == [
        ("httpserver", api.port),
        ("bookie", api.bookie.port),
    ]


async def test_read_only_by_hand(api: Served) -> None:
    own, path = api.bookie.bookie_id, f"{API}/bookie/state/readonly"
    assert (await api.put(path, '{"readOnly": true}')).json == {"readOnly": True}
    assert own in (await api.bookie.metadata.discovery.list(Mode.READ_ONLY)).value, "the answer waits for that"
    assert await api.json(f"{API}/bookie/sanity") == {"passed": False, "readOnly": False}
    assert (await api.put(path, '{"readOnly": "false"}')).json == {"readOnly": False}
    assert own in (await api.bookie.metadata.discovery.list(Mode.WRITABLE)).value
    assert (await api.put(path, "{}")).json == {"readOnly": False}
    for wrong in ("", "{", '{"readonly": true}', '{"readOnly": 1}'):
        assert (await api.put(path, wrong)).status == 400
    assert (await ask(api.port, path, "DELETE")).status == 404


async def test_a_bookie_whose_mode_is_forced_says_so(tmp_path: Path) -> None:
    async with served(tmp_path, forceReadOnlyBookie=True) as api:
        found = await api.put(f"{API}/bookie/state/readonly", '{"readOnly": false}')
        assert (found.status, found.text) == (
            400,
            "Bookie is in forceReadOnly mode, cannot transit to writable mode",
        )
    async with served(tmp_path / "other", readOnlyModeEnabled=False) as api:
        found = await api.put(f"{API}/bookie/state/readonly", '{"readOnly": true}')
        assert (found.status, found.text) == (400, "Bookie is disabled ReadOnly mode, cannot transit to readOnly mode")


async def test_ledgers(api: Served) -> None:
    first, second = await api.write(), await api.write(1200, 1)
    assert await api.json(f"{API}/ledger/list") == {str(first): None, str(second): None}
    shown = await api.json(f"{API}/ledger/list?print_metadata=true&decode_meta=true")
    assert shown[str(first)]["lastEntryId"] == 2
    assert "password" not in shown[str(first)]
    assert list(await api.json(f"{API}/ledger/list?print_metadata=true")) == list(shown)
    assert await api.json(f"{API}/ledger/list?print_metadata=true&page=2") == {}
    assert await api.json(f"{API}/ledger/metadata?ledger_id={first}") == {str(first): shown[str(first)]}
    assert await api.json(f"{API}/ledger/read?ledger_id={first}") == {"0": "00000", "1": "11111", "2": "22222"}
    assert await api.json(f"{API}/ledger/read?ledger_id={first}&start_entry_id=1&end_entry_id=1") == {"1": "11111"}
    page = await api.json(f"{API}/ledger/read?ledger_id={second}&page=2")
    assert page.pop("Entries for page: ") == "2"
    assert list(page) == [str(number) for number in range(1000, 1200)]
    assert (await api.get(f"{API}/ledger/read?ledger_id={first}&page=1&end_entry_id=1")).status == 500
    for wrong in ("metadata", "read", "metadata?ledger_id=99", "read?ledger_id=x"):
        assert (await api.get(f"{API}/ledger/{wrong}")).status in (404, 500)
    found = await ask(api.port, f"{API}/ledger/delete?ledger_id={first}", "DELETE")
    assert found.json == f"Deleted ledger: {first}"
    assert await api.json(f"{API}/ledger/list") == {str(second): None}


async def test_autorecovery_and_its_switches(api: Served) -> None:
    root = f"{API}/autorecovery"
    marks = api.bookie.metadata.underreplication

    async def elected() -> bool:
        return (await api.get(f"{root}/who_is_auditor")).text == f"Auditor: {api.bookie.bookie_id}"

    await until(elected, "there is an auditor")
    assert (await api.put(f"{root}/status", "enabled=false")).json == {"enabled": False}
    assert (await api.put(f"{root}/status", "enabled=false")).json == {"enabled": False}
    assert (await api.put(f"{root}/trigger_audit")).status == 404
    assert (await api.get(f"{root}/list_under_replicated_ledger")).status == 404
    await marks.mark(7, ["lost:3181"])
    assert await api.json(f"{root}/list_under_replicated_ledger") == [7]
    assert await api.json(f"{root}/list_under_replicated_ledger?printmissingreplica") == {"7": ["lost:3181"]}
    assert (await api.get(f"{root}/list_under_replicated_ledger?missingreplica=other")).status == 404
    assert (await api.put(f"{root}/status?enabled=true")).json == {"enabled": True}
    assert (await api.put(f"{root}/status")).status == 400
    assert (await api.put(f"{root}/trigger_audit")).text == "Success trigger audit."
    delay = f"{root}/lost_bookie_recovery_delay"
    assert (await api.put(delay, '{"delay_seconds": 17}')).text == "Success set lostBookieRecoveryDelay to 17"
    assert (await api.get(delay)).text == "lostBookieRecoveryDelay value: 17"
    for wrong, status in (("", 404), ("{}", 404), ('{"delay_seconds": "17"}', 400), ('{"delay_seconds": -1}', 400)):
        assert (await api.put(delay, wrong)).status == status


async def test_long_work_is_taken_and_done(api: Served, caplog: pytest.LogCaptureFixture) -> None:
    root = f"{API}/autorecovery"
    caplog.set_level("INFO")
    found = await api.put(f"{root}/bookie", '{"bookie_src": ["gone:3181"], "delete_cookie": true}')
    assert found.text == "Success send recovery request command."
    body = f'{{"bookie_src": "{api.bookie.bookie_id}", "delete_cookie": "true"}}'
    found = await api.put(f"{root}/decommission", body)
    assert found.text == f"Success send decommission Bookie command {api.bookie.bookie_id}"

    async def said() -> bool:
        return "is not shutdown yet" in caplog.text and "recovery of gone:3181 is done" in caplog.text

    await until(said, "both have ended")
    for path, wrong in (("bookie", "{}"), ("bookie", '{"bookie_dest": []}'), ("bookie", ""), ("decommission", "{}")):
        assert (await api.put(f"{root}/{path}", wrong)).status in (404, 500)
    assert (await api.put(f"{root}/bookie", '{"bookie_src": []}')).text == "Not found method. Should be PUT method"


async def test_compaction_by_hand(api: Served) -> None:
    root, own = f"{API}/bookie", api.bookie.bookie_id
    suspended = await api.put(f"{root}/gc/suspend_compaction", '{"suspendMajor": true, "suspendMinor": "true"}')
    assert suspended.json == f"Suspend majorGC on BookieServer: {own}, Suspend minorGC on BookieServer: {own}"
    assert await api.json(f"{root}/gc/suspend_compaction") == {
        "isMajorGcSuspended": "true",
        "isMinorGcSuspended": "true",
    }
    assert (await api.put(f"{root}/gc", '{"forceMajor": true}')).json == f"Triggered GC on BookieServer: {own}"

    async def passed() -> bool:
        return bool((await api.json(f"{root}/gc"))["is_in_force_gc"] == "false")

    await until(passed, "the pass is over")
    (details,) = await api.json(f"{root}/gc_details")
    assert details["majorCompactionCounter"] == 0, "a suspended compaction is not forced"
    resumed = await api.put(f"{root}/gc/resume_compaction", '{"resumeMajor": true}')
    assert resumed.json == f"Resume majorGC on BookieServer: {own}"
    await api.put(f"{root}/gc")

    async def compacted() -> bool:
        (details,) = await api.json(f"{root}/gc_details")
        return bool(details["majorCompactionCounter"] == 1 and details["lastMajorCompactionTime"] > 0)

    await until(compacted, "a major compaction")
    (path,) = await api.json(f"{root}/entry_location_compact")
    one = json.dumps({"entryLocationRocksDBCompact": True, "entryLocations": path})
    for body in (one, '{"entryLocationRocksDBCompact": "true"}'):
        assert (await api.put(f"{root}/entry_location_compact", body)).status == 200

    async def indexed() -> bool:
        (details,) = await api.json(f"{root}/gc_details")
        return bool(details["entryLocationCompactionCounter"] >= 1)

    await until(indexed, "the index is compacted")
    wrong = '{"entryLocationRocksDBCompact": true, "entryLocations": "/nowhere"}'
    assert (await api.put(f"{root}/entry_location_compact", wrong)).status == 400
    for method, path, body, status in (
        ("POST", "gc", "", 405),
        ("PUT", "gc", "x", 400),
        ("PUT", "gc/suspend_compaction", "", 400),
        ("PUT", "gc/suspend_compaction", "{}", 400),
        ("GET", "gc/resume_compaction", None, 404),
        ("POST", "entry_location_compact", "", 405),
        ("PUT", "entry_location_compact", "", 400),
        ("POST", "gc_details", "", 404),
    ):
        assert (await ask(api.port, f"{root}/{path}", method, body)).status == status, (method, path)


async def test_a_full_disk_is_given_back_by_hand(tmp_path: Path) -> None:
    """W14: read-only by itself, ledgers deleted, a collection asked for, writable again below the low water mark."""
    whole = 64 << 20
    settings = {
        "diskUsageThreshold": 0.5,
        "diskUsageWarnThreshold": 0.45,
        "diskUsageLwmThreshold": 0.4,
        "diskCheckInterval": 100,
        "gcWaitTime": 3_600_000,
        "logSizeLimit": 4 << 20,
        "dbStorage_reservedSpaceMb": 0,
        "zkTimeout": 1500,
        "minUsableSizeForJournalWrites": 1,
    }

    def used() -> int:
        return bytes_of((tmp_path / "ledgers").rglob("*.log"))

    def measured() -> DiskUsage:
        return DiskUsage(total=whole, usable=max(whole - used(), 0), device=1)

    async with served(tmp_path, measured, **settings) as api:
        with pytest.raises(BKError):
            await api.write_on()

        async def read_only() -> bool:
            return bool((await api.json(f"{API}/bookie/state/readonly"))["readOnly"])

        await until(read_only, "the bookie is read-only")
        full = await api.json(f"{API}/ledger/list")
        stored = [ledger for ledger in full if await api.has(int(ledger))]
        assert len(stored) >= len(full) - 1, "of the last one the bookie may have taken nothing"
        for ledger in full:
            assert (await ask(api.port, f"{API}/ledger/delete?ledger_id={ledger}", "DELETE")).status == 200
        assert await read_only(), "nothing is given back before a collection"
        await api.put(f"{API}/bookie/gc")

        async def writable() -> bool:
            return not await read_only()

        await until(writable, "the bookie is writable again")
        assert used() < 0.4 * whole
        page = parsed((await api.get("/metrics")).text)
        found = {sample.name: sample.value for family in page for sample in family.samples}
        assert found["bookie_DELETED_LEDGER_TOTAL_total"] == len(stored)
        assert found["bookie_RECLAIMED_DELETION_SPACE_BYTES_total"] > 0


async def test_metrics_of_a_bookie_with_autorecovery(api: Served) -> None:
    await api.write(100)

    async def families() -> dict[str, Any]:
        found = await api.get("/metrics")
        assert found.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return {family.name: family for family in parsed(found.text)}

    async def all_there() -> bool:
        return "replication_auditor_AUDIT_BOOKIES_TIME" in await families()

    await until(all_there, "there is an auditor")
    found = await families()
    (added,) = [
        sample.value
        for sample in found["bookkeeper_server_ADD_ENTRY"].samples
        if sample.name.endswith("_count") and sample.labels["success"] == "true"
    ]
    assert added == 100
    assert found["bookie_SERVER_STATUS"].samples[0].value == 1
    assert found["bookie_ledgers_count"].samples[0].value == 1
    assert found["bookie_write_cache_count"].samples[0].value == 100
    assert "replication_replication_worker_rereplicate" in found
    assert found["process_resident_memory_bytes"].samples[0].value > 1 << 20
    before = found["event_loop_stalls"].samples[0].value
    time.sleep(0.1)  # noqa: ASYNC251 - a standstill of the loop

    async def noticed() -> bool:
        return bool((await families())["event_loop_stalls"].samples[0].value > before)

    await until(noticed, "the standstill is counted")
    assert (await api.put("/metrics")).status == 403


async def test_metrics_alone_have_a_port_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runtime = GatedRuntime()
    port = free_port()
    config = ServerConfiguration.from_mapping(
        {
            "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
            "prometheusStatsHttpPort": port,
            "prometheusStatsHttpAddress": "127.0.0.1",
        }
    )
    async with serving(runtime, config, None):
        assert "process_open_fds" in (await ask(port, "/metrics", "POST")).text
        assert (await ask(port, "/heartbeat")).status == 404
        async with serving(runtime, config, None):
            assert "metrics are not published: cannot listen for HTTP" in caplog.text
    assert Metrics(runtime, config, None).page()
