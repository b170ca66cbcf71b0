"""W16: records of ledgers are lost."""

from __future__ import annotations

from pathlib import Path

from .conftest import Operating, both_stores


@both_stores
async def test_w16_lost_metadata_is_put_back(operating: Operating, tmp_path: Path) -> None:
    async with operating() as op:
        ledger, file, bookie = await op.write(), tmp_path / "saved", op.cluster.bookies[0]
        await op.run("bookkeeper shell ledgermetadata -l $LEDGER -dumptofile $FILE", LEDGER=ledger, FILE=file)
        before = await op.command(f"shell ledgermetadata -l {ledger}")
        await op.bk.delete_ledger(ledger)
        await op.run("bookkeeper shell readledger -l $LEDGER", code=1, LEDGER=ledger)
        await op.cluster.terminate(bookie)
        held = await op.run(
            "bookkeeper shell ledger $LEDGER --conf $CONF", LEDGER=ledger, CONF=bookie.directory / "bk_server.conf"
        )
        await op.cluster.restart(bookie)
        restore = "bookkeeper shell ledgermetadata -l $LEDGER -restorefromfile $FILE"
        assert await op.run(restore, LEDGER=ledger, FILE=file) == before
        await op.run(restore, code=1, LEDGER=ledger, FILE=file)
        assert await op.run(f"{restore} -update", LEDGER=ledger, FILE=file) == before
        entries = await op.run("bookkeeper shell readledger -l $LEDGER", LEDGER=ledger)
        assert entries.count(f"Lid={ledger}, Eid=") == op.written[ledger]
        copies = await op.run("bookkeeper shell readledger -l $LEDGER -b $BOOKIE", LEDGER=ledger, BOOKIE=bookie.id)
        assert copies.count(f"Lid={ledger}, Eid=") == held.count("entry ")
        await op.is_sound()
