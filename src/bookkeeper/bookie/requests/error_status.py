"""Which status a failed request is answered with (spec bookie-server §2.4 to §2.19).

One table per family of requests, from error class to status; the first class that matches counts, so subclasses stand
before their bases. Everything that is not listed is a bug or malformed input that no check caught: EBADREQ, and a log
line for an operator who looks for it.

A negative answer (ENOLEDGER, ENOENTRY) makes clients conclude that data does not exist. It stands here only for the
two errors that the storage raises when it knows; trouble of any other kind is EIO.
"""

from __future__ import annotations

import logging

from ...errors import (
    BookieError,
    CorruptStorageError,
    FencedAndDeletedError,
    FencedError,
    LimboError,
    NoEntryError,
    NoLedgerError,
    NoWritableLedgerDirError,
    ReadOnlyError,
    RejectedError,
    UnauthorizedAccessError,
)
from ...protocol.messages import V2, Status
from ..sharing.log_rate import LogRate

log = logging.getLogger(__name__)
log.addFilter(LogRate())

Table = tuple[tuple[type[BaseException], Status], ...]

_DISK: Table = (
    (NoWritableLedgerDirError, Status.EIO),
    (CorruptStorageError, Status.EIO),
    (OSError, Status.EIO),
)

ADD: Table = (
    (RejectedError, Status.ETOOMANYREQUESTS),
    (ReadOnlyError, Status.EREADONLY),
    (FencedError, Status.EFENCED),
    (FencedAndDeletedError, Status.EFENCED),
    *_DISK,
    (BookieError, Status.EUA),
)
"""Adds and recovery adds."""

READ: Table = (
    (NoLedgerError, Status.ENOLEDGER),
    (FencedAndDeletedError, Status.ENOLEDGER),
    (NoEntryError, Status.ENOENTRY),
    (LimboError, Status.EUNKNOWNLEDGERSTATE),
    (UnauthorizedAccessError, Status.EUA),
    (RejectedError, Status.ETOOMANYREQUESTS),
    *_DISK,
    (BookieError, Status.EUA),
)
"""Everything that reads, fencing included."""

WRITE_LAC: Table = (
    (ReadOnlyError, Status.EREADONLY),
    (NoLedgerError, Status.ENOLEDGER),
    (FencedAndDeletedError, Status.ENOLEDGER),
    (RejectedError, Status.ETOOMANYREQUESTS),
    *_DISK,
    (BookieError, Status.EUA),
)


def status_of(error: BaseException, table: Table) -> Status:
    """The status to answer `error` with."""
    for kind, status in table:
        if isinstance(error, kind):
            if status is Status.EIO:
                log.warning("a request failed on the disk: %s", error)
            return status
    log.error("a request failed unexpectedly", exc_info=error)
    return Status.EBADREQ


def wire_status(status: Status, version: int) -> Status:
    """The status as the peer understands it.

    Java's v2 client does not know EUNKNOWNLEDGERSTATE and drops its connection on it: it gets EIO, which is as far
    from a negative answer (spec bookie-server §2.2, G13).
    """
    if status is Status.EUNKNOWNLEDGERSTATE and version == V2:
        return Status.EIO
    return status
