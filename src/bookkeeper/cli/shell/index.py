"""A look into a bookie's index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ...bookie.file_names import LEDGERS, LOCATIONS
from ...bookie.storage.entry_log import format as log_format
from ...bookie.storage.index import ledger_data
from ...bookie.storage.index.ledger_data import LedgerData
from ...bookie.storage.index.locations import LocationIndex
from ...errors import CorruptStorageError
from ...runtime import Runtime
from ..output import EXIT_USAGE, execute, fail
from .places import current_of, directories
from .records import ConfOption, JsonLinesOption, KeysOption, json_line, key_text

LOOKED_UP_AT_ONCE = 1000


def ledger(
    ledger_id: Annotated[int, typer.Argument(min=0, help="Ledger id.")],
    conf: ConfOption = None,
    meta: Annotated[
        bool, typer.Option("--meta", "-meta", "-m", help="What the bookie knows of the ledger, too: key, fence, LAC.")
    ] = False,
    show_keys: KeysOption = False,
    number: Annotated[
        int | None,
        typer.Option(
            "--ledgerdir", "-l", min=0, help="Look in this one of the configured directories only, 0 for the first."
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", "-dir", help="Or the directory itself that holds `locations` and `ledgers`.")
    ] = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Print the entries of a ledger that a bookie has, and where they are.

    They are those in the index (DbLedgerStorage). What came since the last flush is in the journal only: see
    `readjournal`. The position is that of the entry in the log, 4 bytes behind the ByteOffset of `readlog`.
    """
    roots: list[str | Path] = [directory] if directory is not None else list(directories(conf).index)
    if number is not None:
        if number >= len(roots):
            fail(f"-l {number}: directories are 0 to {len(roots) - 1}", EXIT_USAGE)
        roots = [roots[number]]

    async def look(runtime: Runtime) -> None:
        found = False
        for root in roots:
            path = current_of(root)
            data = _ledger_data(runtime, path, ledger_id)
            if meta and data is not None:
                _print_ledger(ledger_id, data, show_keys, as_json)
            found = found or data is not None
            for entry_id, location in _locations(runtime, path, ledger_id):
                found = True
                log_id, position = log_format.log_of(location), log_format.offset_of(location)
                if as_json:
                    json_line(
                        {"ledger": ledger_id, "entry": entry_id, "log": log_id, "pos": position, "dir": str(path)}
                    )
                else:
                    print(f"entry {entry_id}\t:\t(log: {log_id}, pos: {position})")
        if not found:
            fail(f"ledger {ledger_id} is not in the index in {', '.join(str(current_of(root)) for root in roots)}")

    execute(look)


def _ledger_data(runtime: Runtime, path: Path, ledger_id: int) -> LedgerData | None:
    store = runtime.open_key_value(_database(runtime, path, LEDGERS), {"read_only": True})
    try:
        value = store.get(ledger_data.ledger_key(ledger_id)) or store.get(ledger_data.long_ledger_key(ledger_id))
    finally:
        store.close()
    return None if value is None else ledger_data.decode(value)


def _locations(runtime: Runtime, path: Path, ledger_id: int) -> Iterator[tuple[int, int]]:
    index = LocationIndex(runtime.open_key_value(_database(runtime, path, LOCATIONS), {"read_only": True}))
    try:
        ids = index.entries(ledger_id)
        for start in range(0, len(ids), LOOKED_UP_AT_ONCE):
            some = ids[start : start + LOOKED_UP_AT_ONCE]
            yield from zip(some, index.get_many([(ledger_id, entry_id) for entry_id in some]), strict=True)
    finally:
        index.close()


def _database(runtime: Runtime, path: Path, name: str) -> str:
    if not runtime.files.exists(f"{path}/{name}/CURRENT"):
        raise CorruptStorageError(f"there is no database {path}/{name}")
    return f"{path}/{name}"


def _print_ledger(ledger_id: int, data: LedgerData, show_keys: bool, as_json: bool) -> None:
    key = key_text(data.master_key, show_keys)
    lac = None if data.explicit_lac is None else data.explicit_lac.hex()
    if as_json:
        about = {"master_key": key, "fenced": data.fenced, "limbo": bool(data.limbo)}
        json_line({"ledger": ledger_id} | about | {"explicit_lac": lac})
        return
    print(f"master key  : {key}")
    print(f"isFenced     : {str(data.fenced).lower()}")
    if lac is not None:
        print(f"explicit LAC : {lac}")
    if data.limbo:
        print("limbo        : true")
