"""Is the index of a stopped bookie right?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ....bookie.offline.consistency import check_entries, check_index, index_roots
from ....bookie.scrub.judging import ids_only, judge_of
from ....bookie.storage.examine import Judge
from ....config import ServerConfiguration
from ....metadata.ledger_metadata import LedgerMetadata
from ....runtime import Runtime
from ...options import JsonOption
from ...output import EXIT_ERROR, complain, counted, entries_text, execute, print_json
from ..places import configured
from .place import BookieConf, place_of, telling


def localconsistencycheck(
    conf: BookieConf = None,
    ids_alone: Annotated[
        bool, typer.Option("--ids-only", help="Do not ask the metadata store, and so look at ids and not at digests.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read every entry of a stopped bookie that is in its index, and say which are not what they were.

    Ids must be those that the index has; digests are verified where the metadata store knows the ledger. What came
    since the last flush is in the journal, and is not looked at. Nothing is mended: a running bookie does that
    (`localScrubInterval`, `localConsistencyCheckOnStartup`). Exit code 1 if anything is damaged.
    """
    config = configured(conf)

    async def check(runtime: Runtime) -> dict[str, Any]:
        known = {} if ids_alone else await _known(runtime, config)
        async with telling("looking at") as tell:
            workers = runtime.workers("consistency check")
            try:
                return await workers.submit(_check_all, runtime, config, known, tell)
            finally:
                await workers.close()

    found = execute(check)
    if as_json:
        print_json(found)
    else:
        for each in found["damaged"]:
            complain(f"ledger {each['ledger']}, entry {each['entry']}: {each['what']}")
        seen = f"{counted(found['ledgers'], 'ledger')}, {entries_text(found['entries'])}"
        print(f"=== Check {'returned errors' if found['damaged'] else 'passed'} === ({seen})")
    if found["damaged"]:
        raise typer.Exit(EXIT_ERROR)


async def _known(runtime: Runtime, config: ServerConfiguration) -> dict[int, LedgerMetadata]:
    """The metadata of the ledgers that name this bookie; a running one is refused."""
    async with place_of(runtime, config) as place:
        await place.check_stopped()
        return await place.ledgers()


def _check_all(
    runtime: Runtime, config: ServerConfiguration, known: dict[int, LedgerMetadata], tell: Callable[[str], None]
) -> dict[str, Any]:
    """For a worker."""

    def judge(ledger_id: int) -> Judge:
        tell(f"ledger {ledger_id}")
        return judge_of(known[ledger_id]) if ledger_id in known else ids_only

    ledgers: set[int] = set()
    entries = 0
    damaged: list[dict[str, Any]] = []
    for ledger_path, index_path in index_roots(config):
        for part in check_entries(runtime, config, ledger_path, index_path, judge):
            ledgers.add(part.ledger_id)
            entries += part.entries
            damaged += [{"ledger": part.ledger_id, "entry": each.entry_id, "what": each.what} for each in part.damage]
    return {"ledgers": len(ledgers), "entries": entries, "digests": bool(known), "damaged": damaged}


def check_db_ledgers_index(
    conf: BookieConf = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-verbose", "-v", help="Print each ledger's id.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read every record of the `ledgers` database of a stopped bookie. Exit code 1 if one cannot be read."""
    config = configured(conf)

    def on_record(ledger_id: int) -> None:
        if verbose and not as_json:
            print(f"ledger {ledger_id}")

    async def check(runtime: Runtime) -> list[dict[str, Any]]:
        found = []
        for _, index_path in index_roots(config):
            index = check_index(runtime, index_path, on_record)
            found.append({"dir": index_path, "ledgers": index.ledgers, "damaged": index.damaged})
        return found

    found = execute(check)
    damaged = any(each["damaged"] for each in found)
    if as_json:
        print_json(found)
    else:
        for each in found:
            for ledger_id in each["damaged"]:
                complain(f"{each['dir']}: the record of ledger {ledger_id} cannot be read")
        print(f"Ledgers index check is done: {'there is damage' if damaged else 'all is well'}")
    if damaged:
        raise typer.Exit(EXIT_ERROR)
