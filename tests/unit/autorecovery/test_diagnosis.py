"""Why an entry can or cannot be read: asked of fake bookies, and the verdict for each state of the copies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookkeeper.autorecovery.diagnosis import Findings, Registration, Verdict, Witness, judge, look_into
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reads.replicas import CopyStatus
from bookkeeper.errors import NoSuchLedgerOnMetadataError
from bookkeeper.types import BookieId
from tests.support.fake_bookie import fake_cluster

GOOD, DAMAGED, MISSING, SILENT = None, CopyStatus.DAMAGED, CopyStatus.MISSING, CopyStatus.UNREACHABLE


async def test_what_bookies_say_is_told_and_judged() -> None:
    async with fake_cluster(3) as cluster:
        client = await cluster.connect(readEntryTimeoutSec=1)

        async def ask(client: BookKeeper, ledger_id: int, entry_id: int | None = None) -> tuple[Findings, Verdict]:
            findings = await look_into(cluster.driver, client, ledger_id, entry_id)
            return findings, judge(findings)

        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3, password=b"p")
        findings, verdict = await ask(client, writer.id)
        assert (findings.entry_id, verdict.summary) == (None, "no entry of the ledger is confirmed yet")
        await writer.append(b"a")
        await writer.append(b"b")
        findings, verdict = await ask(client, writer.id, 0)
        assert (findings.last_confirmed, verdict.readable, verdict.advice) == (0, True, "")
        findings, verdict = await ask(client, writer.id, 1)
        assert not verdict.readable
        assert "not known to be confirmed" in verdict.summary
        await writer.close()

        findings, verdict = await ask(client, writer.id)
        assert (findings.entry_id, verdict.readable, verdict.advice) == (1, True, "")
        assert "ends with entry 1" in (await ask(client, writer.id, 7))[1].summary
        first, second, third = cluster.bookies
        del first.ledger(writer.id).entries[1]
        second.ledger(writer.id).entries[1] = b"x" * 80
        findings, verdict = await ask(client, writer.id)
        assert {each.bookie: each.status for each in findings.witnesses} == {
            first.id: MISSING,
            second.id: DAMAGED,
            third.id: GOOD,
        }
        assert verdict.readable
        assert "2 of 3 copies are missing" in verdict.summary
        await third.stop()
        findings, verdict = await ask(client, writer.id)
        assert (verdict.readable, verdict.advice) == (False, f"bring {third.id} back")
        with pytest.raises(NoSuchLedgerOnMetadataError):
            await ask(client, 4711)


async def found(statuses: Sequence[CopyStatus | None], *, closed: bool, marked: Sequence[str] = ()) -> Findings:
    """Of entry 1 of a ledger with two entries."""
    async with fake_cluster(3) as cluster:
        client = await cluster.connect()
        writer = await client.create_ledger()
        await writer.append_many([b"a", b"b"])
        if closed:
            await writer.close()
        metadata = await client.get_ledger_metadata(writer.id)
    names = [BookieId(f"b{number}:1") for number in range(len(statuses))]
    witnesses = [
        Witness(name, Registration.WRITABLE, status, "" if status is None else "what it says")
        for name, status in zip(names, statuses, strict=True)
    ]
    return Findings(metadata, None if closed else 1, marked, 1, witnesses)


@pytest.mark.parametrize(
    ("statuses", "closed", "readable", "words"),
    [
        ([GOOD, GOOD, GOOD], True, True, "can be read from b0:1, b1:1, b2:1"),
        ([GOOD, MISSING, SILENT], True, True, "2 of 3 copies are missing"),
        ([MISSING, MISSING, MISSING], True, False, "is lost: none of its bookies has it"),
        ([MISSING, MISSING, MISSING], False, False, "it was not written yet"),
        ([DAMAGED, MISSING, DAMAGED], True, False, "every copy that is left is damaged"),
        ([DAMAGED, MISSING, SILENT], True, False, "b2:1 could not be asked"),
        ([GOOD, MISSING, MISSING], False, True, "can be read from b0:1"),
    ],
)
async def test_a_verdict_follows_from_the_copies(
    statuses: list[CopyStatus | None], closed: bool, readable: bool, words: str
) -> None:
    verdict = judge(await found(statuses, closed=closed))
    assert verdict.readable == readable
    assert words in verdict.summary
    assert bool(verdict.advice) == ((closed and any(statuses)) or (not closed and GOOD in statuses))


async def test_copies_that_are_marked_wait_for_autorecovery() -> None:
    verdict = judge(await found([GOOD, MISSING, GOOD], closed=True, marked=["b1:1"]))
    assert "marked for repair" in verdict.advice
