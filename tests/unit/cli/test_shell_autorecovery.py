"""`bookkeeper shell`: marks of under-replicated ledgers, the auditor, the switches, and repair by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bookkeeper.metadata.api import CheckKind, MetadataDriver

from .test_shell import BOOKIE, on_store, register, shell, uri

__all__ = ["uri"]

OTHER = "127.0.0.1:3182"


@pytest.fixture
def cluster(uri: str) -> str:
    assert shell("initnewcluster", "-u", uri)[0] == 0
    return uri


def store(uri: str, work: Any) -> Any:
    return asyncio.run(on_store(uri, work))


async def mark_two(driver: MetadataDriver) -> None:
    await driver.underreplication.mark(7, [BOOKIE])
    await driver.underreplication.mark(9, [BOOKIE, OTHER])


def test_marked_ledgers_are_listed_as_java_does(cluster: str) -> None:
    assert shell("listunderreplicated", "-u", cluster)[1] == "Under replicated ledger count: 0\n"
    store(cluster, mark_two)
    code, out, _ = shell("listunderreplicated", "-pmr", "-prw", "-u", cluster)
    assert code == 0
    lines = out.splitlines()
    assert [line.startswith("\tCtime : 1") for line in lines] == [False, True, False, False, True, False, False, False]
    assert [line for line in lines if "Ctime" not in line] == [
        "7",
        f"\tMissingReplica : {BOOKIE}",
        "9",
        f"\tMissingReplica : {BOOKIE}",
        f"\tMissingReplica : {OTHER}",
        "Under replicated ledger count: 2",
    ]
    assert shell("listunderreplicated", "-c", "-u", cluster)[1] == "Under replicated ledger count: 2\n"
    assert shell("listunderreplicated", "-mr", OTHER, "-u", cluster)[1].splitlines()[0] == "9"
    assert shell("listunderreplicated", "-emr", OTHER, "-u", cluster)[1].splitlines()[0] == "7"
    rows = json.loads(shell("listunderreplicated", "--json", "-u", cluster)[1])
    assert [row.pop("ctime") > 0 for row in rows] == [True, True]
    assert rows == [
        {"ledger": 7, "missing": [BOOKIE], "worker": None},
        {"ledger": 9, "missing": [BOOKIE, OTHER], "worker": None},
    ]


def test_what_is_being_repaired_is_what_is_marked_and_locked(cluster: str) -> None:
    empty = "CurrentRecoverLedgerInfo:\n\t No Ledger is being recovered.\n"
    assert shell("queryautorecoverystatus", "-u", cluster)[1] == empty

    async def lock_and_look(driver: MetadataDriver) -> str:
        await mark_two(driver)
        await driver.underreplication.acquire(7)
        return (await asyncio.to_thread(shell, "queryautorecoverystatus", "--json", "-u", cluster))[1]

    (row,) = json.loads(store(cluster, lock_and_look))
    assert row["ledger"] == 7
    assert row["worker"]


def test_repair_is_switched_off_and_on(cluster: str) -> None:
    for words, text, enabled in (
        ((), "Autorecovery is enabled.", True),
        (("-enable",), "Autorecovery already enabled. Doing nothing", True),
        (("-disable",), "Disabling autorecovery", False),
        (("-d",), "Autorecovery already disabled. Doing nothing", False),
        ((), "Autorecovery is disabled.", False),
        (("-e",), "Enabling autorecovery", True),
    ):
        assert shell("autorecovery", *words, "-u", cluster) == (0, f"{text}\n", "")
        assert store(cluster, lambda driver: driver.underreplication.is_enabled()) is enabled
    assert json.loads(shell("autorecovery", "--json", "-u", cluster)[1]) == {"enabled": True}


def test_the_delay_is_read_and_written(cluster: str) -> None:
    code, _, err = shell("lostbookierecoverydelay", "-g", "-u", cluster)
    assert (code, "no auditor has run yet" in err) == (1, True)
    assert shell("lostbookierecoverydelay", "-set", "60", "-u", cluster)[0] == 0
    assert shell("lostbookierecoverydelay", "-get", "-u", cluster)[1] == "LostBookieRecoveryDelay value in ZK: 60\n"
    assert shell("lostbookierecoverydelay", "-u", cluster)[0] == 2
    assert shell("lostbookierecoverydelay", "-g", "-s", "5", "-u", cluster)[0] == 2
    assert shell("lostbookierecoverydelay", "-s", "-5", "-u", cluster)[0] == 2


def test_an_audit_needs_an_auditor_to_ask(cluster: str) -> None:
    assert shell("whoisauditor", "-u", cluster)[1] == "No auditor elected\n"
    code, _, err = shell("triggeraudit", "-u", cluster)
    assert (code, "No auditor elected" in err) == (1, True)
    assert shell("autorecovery", "-disable", "-u", cluster)[0] == 0
    code, _, err = shell("triggeraudit", "-u", cluster)
    assert (code, "disabled" in err) == (1, True)
    assert shell("autorecovery", "-enable", "-u", cluster)[0] == 0

    async def ask(driver: MetadataDriver) -> int:
        await driver.auditor.campaign(BOOKIE)
        assert (await asyncio.to_thread(shell, "whoisauditor", "-u", cluster))[1] == f"Auditor: {BOOKIE}\n"
        await driver.underreplication.init_lost_bookie_recovery_delay(30)
        heard = driver.underreplication.watch_lost_bookie_recovery_delay()
        assert await anext(heard) == 30
        assert (await asyncio.to_thread(shell, "triggeraudit", "-u", cluster))[0] == 0
        return await anext(heard)

    assert store(cluster, ask) == 30


def test_checks_are_made_due(cluster: str) -> None:
    assert shell("forceauditchecks", "-u", cluster)[0] == 2

    async def set_all(driver: MetadataDriver) -> None:
        for kind in CheckKind:
            await driver.underreplication.set_check_time(kind, 1_700_000_000_000_000)

    async def times(driver: MetadataDriver) -> list[int]:
        return [await driver.underreplication.get_check_time(kind) for kind in CheckKind]

    store(cluster, set_all)
    code, out, _ = shell("forceauditchecks", "-calc", "-rc", "-u", cluster)
    assert code == 0
    assert [line.split(" to ")[0] for line in out.splitlines()] == [
        "Resetting CheckAllLedgersCTime",
        "Resetting ReplicasCheckCTime",
    ]
    every, placement, replicas = store(cluster, times)
    assert every == replicas < placement


def test_recover_asks_first_and_knows_what_a_bookie_is(cluster: str) -> None:
    code, _, err = shell("recover", BOOKIE, "-u", cluster, answer="n\n")
    assert (code, "nothing was changed" in err) == (1, True)
    code, _, err = shell("recover", "no bookie at all/", "-f", "-u", cluster)
    assert code == 2
    assert "no bookie at all/" in err
    assert shell("recover", BOOKIE, "-f", "-u", cluster) == (0, "", "")
    code, out, _ = shell("recover", BOOKIE, "-q", "--json", "-u", cluster)
    assert json.loads(out) == {"ledgers": [], "of": {BOOKIE: 0}}


def test_a_bookie_that_runs_is_not_decommissioned(cluster: str) -> None:
    async def running(driver: MetadataDriver) -> tuple[int, str, str]:
        await register(driver)
        return await asyncio.to_thread(shell, "decommissionbookie", "-bookieid", BOOKIE, "-u", cluster)

    code, _, err = store(cluster, running)
    assert code == 1
    assert "is not shutdown yet" in err
    code, _, err = shell("decommissionbookie", "-bookieid", OTHER, "-u", cluster)
    assert (code, "No auditor elected" in err) == (1, True)
