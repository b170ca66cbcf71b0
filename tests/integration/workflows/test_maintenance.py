"""W6, W11 to W14, W20: upgrades, disks, cookies, addresses, space, monitoring."""

from __future__ import annotations

import shutil
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as parsed

from bookkeeper.cli.local.cluster import BookieProcess
from bookkeeper.metadata.api import Mode
from bookkeeper.runtime.ports import free_port
from bookkeeper.types import BookieId
from tests.support.waiting import until

from .conftest import Operating
from .operator import PAUSE_SECONDS, Operator, cookies_of


def lose_disks(bookie: BookieProcess) -> None:
    for place in ("journal", "ledgers"):
        shutil.rmtree(bookie.directory / place)


async def test_w06_bookies_are_upgraded_one_after_the_other(operating: Operating) -> None:
    async with operating(autoRecoveryDaemonEnabled="true") as op:
        for _ in range(3):
            await op.write()
        await op.auditor()
        await op.run("bookkeeper shell autorecovery -disable")
        canary, *others = op.cluster.bookies
        await op.cluster.terminate(canary)
        await op.restart(canary, Mode.READ_ONLY, forceReadOnlyBookie="true")
        assert f"BookieID:{canary.id}," in await op.run("bookkeeper shell listbookies -ro")
        await op.is_sound("read-only", "repair-disabled", "too-few-bookies")
        await op.cluster.terminate(canary)
        await op.restart(canary, forceReadOnlyBookie="false")
        for bookie in others:
            await op.cluster.terminate(bookie)
            assert await op.marked() == []
            await op.cluster.restart(bookie)
            await op.run("bookkeeper bookies list --wait 3")
            said = await op.run("bookkeeper shell bookiesanity --conf $CONF", CONF=bookie.directory / "bk_server.conf")
            assert "succeeded" in said
        assert await op.marked() == []
        await op.run("bookkeeper shell autorecovery -enable")
        await op.auditor()
        await op.run("bookkeeper doctor")
        assert await op.marked() == []
        await op.is_sound()


async def test_w11_a_failed_disk_is_replaced(operating: Operating) -> None:
    async with operating(4, autoRecoveryDaemonEnabled="true") as op:
        for _ in range(3):
            await op.write()
        anew, refilled = op.cluster.bookies[:2]
        await op.lose(anew)
        lose_disks(anew)
        assert "no cookie in" in await op.refuses(anew)
        await op.run("bookkeeper shell decommissionbookie -bookieid $BOOKIE", BOOKIE=anew.id)
        await op.cluster.restart(anew)
        await op.is_sound()

        await op.command("shell autorecovery -disable")
        await op.lose(refilled)
        lose_disks(refilled)
        integrity = {"dataIntegrityChecking": "true", "dataIntegrityStampMissingCookies": "true"}
        await op.restart(refilled, **integrity)
        await until(op.has_all_copies, "what was lost is there again", pause=PAUSE_SECONDS)
        await op.cluster.terminate(refilled)
        await op.restart(refilled, dataIntegrityChecking="false", dataIntegrityStampMissingCookies="false")
        await op.command("shell autorecovery -enable")
        await op.is_sound()

        await op.cluster.terminate(refilled)
        directory = refilled.directory
        more = {"ledgerDirectories": f"{directory}/ledgers,{directory}/more", "allowStorageExpansion": "true"}
        assert "directories cannot be added" in await op.refuses(refilled, **more)
        await op.restart(refilled, ledgerDirectories=f"{directory}/ledgers")


async def test_w12_cookies(operating: Operating, tmp_path: Path) -> None:
    async with operating() as op:
        await op.write()
        bookie = op.cluster.bookies[0]
        names = {"BOOKIE": bookie.id, "FILE": cookies_of(bookie)[0]}
        before = await op.run("bookkeeper shell cookie_get $BOOKIE", **names)
        assert cookies_of(bookie)[0].read_text() in before
        assert "already exist" in await op.run("bookkeeper shell cookie_create $BOOKIE -cf $FILE", 1, **names)
        await op.run("bookkeeper shell cookie_update $BOOKIE -cf $FILE", **names)
        await op.run("bookkeeper shell cookie_delete $BOOKIE", **names)
        await op.is_sound("no-cookie")
        assert "not found" in await op.command(f"shell cookie_get {bookie.id}", code=1)
        await op.cluster.terminate(bookie)
        assert "the metadata store has none" in await op.refuses(bookie)
        made = tmp_path / "cookie"
        places = {"JOURNALS": bookie.directory / "journal", "LEDGERS": bookie.directory / "ledgers", "FILE": made}
        await op.run(
            "bookkeeper shell cookie_generate $BOOKIE -j $JOURNALS -l $LEDGERS -o $FILE", BOOKIE=bookie.id, **places
        )
        assert made.read_bytes() == cookies_of(bookie)[0].read_bytes()
        await op.run("bookkeeper shell cookie_create $BOOKIE -cf $FILE", **names)
        assert await op.command(f"shell cookie_get {bookie.id}") == before
        await op.cluster.restart(bookie)
        await op.is_sound()


