"""A replicated, durable, append-only ledger store: Apache BookKeeper's protocol and formats, in Python.

The names below are loaded when they are first used: a bookie process does not pay for the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.client import BookieInfo, BookKeeper, connect
    from .client.entry import LastConfirmedAndEntry, LedgerEntry
    from .client.reader import LedgerReader
    from .client.writer import LedgerAdvWriter, LedgerWriter
    from .config import ClientConfiguration, ServerConfiguration
    from .errors import BKError, BookKeeperError
    from .metadata.ledger_metadata import LedgerMetadata
    from .types import BookieId, DigestType, LedgerState, WriteFlag
    from .version import __version__

_HOMES = {
    "connect": "client.client",
    "BookKeeper": "client.client",
    "BookieInfo": "client.client",
    "LedgerReader": "client.reader",
    "LedgerWriter": "client.writer",
    "LedgerAdvWriter": "client.writer",
    "LedgerEntry": "client.entry",
    "LastConfirmedAndEntry": "client.entry",
    "LedgerMetadata": "metadata.ledger_metadata",
    "BookieId": "types",
    "DigestType": "types",
    "LedgerState": "types",
    "WriteFlag": "types",
    "ClientConfiguration": "config",
    "ServerConfiguration": "config",
    "BookKeeperError": "errors",
    "BKError": "errors",
    "__version__": "version",
}

__all__ = [
    "connect",
    "BookKeeper",
    "BookieInfo",
    "LedgerReader",
    "LedgerWriter",
    "LedgerAdvWriter",
    "LedgerEntry",
    "LastConfirmedAndEntry",
    "LedgerMetadata",
    "BookieId",
    "DigestType",
    "LedgerState",
    "WriteFlag",
    "ClientConfiguration",
    "ServerConfiguration",
    "BookKeeperError",
    "BKError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
