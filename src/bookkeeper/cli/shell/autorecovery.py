"""Under-replicated ledgers, the auditor, and the switches of autorecovery (spec autorecovery-admin §8.3)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...autorecovery import manual
from ...errors import AlreadyDisabled, AlreadyEnabled
from ...metadata.api import CheckKind, MetadataDriver, UnderreplicatedLedger
from ..options import JsonOption, grouped
from ..output import EXIT_USAGE, console, execute, fail, print_json
from .common import ClusterOptions, in_cluster

CHECK_LONG_AGO_MS = 21 * 24 * 3600 * 1000
"""How far back `forceauditchecks` puts the last check."""


@grouped
def listunderreplicated(
    cluster: ClusterOptions,
    missing: Annotated[
        str, typer.Option("--missingreplica", "-missingreplica", "-mr", help="Those that lost this bookie's copies.")
    ] = "",
    excluding: Annotated[
        str,
        typer.Option("--excludingmissingreplica", "-excludingmissingreplica", "-emr", help="Those that did not."),
    ] = "",
    print_missing: Annotated[
        bool, typer.Option("--printmissingreplica", "-printmissingreplica", "-pmr", help="Which bookies' copies.")
    ] = False,
    print_worker: Annotated[
        bool,
        typer.Option("--printreplicationworkerid", "-printreplicationworkerid", "-prw", help="Who repairs them."),
    ] = False,
    only_count: Annotated[
        bool, typer.Option("--onlydisplayledgercount", "-onlydisplayledgercount", "-c", help="How many there are.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List ledgers that are marked for repair: copies of them are missing."""

    def wanted(replicas: Any) -> bool:
        return (not missing or missing in replicas) and (not excluding or excluding not in replicas)

    async def look(driver: MetadataDriver) -> list[tuple[UnderreplicatedLedger, str | None]]:
        marks = driver.underreplication
        return [(mark, await marks.lock_owner(mark.ledger_id)) async for mark in marks.list(wanted)]

    rows = in_cluster(cluster, look)
    if as_json:
        print_json([_as_json(mark, worker) for mark, worker in rows])
        return
    for mark, worker in [] if only_count else rows:
        _print_mark(mark, worker if print_worker else None, print_missing)
    console.print(f"Under replicated ledger count: {len(rows)}")


def _as_json(mark: UnderreplicatedLedger, worker: str | None) -> dict[str, object]:
    ctime = mark.ctime if mark.ctime >= 0 else None
    return {"ledger": mark.ledger_id, "missing": list(mark.replicas), "ctime": ctime, "worker": worker}


def _print_mark(mark: UnderreplicatedLedger, worker: str | None, with_missing: bool) -> None:
    console.print(str(mark.ledger_id))
    if mark.ctime >= 0:
        typer.echo(f"\tCtime : {mark.ctime}")
    for replica in mark.replicas if with_missing else ():
        typer.echo(f"\tMissingReplica : {replica}")
    if worker is not None:
        typer.echo(f"\tReplicationWorkerId : {worker}")


