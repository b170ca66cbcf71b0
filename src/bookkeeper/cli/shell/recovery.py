"""Repair by hand: `recover` and `decommissionbookie` (spec autorecovery-admin §7.1, §7.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from ...autorecovery.daemon import connected, repair_with
from ...autorecovery.manual import LedgerOutcome, Recovery, decommission, ledgers_of
from ...autorecovery.repair import Repair
from ...client.client import BookKeeper
from ...config import ServerConfiguration
from ...errors import ConfigurationError, CookieNotFound
from ...metadata.api import ANY, MetadataDriver
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime import Runtime
from ...types import BookieId, parse_bookie_id
from ..options import JsonOption, grouped
from ..output import EXIT_ERROR, EXIT_USAGE, complain, console, execute, fail, print_json, remark
from ..settings import bookie_settings
from .common import ClusterOptions, sure


def _connected(
    cluster: ClusterOptions,
    work: Callable[[MetadataDriver, BookKeeper, Repair], Awaitable[Any]],
    **overrides: object,
) -> Any:
    """Run `work` with a driver, a client and repair by the settings that are there; returns what it returns."""
    uri = cluster.address()
    try:
        config = bookie_settings(cluster.conf, EXIT_USAGE, **overrides) if cluster.conf else _plain(overrides)
    except ConfigurationError as error:
        fail(str(error), EXIT_USAGE)

    async def main(runtime: Runtime) -> Any:
        async with connected(runtime, config, uri) as (driver, client):
            return await work(driver, client, repair_with(runtime, config, driver, client))

    return execute(main)


def _plain(overrides: dict[str, object]) -> ServerConfiguration:
    return ServerConfiguration.from_mapping({key: value for key, value in overrides.items() if value is not None})


def _bookies(text: str) -> list[BookieId]:
    try:
        return [parse_bookie_id(part.strip()) for part in text.split(",")]
    except ConfigurationError as error:
        fail(str(error), EXIT_USAGE)


@grouped
def recover(
    bookies: Annotated[str, typer.Argument(metavar="BOOKIE[,BOOKIE...]", help="Those whose copies are made again.")],
    cluster: ClusterOptions,
    query: Annotated[bool, typer.Option("--query", "-query", "-q", help="Only list the ledgers concerned.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dryrun", "-dryrun", "-dr", help="Only print what would be moved where.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", "-force", "-f", help="Do not ask.")] = False,
    ledger_id: Annotated[int | None, typer.Option("--ledger", "-ledger", "-l", min=0, help="Only this one.")] = None,
    skip_open: Annotated[
        bool, typer.Option("--skipOpenLedgers", "-skipOpenLedgers", "-sk", help="Fence no writer.")
    ] = False,
    delete_cookie: Annotated[
        bool, typer.Option("--deleteCookie", "-deleteCookie", "-d", help="Take their cookies away afterwards.")
    ] = False,
    skip_unrecoverable: Annotated[
        bool,
        typer.Option(
            "--skipUnrecoverableLedgers", "-skipUnrecoverableLedgers", "-sku", help="Ledgers that fail are no failure."
        ),
    ] = False,
    rate: Annotated[
        int, typer.Option("--replicationRate", "-replicationRate", "-rate", help="Bytes a second; -1: no bound.")
    ] = -1,
    as_json: JsonOption = False,
) -> None:
    """Copy what these bookies hold to others, and take them out of the ledgers' metadata.

    They may run or not: one that runs is drained. Ledgers that are being written to them are ended, and their writers
    fenced, unless --skipOpenLedgers is said.
    """
    sources = _bookies(bookies)
    if not (query or dry_run or force) and not sure(f"Are you sure to recover {', '.join(sources)}?"):
        fail("nothing was changed", EXIT_ERROR)

    if query:
        _print_query(_connected(cluster, partial(_concerned, sources, ledger_id)), sources, as_json)
        return
    said = (lambda _: None) if as_json else partial(_print_outcome, sources=sources, dry_run=dry_run)
    job = _Job(sources, ledger_id, skip_open, dry_run, delete_cookie, said)
    outcomes = _connected(cluster, job.run, replicationRateByBytes=rate)
    if as_json:
        print_json([_as_json(outcome) for outcome in outcomes])
    failed = [outcome for outcome in outcomes if outcome.error]
    if failed and not skip_unrecoverable and not dry_run:
        fail(f"{len(failed)} of {len(outcomes)} ledgers could not be recovered")


async def _concerned(
    sources: list[BookieId], ledger_id: int | None, driver: MetadataDriver, _client: BookKeeper, _repair: Repair
) -> list[LedgerMetadata]:
    """The ledgers that name one of these bookies."""
    return [record async for record in ledgers_of(driver, sources) if ledger_id in (None, record.ledger_id)]


@dataclass(frozen=True)
class _Job:
    """What `recover` was asked to do."""

    sources: list[BookieId]
    ledger_id: int | None
    skip_open: bool
    dry_run: bool
    delete_cookies: bool
    said: Callable[[LedgerOutcome], None]
    """Told of every ledger when it is done."""

    async def run(self, driver: MetadataDriver, client: BookKeeper, repair: Repair) -> list[LedgerOutcome]:
        recovery = Recovery(client, repair, self.sources, skip_open=self.skip_open, dry_run=self.dry_run)
        outcomes = []
        async for record in ledgers_of(driver, self.sources):
            if self.ledger_id not in (None, record.ledger_id):
                continue
            if (outcome := await recovery.recover(record.ledger_id)) is not None:
                outcomes.append(outcome)
                self.said(outcome)
        if self.delete_cookies and not self.dry_run and not any(outcome.error for outcome in outcomes):
            for bookie in self.sources:
                await _delete_cookie(driver, bookie)
        return outcomes


def _marked(ensemble: tuple[BookieId, ...], sources: list[BookieId]) -> str:
    return f"[{', '.join(f'{bookie}*' if bookie in sources else bookie for bookie in ensemble)}]"


def _print_outcome(outcome: LedgerOutcome, sources: list[BookieId], dry_run: bool) -> None:
    done = "Recovered" if not dry_run else "Would recover"
    fence = "  [fence required]" if outcome.fenced else ""
    console.print(f"{done} ledger {outcome.ledger_id} :{fence}", markup=False, soft_wrap=True)
    for move in outcome.moves:
        if move.new is None:
            console.print(f"  Fragment [{move.first} - {move.last}] : not moved", markup=False, soft_wrap=True)
            continue
        console.print(f"  Fragment [{move.first} - {move.last}] : ", markup=False, soft_wrap=True)
        console.print(f"    old ensemble : {_marked(move.old, sources)}", markup=False, soft_wrap=True)
        console.print(f"    new ensemble : {_marked(move.new, sources)}", markup=False, soft_wrap=True)
    if outcome.error:
        complain(f"ledger {outcome.ledger_id}: {outcome.error}")


def _as_json(outcome: LedgerOutcome) -> dict[str, object]:
    return {
        "ledger": outcome.ledger_id,
        "fenced": outcome.fenced,
        "error": outcome.error or None,
        "fragments": [
            {"first": move.first, "last": move.last, "old": list(move.old), "new": list(move.new) if move.new else None}
            for move in outcome.moves
        ],
    }


def _print_query(records: list[LedgerMetadata], sources: list[BookieId], as_json: bool) -> None:
    count = dict.fromkeys(sources, 0)
    for record in records:
        for bookie in {member for ensemble in record.ensembles.values() for member in ensemble}.intersection(sources):
            count[bookie] += 1
    if as_json:
        print_json({"ledgers": [record.ledger_id for record in records], "of": count})
        return
    console.print("NOTE: Bookies in inspection list are marked with '*'.")
    for record in records:
        console.print(f"ledger {record.ledger_id} : {record.state.name}", soft_wrap=True)
        for first, ensemble in record.ensembles.items():
            console.print(f"  {first} : {_marked(ensemble, sources)}", markup=False, soft_wrap=True)
    console.print(
        f"summary: [ {', '.join(f'{bookie}={number}' for bookie, number in count.items())} ]",
        markup=False,
        soft_wrap=True,
    )


async def _delete_cookie(driver: MetadataDriver, bookie: BookieId) -> bool:
    try:
        await driver.cookies.remove(bookie, ANY)
    except CookieNotFound:
        return False
    return True


@grouped
def decommissionbookie(
    cluster: ClusterOptions,
    bookie: Annotated[
        str, typer.Option("--bookieid", "-bookieid", help="The bookie, which has been stopped for good.")
    ],
) -> None:
    """Wait until autorecovery has made the copies of a stopped bookie again, then take its cookie away."""
    (source,) = _bookies(bookie)

    def waits(ledgers: int, seconds: float) -> None:
        remark(
            f"Count of Ledgers which need to be rereplicated: {ledgers}, waiting {seconds:.0f} seconds for next check"
        )

    async def work(driver: MetadataDriver, _client: BookKeeper, repair: Repair) -> bool:
        await decommission(driver, repair, source, waits)
        return await _delete_cookie(driver, source)

    had_cookie = _connected(cluster, work)
    console.print(
        f"The ledgers stored in the given decommissioning bookie: {source} are properly replicated",
        markup=False,
        soft_wrap=True,
    )
    if had_cookie:
        console.print(
            f"Cookie of the decommissioned bookie: {source} is deleted successfully", markup=False, soft_wrap=True
        )
    else:
        remark(f"bookie {source} had no cookie")