async def test_w13_a_bookie_gets_another_address(operating: Operating) -> None:
    async with operating() as op:
        for _ in range(3):
            await op.write()
        bookie = op.cluster.bookies[0]
        old, new = bookie.id, BookieId(f"127.0.0.1:{free_port()}")
        await op.cluster.terminate(bookie)
        for file in cookies_of(bookie):
            file.write_text(file.read_text().replace(f'bookieHost: "{old}"', f'bookieHost: "{new}"'))
        names = {"OLD": old, "NEW": new, "FILE": cookies_of(bookie)[0]}
        renaming = "bookkeeper shell updateBookieInLedger -sb $OLD -db $NEW"
        assert "issued=3, updated=3" in await op.run(f"{renaming} -dr", **names)
        assert len(await op.naming(old)) == 3
        assert "issued=3, updated=3" in await op.run(renaming, **names)
        await op.run("bookkeeper shell cookie_create $NEW -cf $FILE", **names)
        await op.run("bookkeeper shell cookie_delete $OLD", **names)
        bookie.id = new
        await op.restart(bookie, bookiePort=new.rpartition(":")[2])
        assert len(await op.naming(new)) == 3
        await op.is_sound()


async def test_w14_a_disk_fills_up(operating: Operating) -> None:
    """How full the disk is is the machine's affair: the limits are set around that."""
    space = shutil.disk_usage("/")
    share = 1 - space.free / space.total
    full = {"diskUsageThreshold": share / 2, "diskUsageWarnThreshold": share / 4, "diskUsageLwmThreshold": share / 4}
    room = {"diskUsageThreshold": 0.999, "diskUsageWarnThreshold": 0.99, "diskUsageLwmThreshold": 0.99}
    async with operating(gcWaitTime=3_600_000, logSizeLimit=1 << 20) as op:
        bookie = op.cluster.bookies[0]
        await op.cluster.terminate(bookie)
        await op.restart(bookie, httpServerEnabled="true", httpServerPort=free_port(), **room)
        dropped = [await op.write(2000, write_quorum=3) for _ in range(3)]
        kept = await op.write()
        await op.cluster.terminate(bookie)
        await op.restart(bookie, Mode.READ_ONLY, **full)
        assert f"BookieID:{bookie.id}," in await op.run("bookkeeper shell listbookies -ro")
        await op.cluster.terminate(bookie)
        await op.restart(bookie, **room)

        for ledger in dropped:
            await op.bk.delete_ledger(ledger)
            del op.written[ledger]
        both = """'{"suspendMajor": true, "suspendMinor": true}'"""
        await op.http(f"curl -X PUT -d {both} $HTTP/api/v1/bookie/gc/suspend_compaction", bookie)
        held = await op.http("curl $HTTP/api/v1/bookie/gc/suspend_compaction", bookie)
        assert held.json == {"isMajorGcSuspended": "true", "isMinorGcSuspended": "true"}
        await collect(op, bookie)
        (details,) = (await op.http("curl $HTTP/api/v1/bookie/gc_details", bookie)).json
        assert details["majorCompactionCounter"] == 0
        both = """'{"resumeMajor": true, "resumeMinor": true}'"""
        await op.http(f"curl -X PUT -d {both} $HTTP/api/v1/bookie/gc/resume_compaction", bookie)
        await collect(op, bookie)
        (details,) = (await op.http("curl $HTTP/api/v1/bookie/gc_details", bookie)).json
        assert details["majorCompactionCounter"] == 1

        state = await op.http("""curl -X PUT -d '{"readOnly": true}' $HTTP/api/v1/bookie/state/readonly""", bookie)
        assert state.json == {"readOnly": True}
        assert bookie.id in await op.bk.readonly_bookies()
        await op.http("""curl -X PUT -d '{"readOnly": false}' $HTTP/api/v1/bookie/state/readonly""", bookie)
        assert bookie.id in await op.bk.writable_bookies()
        assert op.written == {kept: 30}
        await op.is_sound()


async def serves(op: Operator, bookie: BookieProcess) -> None:
    """Wait until a bookie that was started says so."""

    async def ready() -> bool:
        return (await op.http("curl $HTTP/api/v1/bookie/is_ready", bookie, status=None)).text == "OK"

    await until(ready, f"{bookie.id} is ready", pause=PAUSE_SECONDS)


async def collect(op: Operator, bookie: BookieProcess) -> None:
    """Ask for a garbage collection, and wait until it is over."""
    await op.http("curl -X PUT $HTTP/api/v1/bookie/gc", bookie)

    async def over() -> bool:
        return bool((await op.http("curl $HTTP/api/v1/bookie/gc", bookie)).json == {"is_in_force_gc": "false"})

    await until(over, "the collection is over", pause=PAUSE_SECONDS)


async def test_w20_what_is_counted_is_published(operating: Operating) -> None:
    async with operating(autoRecoveryDaemonEnabled="true") as op:
        for bookie in op.cluster.bookies:
            await op.cluster.terminate(bookie)
            await op.restart(bookie, httpServerEnabled="true", httpServerPort=free_port())
            await serves(op, bookie)
        await op.write(50, write_quorum=3)
        auditor = await op.auditor()
        pages = {bookie.id: (await op.http("curl $HTTP/metrics", bookie)).text for bookie in op.cluster.bookies}
        found = {bookie: {family.name: family for family in parsed(page)} for bookie, page in pages.items()}
        for families in found.values():
            assert families["bookie_SERVER_STATUS"].samples[0].value == 1
            added = [each for each in families["bookkeeper_server_ADD_ENTRY"].samples if each.name.endswith("_count")]
            assert {each.labels["success"]: each.value for each in added} == {"true": 50, "false": 0}
        audited = {bookie for bookie, families in found.items() if "replication_auditor_AUDIT_BOOKIES_TIME" in families}
        assert audited == {auditor.id}
