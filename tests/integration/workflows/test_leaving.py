"""W8 to W10: bookies are taken out, drained, and made up for by hand."""

from __future__ import annotations

from bookkeeper.metadata.api import Mode

from .conftest import Operating


async def test_w08_a_bookie_is_taken_out_of_service(operating: Operating) -> None:
    async with operating(4, autoRecoveryDaemonEnabled="true") as op:
        for _ in range(3):
            await op.write()
        gone = await op.busiest()
        await op.auditor()
        decommission = "bookkeeper shell decommissionbookie -bookieid $BOOKIE"
        assert "is not shutdown yet" in await op.run(decommission, code=1, BOOKIE=gone.id)
        await op.command("shell autorecovery -disable")
        await op.cluster.terminate(gone)
        assert "Autorecovery is disabled" in await op.run(decommission, code=1, BOOKIE=gone.id)
        await op.command("shell autorecovery -enable")
        await op.auditor()
        said = await op.run(decommission, BOOKIE=gone.id)
        assert f"Cookie of the decommissioned bookie: {gone.id} is deleted successfully" in said
        assert await op.run("bookkeeper shell listledgers -bookieid $BOOKIE", BOOKIE=gone.id) == ""
        assert f"summary: [ {gone.id}=0 ]" in await op.run("bookkeeper shell recover $BOOKIE -q", BOOKIE=gone.id)
        assert str(gone.id) not in await op.run("bookkeeper shell listbookies -a")
        await op.is_sound()


async def test_w09_a_bookie_is_drained_while_it_serves(operating: Operating) -> None:
    async with operating(4) as op:
        for _ in range(3):
            await op.write()
        drained = await op.busiest()
        await op.cluster.terminate(drained)
        await op.restart(drained, Mode.READ_ONLY, forceReadOnlyBookie="true")
        assert f"BookieID:{drained.id}," in await op.run("bookkeeper shell listbookies -ro")
        before = await op.naming(drained.id)
        open_ledger = await op.open()
        assert await op.naming(drained.id) == before != []
        said = await op.run("bookkeeper shell recover $BOOKIE -sk -f", BOOKIE=drained.id)
        assert said.count("Recovered ledger") == len(before)
        assert f"summary: [ {drained.id}=0 ]" in await op.run("bookkeeper shell recover $BOOKIE -q", BOOKIE=drained.id)
        await open_ledger.close()
        await op.is_sound("read-only")
        await op.cluster.terminate(drained)
        await op.restart(drained, forceReadOnlyBookie="false")
        await op.is_sound()


async def test_w10_a_dead_bookie_is_made_up_for_by_hand(operating: Operating) -> None:
    async with operating(4) as op:
        gone = op.cluster.bookies[0]
        while len(ledgers := await op.naming(gone.id)) < 2:
            await op.write()
        await op.run("bookkeeper shell autorecovery -disable")
        await op.lose(gone)
        records = {ledger: await op.bk.get_versioned_metadata(ledger) for ledger in op.written}
        listed = await op.run("bookkeeper shell recover $BOOKIE -q", BOOKIE=gone.id)
        assert all(f"ledger {ledger} : CLOSED" in listed for ledger in ledgers)
        planned = await op.run("bookkeeper shell recover $BOOKIE -dr", BOOKIE=gone.id)
        assert planned.count("Would recover ledger") == len(ledgers)
        assert {ledger: await op.bk.get_versioned_metadata(ledger) for ledger in op.written} == records
        await op.run("bookkeeper shell recover $BOOKIE -l $LEDGER -f", BOOKIE=gone.id, LEDGER=ledgers[0])
        assert await op.naming(gone.id) == ledgers[1:]
        await op.run("bookkeeper shell recover $BOOKIE -d -f", BOOKIE=gone.id)
        await op.run("bookkeeper shell autorecovery -enable")
        await op.is_sound()

        next_one = op.cluster.bookies[1]
        while not await op.naming(next_one.id):
            await op.write()
        wide = await op.write(ensemble_size=3, write_quorum=3)
        await op.lose(next_one)
        assert "could not be recovered" in await op.run("bookkeeper shell recover $BOOKIE -d -f", 1, BOOKIE=next_one.id)
        await op.run("bookkeeper shell recover $BOOKIE -sku -f", BOOKIE=next_one.id)
        assert wide in await op.naming(next_one.id)
        assert str(next_one.id) in await op.command("shell listbookies -a")
