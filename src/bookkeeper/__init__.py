"""A replicated, durable, append-only ledger store: Apache BookKeeper's protocol and formats, in Python.

The names below are loaded when they are first used: a bookie process does not pay for the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.client import BookieInfo, BookKeeper, connect
    from .client.entry import LastConfirmedAndEntry, LedgerEntry
    from .client.opening import Opening
    from .client.reader import LedgerReader
    from .client.writer import LedgerAdvWriter, LedgerWriter
    from .config import ClientConfiguration, ServerConfiguration
    from .errors import (
        AccessError,
        AddEntryQuorumTimeoutError,
        BackpressureError,
        BKError,
        BookieRequestError,
        BookieUnavailableError,
        BookKeeperError,
        ClientClosedError,
        ClientError,
        ConfigurationError,
        DataUnknownError,
        DigestMismatchError,
        DigestNotInitializedError,
        DuplicateEntryIdError,
        IllegalOpError,
        IncorrectParameterError,
        LedgerClosedError,
        LedgerExistError,
        LedgerFencedError,
        LedgerIdOverflowError,
        LedgerRecoveryError,
        LedgerStateError,
        MetadataSerializationError,
        MetadataStoreError,
        MetadataTimeoutError,
        MetadataVersionError,
        MetaStoreError,
        NoBookieAvailableError,
        NoSuchEntryError,
        NoSuchLedgerError,
        NoSuchLedgerOnMetadataError,
        NotEnoughBookiesError,
        OperationInterruptedError,
        ProtocolError,
        ProtocolVersionError,
        QuorumError,
        ReadError,
        ReplicationError,
        RequestTimeoutError,
        SecurityError,
        TooManyRequestsError,
        UnauthorizedError,
        UnclosedFragmentError,
        UnexpectedError,
        WriteError,
        WriteOnReadOnlyError,
        WrongLoopError,
        WrongTypeError,
        ZKError,
    )
    from .metadata.ledger_metadata import LedgerMetadata
    from .types import BookieId, DigestType, LedgerState, WriteFlag
    from .version import __version__

_PUBLIC = {
    "client.client": ("BookKeeper", "BookieInfo", "connect"),
    "client.opening": ("Opening",),
    "client.entry": ("LastConfirmedAndEntry", "LedgerEntry"),
    "client.reader": ("LedgerReader",),
    "client.writer": ("LedgerAdvWriter", "LedgerWriter"),
    "config": ("ClientConfiguration", "ServerConfiguration"),
    "errors": (
        "AccessError",
        "AddEntryQuorumTimeoutError",
        "BKError",
        "BackpressureError",
        "BookKeeperError",
        "BookieRequestError",
        "BookieUnavailableError",
        "ClientClosedError",
        "ClientError",
        "ConfigurationError",
        "DataUnknownError",
        "DigestMismatchError",
        "DigestNotInitializedError",
        "DuplicateEntryIdError",
        "IllegalOpError",
        "IncorrectParameterError",
        "LedgerClosedError",
        "LedgerExistError",
        "LedgerFencedError",
        "LedgerIdOverflowError",
        "LedgerRecoveryError",
        "LedgerStateError",
        "MetaStoreError",
        "MetadataSerializationError",
        "MetadataStoreError",
        "MetadataTimeoutError",
        "MetadataVersionError",
        "NoBookieAvailableError",
        "NoSuchEntryError",
        "NoSuchLedgerError",
        "NoSuchLedgerOnMetadataError",
        "NotEnoughBookiesError",
        "OperationInterruptedError",
        "ProtocolError",
        "ProtocolVersionError",
        "QuorumError",
        "ReadError",
        "ReplicationError",
        "RequestTimeoutError",
        "SecurityError",
        "TooManyRequestsError",
        "UnauthorizedError",
        "UnclosedFragmentError",
        "UnexpectedError",
        "WriteError",
        "WriteOnReadOnlyError",
        "WrongLoopError",
        "WrongTypeError",
        "ZKError",
    ),
    "metadata.ledger_metadata": ("LedgerMetadata",),
    "types": ("BookieId", "DigestType", "LedgerState", "WriteFlag"),
    "version": ("__version__",),
}
"""Names by the module they live in."""

_HOMES = {name: home for home, names in _PUBLIC.items() for name in names}

__all__ = [
    "__version__",
    "AccessError",
    "AddEntryQuorumTimeoutError",
    "BKError",
    "BackpressureError",
    "BookKeeper",
    "BookKeeperError",
    "BookieId",
    "BookieInfo",
    "BookieRequestError",
    "BookieUnavailableError",
    "ClientClosedError",
    "ClientConfiguration",
    "ClientError",
    "ConfigurationError",
    "DataUnknownError",
    "DigestMismatchError",
    "DigestNotInitializedError",
    "DigestType",
    "DuplicateEntryIdError",
    "IllegalOpError",
    "IncorrectParameterError",
    "LastConfirmedAndEntry",
    "LedgerAdvWriter",
    "LedgerClosedError",
    "LedgerEntry",
    "LedgerExistError",
    "LedgerFencedError",
    "LedgerIdOverflowError",
    "LedgerMetadata",
    "LedgerReader",
    "LedgerRecoveryError",
    "LedgerState",
    "LedgerStateError",
    "LedgerWriter",
    "MetaStoreError",
    "MetadataSerializationError",
    "MetadataStoreError",
    "MetadataTimeoutError",
    "MetadataVersionError",
    "NoBookieAvailableError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NoSuchLedgerOnMetadataError",
    "NotEnoughBookiesError",
    "Opening",
    "OperationInterruptedError",
    "ProtocolError",
    "ProtocolVersionError",
    "QuorumError",
    "ReadError",
    "ReplicationError",
    "RequestTimeoutError",
    "SecurityError",
    "ServerConfiguration",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UnclosedFragmentError",
    "UnexpectedError",
    "WriteError",
    "WriteFlag",
    "WriteOnReadOnlyError",
    "WrongLoopError",
    "WrongTypeError",
    "ZKError",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
