"""An index of a stopped bookie built anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from ....bookie.file_names import LEDGERS
from ....bookie.node.directories import Directories
from ....bookie.offline import ledgers as ledgers_anew
from ....bookie.offline.consistency import index_roots, opened, options_of
from ....bookie.offline.ledgers import Found
from ....bookie.storage.index import ledgers as ledger_index
from ....bookie.storage.index.ledger_data import NEEDS_INTEGRITY_CHECK, LedgerData
from ....bookie.storage.index.rebuild import rebuild_locations
from ....config import ServerConfiguration
from ....protocol.digest import master_key
from ....runtime import Runtime
from ...options import JsonOption
from ...output import counted, entries_text, execute, fail, print_json
from ..common import agreed
from ..places import configured
from .place import BookieConf, place_of, telling

T = TypeVar("T")

ForceOption = Annotated[bool, typer.Option("--force", "-force", "-f", help="Do not ask.")]


def rebuild_db_ledger_locations_index(conf: BookieConf = None, as_json: JsonOption = False) -> None:
    """Build the location index of a stopped bookie anew, from its entry logs.

    A bookie that finds this index damaged does it by itself when it starts. What there was is kept as
    `locations.damaged`. Entries since the last flush come back from the journal at the next start.
    """
    config = configured(conf)

    def rebuild(runtime: Runtime, tell: Callable[[str], None]) -> dict[str, int]:
        options = options_of(runtime, config)
        counts = {}
        for ledger_path, index_path in index_roots(config):
            store = opened(runtime, index_path, LEDGERS, options.ledgers)
            try:
                known = ledger_index.load(store)
                counts[index_path] = rebuild_locations(runtime, index_path, ledger_path, options.locations, known, tell)
            finally:
                store.close()
        return counts

    async def work(runtime: Runtime) -> dict[str, int]:
        async with place_of(runtime, config) as place:
            await place.check_stopped()
        return await _on_a_worker(runtime, rebuild)

    for_each = execute(work)
    if as_json:
        print_json(for_each)
        return
    for path, count in for_each.items():
        print(f"{path}: the location index was built anew with {entries_text(count)}")


async def _on_a_worker(runtime: Runtime, work: Callable[[Runtime, Callable[[str], None]], T]) -> T:
    workers = runtime.workers("index")
    try:
        async with telling("reading") as tell:
            return await workers.submit(work, runtime, tell)
    finally:
        await workers.close()


def rebuild_db_ledgers_index(
    conf: BookieConf = None,
    force: ForceOption = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-verbose", "-v", help="Print the id of each ledger that is in it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Build the `ledgers` database of a stopped bookie anew: every ledger is fenced.

    For one that is damaged, so that the bookie does not start. It knows ledgers by its entry logs, its journals, and
    the metadata store. Which of them were fenced is lost, so all are: who writes to one loses it, as if it were
    recovered. What there was is kept as `ledgers.damaged`. Explicit LACs are kept as far as journals have them.
    """
    config = configured(conf)
    if not force and not agreed("All ledgers of the bookie will be fenced: writers lose theirs. Are you sure?"):
        fail("nothing was changed")

    async def work(runtime: Runtime) -> dict[str, list[int]]:
        async with place_of(runtime, config) as place:
            await place.check_stopped()
            records = await place.ledgers()
        named = {
            ledger_id: LedgerData(True, master_key(record.password or b"")) for ledger_id, record in records.items()
        }
        return await _on_a_worker(runtime, lambda runtime, tell: _rebuild(runtime, config, named, tell))

    found = execute(work)
    if as_json:
        print_json({path: len(ids) for path, ids in found.items()})
        return
    for path, ids in found.items():
        for ledger_id in ids if verbose else ():
            print(f"ledger {ledger_id}")
        print(f"{path}: the ledgers index was built anew with {counted(len(ids), 'ledger')}, all of them fenced")


def _rebuild(
    runtime: Runtime, config: ServerConfiguration, named: Found, tell: Callable[[str], None]
) -> dict[str, list[int]]:
    """For a worker."""
    roots = index_roots(config)
    journaled = ledgers_anew.of_journals(runtime, Directories.of(config).journal, tell)
    made = {}
    for number, (ledger_path, index_path) in enumerate(roots):
        found: Found = {}
        for known in (named, journaled):
            for ledger_id, data in known.items():
                if ledger_id % len(roots) == number and (data.master_key or ledger_id not in found):
                    found[ledger_id] = data
        ledgers_anew.add_logs(runtime, ledger_path, found, tell)
        ledgers_anew.write_anew(
            runtime,
            index_path,
            options_of(runtime, config).ledgers,
            found,
            limbo=config.dataIntegrityChecking,
            flags=NEEDS_INTEGRITY_CHECK if config.dataIntegrityChecking and number == 0 else 0,
        )
        made[index_path] = sorted(found)
    return made