@grouped
def whoisauditor(cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """Print which autorecovery process looks after lost bookies."""

    async def look(driver: MetadataDriver) -> str | None:
        return await driver.auditor.current()

    found = in_cluster(cluster, look)
    if as_json:
        print_json({"auditor": found})
    else:
        console.print("No auditor elected" if found is None else f"Auditor: {found}", markup=False, soft_wrap=True)


@grouped
def autorecovery(
    cluster: ClusterOptions,
    enable: Annotated[bool, typer.Option("--enable", "-enable", "-e", help="Repair again.")] = False,
    disable: Annotated[
        bool, typer.Option("--disable", "-disable", "-d", help="Repair nothing in the whole cluster.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Switch the repair of lost copies on or off for the whole cluster; without options: say how it stands."""

    async def change(driver: MetadataDriver) -> tuple[bool, str]:
        marks = driver.underreplication
        if enable:
            try:
                await marks.enable()
            except AlreadyEnabled:
                return True, "Autorecovery already enabled. Doing nothing"
            return True, "Enabling autorecovery"
        if disable:
            try:
                await marks.disable()
            except AlreadyDisabled:
                return False, "Autorecovery already disabled. Doing nothing"
            return False, "Disabling autorecovery"
        enabled = await marks.is_enabled()
        return enabled, f"Autorecovery is {'enabled' if enabled else 'disabled'}."

    enabled, text = in_cluster(cluster, change)
    if as_json:
        print_json({"enabled": enabled})
    else:
        console.print(text)


@grouped
def queryautorecoverystatus(cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """List the ledgers that are being repaired now, and by whom."""

    async def look(driver: MetadataDriver) -> list[tuple[int, str]]:
        marks = driver.underreplication
        owners = [(mark.ledger_id, await marks.lock_owner(mark.ledger_id)) async for mark in marks.list()]
        return [(ledger_id, owner) for ledger_id, owner in owners if owner is not None]

    rows = in_cluster(cluster, look)
    if as_json:
        print_json([{"ledger": ledger_id, "worker": owner} for ledger_id, owner in rows])
        return
    console.print("CurrentRecoverLedgerInfo:")
    if not rows:
        typer.echo("\t No Ledger is being recovered.")
    for ledger_id, owner in rows:
        typer.echo(f"\tLedgerId:{ledger_id}\tBookieId:{owner}")


@grouped
def lostbookierecoverydelay(
    cluster: ClusterOptions,
    get: Annotated[bool, typer.Option("--get", "-get", "-g", help="Print it.")] = False,
    seconds: Annotated[int | None, typer.Option("--set", "-set", "-s", min=0, help="Seconds.")] = None,
    as_json: JsonOption = False,
) -> None:
    """How long a lost bookie may take to come back before its copies are made again. Setting it asks for an audit."""
    if get == (seconds is not None):
        fail("say one of --get and --set SECONDS", EXIT_USAGE)

    async def change(driver: MetadataDriver) -> int:
        marks = driver.underreplication
        if seconds is None:
            return await marks.get_lost_bookie_recovery_delay()
        await marks.set_lost_bookie_recovery_delay(seconds)
        return seconds

    found = in_cluster(cluster, change)
    if as_json:
        print_json({"lostBookieRecoveryDelay": found})
    elif get:
        console.print(f"LostBookieRecoveryDelay value in ZK: {found}")
    else:
        console.print(f"Successfully set LostBookieRecoveryDelay value in ZK: {found}")


@grouped
def triggeraudit(cluster: ClusterOptions) -> None:
    """Ask the auditor to look for lost bookies now."""
    in_cluster(cluster, manual.trigger_audit)


@grouped
def forceauditchecks(
    cluster: ClusterOptions,
    all_ledgers: Annotated[
        bool,
        typer.Option("--checkallledgerscheck", "-checkallledgerscheck", "-calc", help="The check of all ledgers."),
    ] = False,
    placement: Annotated[
        bool, typer.Option("--placementpolicycheck", "-placementpolicycheck", "-ppc", help="Of the placement.")
    ] = False,
    replicas: Annotated[bool, typer.Option("--replicascheck", "-replicascheck", "-rc", help="Of replicas.")] = False,
) -> None:
    """Have periodic checks be due when an auditor begins the next time."""
    chosen = {
        CheckKind.ALL_LEDGERS: ("CheckAllLedgersCTime", all_ledgers),
        CheckKind.PLACEMENT_POLICY: ("PlacementPolicyCheckCTime", placement),
        CheckKind.REPLICAS: ("ReplicasCheckCTime", replicas),
    }
    if not any(wanted for _, wanted in chosen.values()):
        fail("say at least one of -calc, -ppc and -rc", EXIT_USAGE)
    long_ago = execute(_now_ms) - CHECK_LONG_AGO_MS

    async def change(driver: MetadataDriver) -> None:
        for kind, (_, wanted) in chosen.items():
            if wanted:
                await driver.underreplication.set_check_time(kind, long_ago)

    in_cluster(cluster, change)
    for name, wanted in chosen.values():
        if wanted:
            console.print(f"Resetting {name} to : {long_ago}")


async def _now_ms(runtime: Any) -> int:
    return int(runtime.wall_ms())
