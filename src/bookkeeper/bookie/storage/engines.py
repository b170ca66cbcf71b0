"""From `ledgerStorageClass` to a storage engine (spec bookie-server §5.4).

Cookies do not say which engine wrote a directory, and an engine that is not the right one sees no data at all. So
before one is opened, the index directories are looked over for another engine's files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...config import ServerConfiguration
from ...errors import ConfigurationError
from ...runtime import Files, Runtime
from ..file_names import INDEX_SUFFIX
from .api import LedgerStorage
from .db_storage import DbLedgerStorage

DB = "DbLedgerStorage"
INTERLEAVED = "InterleavedLedgerStorage"
SORTED = "SortedLedgerStorage"
_NAMES = (DB, INTERLEAVED, SORTED)

_BUCKET = re.compile(r"[0-9a-f]{1,2}")


def finds_ledgers_by_place(config: ServerConfiguration) -> bool:
    """Whether the engine finds a ledger's directory by its place in the list: then the lists must never change."""
    return config.ledgerStorageClass.rpartition(".")[2] == DB


def create_storage(runtime: Runtime, config: ServerConfiguration, index_directories: Sequence[str]) -> LedgerStorage:
    """The configured engine, not opened yet. `index_directories` are looked over for files of another one. Blocks.

    Raises `ConfigurationError` for an unknown engine, one that is not available, and data of another one.
    """
    name = config.ledgerStorageClass.rpartition(".")[2]
    if name not in _NAMES:
        raise ConfigurationError(
            f"ledgerStorageClass={config.ledgerStorageClass} is unknown: there are {', '.join(_NAMES)}"
        )
    if name != DB:
        raise ConfigurationError(f"ledgerStorageClass={config.ledgerStorageClass} is not available: use {DB}")
    for path in index_directories:
        found = _index_file(runtime.files, path)
        if found is not None:
            raise ConfigurationError(
                f"{found} was written by {INTERLEAVED} or {SORTED}, but ledgerStorageClass is "
                f"{config.ledgerStorageClass}: {DB} would not see the data"
            )
    return DbLedgerStorage(runtime, config)


def _index_file(files: Files, path: str) -> str | None:
    """An index file `xx/yy/<ledger>.idx` below `path`, if there is one."""
    for first in files.listdir(path):
        if not _BUCKET.fullmatch(first) or not files.is_dir(f"{path}/{first}"):
            continue
        for second in files.listdir(f"{path}/{first}"):
            bucket = f"{path}/{first}/{second}"
            if _BUCKET.fullmatch(second) and files.is_dir(bucket):
                for name in files.listdir(bucket):
                    if name.endswith(INDEX_SUFFIX):
                        return f"{bucket}/{name}"
    return None
