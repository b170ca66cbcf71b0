"""Which files a bookie has, and which ledgers are in an entry log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ....bookie.file_names import INDEX_SUFFIX, JOURNAL_SUFFIX, LEDGERS, LOCATIONS, LOG_SUFFIX, current, log_name
from ....bookie.offline.contents import files_below
from ....bookie.storage.compaction import measure
from ....errors import ConfigurationError, NoSuchLedger
from ....metadata import configured_service_uri
from ....runtime import Runtime
from ...options import JsonOption
from ...output import EXIT_USAGE, execute, fail, print_json
from ...session import driver_of
from ..places import configured, directories, only_one
from .place import BookieConf


def listfilesondisc(
    conf: BookieConf = None,
    journal: Annotated[bool, typer.Option("--journal", "-journal", "-txn", help="The journals.")] = False,
    entry_log: Annotated[bool, typer.Option("--entrylog", "-entrylog", "-log", help="The entry logs.")] = False,
    index: Annotated[bool, typer.Option("--index", "-index", "-idx", help="The files of the index.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print which files a bookie has: all, or those that are asked for. Those changed last come last.

    The index of DbLedgerStorage is two databases; Java's shell knows index files (.idx) of other storages only.
    """
    places = directories(conf)
    every = not (journal or entry_log or index)

    async def look(runtime: Runtime) -> dict[str, list[str]]:
        def found(roots: tuple[str, ...], is_one: Callable[[Path], bool]) -> list[str]:
            paths = [Path(path).resolve() for root in roots for path in files_below(runtime.files, current(root))]
            return [
                str(path) for path in sorted(filter(is_one, paths), key=lambda path: (path.stat().st_mtime_ns, path))
            ]

        wanted = (
            ("Journal", journal, places.journal, _is_journal),
            ("EntryLog", entry_log, places.ledger, _is_entry_log),
            ("Index", index, places.index, _is_index),
        )
        return {kind: found(roots, is_one) for kind, asked, roots, is_one in wanted if asked or every}

    files = execute(look)
    if as_json:
        print_json(files)
        return
    for kind, paths in files.items():
        print(f"--------- Printing the list of {kind} Files ---------")
        print("\n".join([*paths, ""]))


def _is_journal(path: Path) -> bool:
    return path.suffix == JOURNAL_SUFFIX


def _is_entry_log(path: Path) -> bool:
    """Databases have logs of their own."""
    return path.suffix == LOG_SUFFIX and not _in_database(path)


def _is_index(path: Path) -> bool:
    return path.suffix == INDEX_SUFFIX or _in_database(path)


def _in_database(path: Path) -> bool:
    return path.parent.name in (LEDGERS, LOCATIONS)


def activeledgers(
    log_id: Annotated[int, typer.Option("--logId", "-logId", "--logid", "-l", min=0, help="The entry log's id.")],
    conf: BookieConf = None,
    timeout: Annotated[
        int, typer.Option("--timeout", "-timeout", "-t", min=1, help="Milliseconds that the metadata store gets.")
    ] = 10_000,
    as_json: JsonOption = False,
) -> None:
    """Print the ledgers that have entries in an entry log and still exist, and how many bytes of the log are theirs."""
    config = configured(conf)
    path = only_one(log_name(log_id), directories(conf).ledger, "give each directory's bookie a configuration")
    try:
        uri = configured_service_uri(config)
    except ConfigurationError as error:
        fail(str(error), EXIT_USAGE)

    async def look(runtime: Runtime) -> dict[int, int]:
        sizes = measure(runtime.files, str(path), log_id, runtime.give_way)
        active = {}
        async with asyncio.timeout(timeout / 1000), driver_of(uri, runtime) as driver:
            for ledger_id, size in sorted(sizes.items()):
                try:
                    await driver.ledgers.read(ledger_id)
                except NoSuchLedger:
                    continue
                active[ledger_id] = size
        return active

    active = execute(look)
    if as_json:
        print_json({"log": log_id, "file": str(path), "ledgers": {str(each): size for each, size in active.items()}})
        return
    print(f"Active ledgers on entry log {log_id} as follow:")
    for ledger_id, size in active.items():
        print(f"{ledger_id} ({size} bytes)")
