"""Result codes: what a bookie's status, or a metadata store's error, means to the user of the client.

Spec client §1.2 (statuses), §9.3 and §12.6 (metadata). A status that has no meaning of its own becomes the
operation's default.
"""

from __future__ import annotations

from ...errors import (
    BKError,
    BookKeeperError,
    LedgerExistError,
    LedgerExists,
    LedgerIdOverflow,
    LedgerIdOverflowError,
    MetadataSerializationError,
    MetadataTimeoutError,
    MetadataVersionError,
    MetaStoreError,
    NoSuchLedger,
    NoSuchLedgerOnMetadataError,
    SerializationError,
    ServiceUnavailable,
    SessionLost,
    StoreTimeout,
    VersionConflict,
    ZKError,
)
from ...protocol.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    GetBookieInfoRequest,
    GetListOfEntriesRequest,
    Operation,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    Status,
    WriteLacRequest,
)
from ...quorum.coverage import OK as OK

READ = -1
DIGEST_MISMATCH = -5
NO_SUCH_LEDGER = -7
BOOKIE_UNAVAILABLE = -8
WRITE = -12
NO_SUCH_ENTRY = -13
CLIENT_CLOSED = -19
TIMEOUT = -23
SECURITY = -24
UNAUTHORIZED = -102
TOO_MANY_REQUESTS = -105
DATA_UNKNOWN = -108

EXPLICIT_NEGATIVES = frozenset({NO_SUCH_ENTRY, NO_SUCH_LEDGER})
"""The answers that prove absence on one bookie; everything else but OK is unknown (§1.2)."""

_STATUS_CODES: dict[int, int] = {
    Status.EOK: OK,
    Status.ENOENTRY: NO_SUCH_ENTRY,
    Status.ENOLEDGER: NO_SUCH_LEDGER,
    Status.EBADVERSION: -16,
    Status.EUA: UNAUTHORIZED,
    Status.EFENCED: -101,
    Status.EREADONLY: -104,
    Status.ETOOMANYREQUESTS: TOO_MANY_REQUESTS,
    Status.EUNKNOWNLEDGERSTATE: DATA_UNKNOWN,
}

_WRITES = frozenset({Operation.ADD_ENTRY, Operation.WRITE_LAC, Operation.FORCE_LEDGER})


def default_code(operation: int) -> int:
    """The result code of `operation` for a status without a meaning of its own."""
    if operation == Operation.START_TLS:
        return SECURITY
    return WRITE if operation in _WRITES else READ


def result_code(status: int, default: int) -> int:
    """The client's result code for a bookie's status."""
    return _STATUS_CODES.get(status, default)


LOCAL_FAILURES = frozenset({BOOKIE_UNAVAILABLE, CLIENT_CLOSED, TIMEOUT})
"""Codes of requests that ended without an answer."""

_CODE_STATUSES = {code: status for status, code in _STATUS_CODES.items()}


def status_of(code: int) -> int:
    """The status behind the result code of an answered read; what has no code of its own counts as EIO."""
    return _CODE_STATUSES.get(code, Status.EIO)


_METADATA_ERRORS: tuple[tuple[type[BookKeeperError], type[BKError]], ...] = (
    (NoSuchLedger, NoSuchLedgerOnMetadataError),
    (LedgerExists, LedgerExistError),
    (VersionConflict, MetadataVersionError),
    (LedgerIdOverflow, LedgerIdOverflowError),
    (SerializationError, MetadataSerializationError),
    (StoreTimeout, MetadataTimeoutError),
    (ServiceUnavailable, ZKError),
    (SessionLost, ZKError),
)


def from_metadata_error(error: BookKeeperError, ledger_id: int | None = None) -> BKError:
    """The client's error for what a metadata store reported."""
    for theirs, ours in _METADATA_ERRORS:
        if isinstance(error, theirs):
            return ours(str(error), ledger_id=ledger_id)
    return MetaStoreError(str(error), ledger_id=ledger_id)


_OPERATIONS: dict[type, Operation] = {
    AddRequest: Operation.ADD_ENTRY,
    ReadRequest: Operation.READ_ENTRY,
    BatchReadRequest: Operation.BATCH_READ_ENTRY,
    AuthRequest: Operation.AUTH,
    StartTlsRequest: Operation.START_TLS,
    WriteLacRequest: Operation.WRITE_LAC,
    ReadLacRequest: Operation.READ_LAC,
    ForceLedgerRequest: Operation.FORCE_LEDGER,
    GetBookieInfoRequest: Operation.GET_BOOKIE_INFO,
    GetListOfEntriesRequest: Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
}


def operation_of(message: Request) -> Operation:
    """What kind of request this is."""
    return _OPERATIONS[type(message)]
