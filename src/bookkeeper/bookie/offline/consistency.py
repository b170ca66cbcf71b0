"""Is every entry of a stopped bookie where its index says, and what it was (spec bookie-storage §12.6)?

The entries are looked at as the scrubber of a running bookie does it (`storage.examine`); nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...config import ServerConfiguration
from ...errors import BookieError, CorruptStorageError
from ...runtime import KeyValueStore, Runtime
from ..file_names import LEDGERS, LOCATIONS, current
from ..node.directories import Directories
from ..storage.db_storage import directory_options, memory_budget
from ..storage.directory_jobs import DirectoryOptions
from ..storage.examine import Damage, Judge, examine
from ..storage.index import ledger_data
from ..storage.index.locations import LocationIndex

PART = 1024
"""Entries that are looked at together, at most."""

_FIRST_NEGATIVE_KEY = b"\x80"


class Looked(NamedTuple):
    """A part of a ledger."""

    ledger_id: int
    entries: int
    damage: list[Damage]


class IndexRecords(NamedTuple):
    """What was found in the `ledgers` database of one directory."""

    ledgers: int
    damaged: list[int]
    """Ids of records that cannot be read."""


def options_of(runtime: Runtime, config: ServerConfiguration) -> DirectoryOptions:
    """How the databases of the index are opened, as the bookie itself would."""
    return directory_options(config, memory_budget(runtime, config), len(config.ledgerDirectories))


def index_roots(config: ServerConfiguration) -> list[tuple[str, str]]:
    """The `current` of each ledger directory and that of its index."""
    places = Directories.of(config)
    return [(current(ledger), current(index)) for ledger, index in zip(places.ledger, places.index, strict=True)]


def check_index(runtime: Runtime, index_path: str, on_record: Callable[[int], None]) -> IndexRecords:
    """Read every record of the `ledgers` database. Blocks. Raises `CorruptStorageError` if it cannot be opened."""
    store = opened(runtime, index_path, LEDGERS, {"read_only": True})
    ledgers, damaged = 0, []
    try:
        for key, value in store.iterate(b"", _FIRST_NEGATIVE_KEY):
            ledger_id = ledger_data.ledger_of_key(key)
            on_record(ledger_id)
            ledgers += 1
            try:
                ledger_data.decode(value)
            except CorruptStorageError:
                damaged.append(ledger_id)
    finally:
        store.close()
    return IndexRecords(ledgers, damaged)


def check_entries(
    runtime: Runtime, config: ServerConfiguration, ledger_path: str, index_path: str, judge_of: Callable[[int], Judge]
) -> Iterator[Looked]:
    """Look at all entries in the index of a directory. Blocks.

    `judge_of`: who says whether the entries of a ledger are what they were. Raises `CorruptStorageError` if an index
    cannot be read, `BookieError` if a bookie has it open.
    """
    options = options_of(runtime, config)
    store = opened(runtime, index_path, LEDGERS, options.ledgers)
    try:
        keys = (key for key, _ in store.iterate(b"", _FIRST_NEGATIVE_KEY))
        ledgers = sorted({ledger_data.ledger_of_key(key) for key in keys})
        index = LocationIndex(opened(runtime, index_path, LOCATIONS, options.locations))
        try:
            for ledger_id in ledgers:
                yield from _ledger(runtime, index, ledger_path, ledger_id, judge_of(ledger_id))
        finally:
            index.close()
    finally:
        store.close()


def _ledger(runtime: Runtime, index: LocationIndex, path: str, ledger_id: int, judge: Judge) -> Iterator[Looked]:
    after: int | None = 0
    while after is not None:
        found = examine(index, runtime.files, path, runtime.give_way, ledger_id, after, PART, judge)
        yield Looked(ledger_id, found.entries, [*found.damage])
        after = found.after


def opened(runtime: Runtime, index_path: str, name: str, options: Mapping[str, Any]) -> KeyValueStore:
    """A database of the index that is there: opening another would make an empty one. Blocks.

    Raises `CorruptStorageError` if there is none or it is damaged, `BookieError` if another process has it open,
    `OSError`.
    """
    path = f"{index_path}/{name}"
    if not runtime.files.exists(f"{path}/CURRENT"):
        raise CorruptStorageError(f"there is no database {path}")
    try:
        return runtime.open_key_value(path, options)
    except OSError as error:
        if f"{path}/LOCK" in str(error):
            raise BookieError(f"another process has {path} open: stop the bookie first") from error
        raise
