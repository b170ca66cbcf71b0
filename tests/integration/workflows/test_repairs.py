"""W4, W5, W7: what is lost is copied by itself; open ledgers; the switch."""

from __future__ import annotations

import pytest

from bookkeeper.errors import LedgerClosedError, LedgerFencedError
from tests.integration.processes import payload
from tests.support.waiting import until

from .conftest import Operating, both_stores
from .operator import PAUSE_SECONDS


@both_stores
async def test_w04_a_bookie_dies(operating: Operating) -> None:
    async with operating(4, autoRecoveryDaemonEnabled="true") as op:
        for _ in range(4):
            await op.write()
        gone = await op.busiest()
        await op.lose(gone)
        await op.run("bookkeeper shell queryautorecoverystatus")
        await op.forgets(gone.id)
        assert await op.run("bookkeeper shell listunderreplicated -pmr -prw") == "Under replicated ledger count: 0\n"
        assert f"not there: {gone.id}" in await op.run("bookkeeper doctor", code=1)
        await op.is_sound("lost-bookies")
        await op.cluster.restart(gone)
        await op.is_sound()


async def test_w05_a_bookie_dies_while_ledgers_are_written(operating: Operating) -> None:
    async with operating(4, autoRecoveryDaemonEnabled="true", openLedgerRereplicationGracePeriod=3000) as op:
        idle, busy = await op.open(), await op.open()
        gone = [each for each in op.cluster.bookies if len(await op.naming(each.id)) == 2].pop()
        await op.lose(gone)
        for _ in range(6):
            await busy.append(payload(busy.id, op.written[busy.id]))
            op.written[busy.id] += 1

        async def closed() -> bool:
            return (await op.bk.get_ledger_metadata(idle.id)).closed

        await until(closed, "the idle writer's ledger is closed", pause=PAUSE_SECONDS)
        await op.forgets(gone.id)
        assert "Under replicated ledger count: 0" in await op.run("bookkeeper shell listunderreplicated -pmr")
        show = "bookkeeper ledger metadata $LEDGER"
        assert "CLOSED" in await op.run(show, LEDGER=idle.id)
        assert "OPEN" in await op.run(show, LEDGER=busy.id)
        # Fenced, says a bookie that has the ledger; closed, says its metadata, where the lost one was noticed first.
        with pytest.raises((LedgerFencedError, LedgerClosedError)):
            await idle.append(b"too late")
        await busy.append(payload(busy.id, op.written[busy.id]))
        op.written[busy.id] += 1
        await busy.close()
        await op.is_sound("lost-bookies")


async def test_w07_no_repair_for_a_while(operating: Operating) -> None:
    async with operating(4, autoRecoveryDaemonEnabled="true") as op:
        for _ in range(4):
            await op.write()
        await op.auditor()
        await op.run("bookkeeper shell autorecovery -disable")
        gone = await op.busiest()
        await op.lose(gone)
        before = await op.naming(gone.id)
        assert "Autorecovery is disabled" in await op.command("shell triggeraudit", code=1)
        assert "repair-disabled" in await op.command("doctor --json", code=1)
        assert await op.marked() == []
        assert await op.naming(gone.id) == before != []
        await op.run("bookkeeper shell autorecovery -enable")
        await op.run("bookkeeper shell listunderreplicated -c")
        await op.forgets(gone.id)
        await op.is_sound("lost-bookies")
