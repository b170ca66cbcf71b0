"""W15, W17, W18: the auditor and the workers at their work."""

from __future__ import annotations

import json

from bookkeeper.cli.local.cluster import BookieProcess
from tests.integration.processes import payload
from tests.integration.test_bit_rot import flip, records
from tests.support.waiting import until

from .conftest import Operating, both_stores
from .operator import PAUSE_SECONDS, Operator

PAYLOAD_BYTE = 60
"""Of an entry's record: behind its ids and digest."""


async def rot(op: Operator, bookie: BookieProcess, ledger_id: int, entry_id: int) -> None:
    """Flip a bit of an entry's payload in a stopped bookie's entry log."""
    ((path, offset),) = records(bookie, ledger_id, entry_id)
    flip(path, offset + PAYLOAD_BYTE)
    assert not records(bookie, ledger_id, entry_id)


async def test_w15_damage_that_nobody_has_seen(operating: Operating) -> None:
    settings = {
        "autoRecoveryDaemonEnabled": "true",
        "auditorLedgerVerificationPercentage": 100,
        "localRepairQueueSize": 0,
    }
    async with operating(3, **settings) as op:
        ledger = await op.write(150, write_quorum=3)
        entry = 100
        assert len(payload(ledger, entry)) > PAYLOAD_BYTE
        auditor = await op.auditor()
        victim = next(each for each in op.cluster.bookies if each is not auditor)
        await op.command("shell autorecovery -disable")
        await op.cluster.terminate(victim)
        await rot(op, victim, ledger, entry)
        await op.cluster.restart(victim)
        look = "bookkeeper shell why $LEDGER $ENTRY"
        assert (await op.run(look, LEDGER=ledger, ENTRY=entry)).count("has a good copy") == 2
        assert not await op.has_all_copies()
        await op.command("shell autorecovery -enable")
        await op.run("bookkeeper shell forceauditchecks -calc")
        auditor = await op.auditor()
        await op.run("bookkeeper shell whoisauditor")
        await op.cluster.terminate(auditor)
        await op.cluster.restart(auditor)
        await until(op.has_all_copies, "every copy is good again", pause=PAUSE_SECONDS)
        copies = json.loads(await op.command(f"shell why {ledger} {entry} --json"))["copies"]
        assert [copy["status"] for copy in copies] == ["good"] * 3
        await until(lambda: _nothing_marked(op), "nothing is marked", pause=PAUSE_SECONDS)
        await op.is_sound()


async def _nothing_marked(op: Operator) -> bool:
    return not await op.marked()


@both_stores
async def test_w17_the_auditor_dies(operating: Operating) -> None:
    async with operating(4, autoRecoveryDaemonEnabled="true") as op:
        for _ in range(4):
            await op.write()
        first = await op.auditor()
        await op.lose(first)

        async def another() -> bool:
            said = (await op.run("bookkeeper shell whoisauditor")).strip()
            return any(said == f"Auditor: {bookie.id}" for bookie in op.cluster.bookies if bookie is not first)

        await until(another, "another auditor", pause=PAUSE_SECONDS)
        await op.forgets(first.id)
        await op.is_sound("lost-bookies")


async def test_w18_many_ledgers_to_repair(operating: Operating) -> None:
    """Each is changed once, though three workers go for them."""
    async with operating(4, autoRecoveryDaemonEnabled="true") as op:
        for _ in range(60):
            await op.write(3)
        gone = await op.busiest()
        before = {each: (await op.bk.get_versioned_metadata(each)).version for each in op.written}
        concerned = await op.naming(gone.id)
        await op.lose(gone)
        await op.forgets(gone.id)
        assert await op.run("bookkeeper shell listunderreplicated -c") == "Under replicated ledger count: 0\n"
        after = {each: (await op.bk.get_versioned_metadata(each)).version for each in op.written}
        assert {each: version for each, version in after.items() if version != before[each]}.keys() == {*concerned}
        assert all(after[each] == before[each] + 1 for each in concerned)
        await op.is_sound("lost-bookies")
