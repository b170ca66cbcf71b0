"""Every error this package raises, under one base class.

`BookKeeperError` is the root. Below it, by where an error comes from:

- `BKError`: what the client library reports to its user. One class per result code of the public
  API, with the code, and where known the ledger, entry and bookie it is about. An error that means that time is up is
  also a `TimeoutError`, one about an argument's type also a `TypeError`.
- `MetadataError`: what a metadata store reports to the client, the bookie and the tools.
- `BookieError`: what a bookie's storage and request handling report inside the bookie. Never crosses
  the wire; the server turns each into a status code.
- `ProtocolError`: bytes from a peer that are not a legal message.
- `StreamError`: what streams report; `code` is DistributedLog's number where it has one.
- `ConfigurationError`: a setting or argument the user should correct.
"""

from __future__ import annotations

import re
from typing import ClassVar


class BookKeeperError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(BookKeeperError):
    """A setting, address or argument is wrong. The text says which, why, and what to do."""


class ProtocolError(BookKeeperError):
    """Bytes from a peer do not form a legal message. The connection they came on must be closed."""


# --- the client's result codes -------------------------------------------------------------------


class BKError(BookKeeperError):
    """Base class of the client's errors; `code` is BookKeeper's numeric result code."""

    code: ClassVar[int] = -999

    def __init__(
        self,
        message: str = "",
        *,
        ledger_id: int | None = None,
        entry_id: int | None = None,
        bookie: str | None = None,
    ) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0].rstrip("."))
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.bookie = bookie
        self.acknowledged: list[int] = []
        """Ids of the entries that were safe when an `append_many` failed half-way."""

    def __str__(self) -> str:
        text = super().__str__()
        about = [
            f"{name} {value}"
            for name, value in (("ledger", self.ledger_id), ("entry", self.entry_id), ("bookie", self.bookie))
            if value is not None and not re.search(rf"\b{name} {re.escape(str(value))}\b", text)
        ]
        return f"{text} ({', '.join(about)})" if about else text


class ClientError(BKError):
    """The request itself is wrong; nothing was executed."""


class IncorrectParameterError(ClientError):
    """Bad argument; nothing was executed."""

    code = -14


class WrongTypeError(IncorrectParameterError, TypeError):
    """An argument is of a wrong type; nothing was executed."""


class IllegalOpError(ClientError):
    """The operation is not allowed here."""

    code = -100


class WrongLoopError(IllegalOpError, RuntimeError):
    """A client, or what it opened, is used outside the event loop, thread or process that it belongs to."""


class DigestNotInitializedError(ClientError):
    """The digest could not be set up."""

    code = -4


class LedgerStateError(BKError):
    """The ledger is not in a state that allows the operation."""


class LedgerClosedError(LedgerStateError):
    """The ledger or its handle is closed."""

    code = -11


class LedgerFencedError(LedgerStateError):
    """Another client has fenced the ledger: this writer may no longer append."""

    code = -101


class LedgerExistError(LedgerStateError):
    """A ledger with this id exists already."""

    code = -20


class NoSuchLedgerError(LedgerStateError):
    """There is no such ledger. The one to catch; of this class itself when it is a bookie that does not know it."""

    code = -7


class NoSuchLedgerOnMetadataError(NoSuchLedgerError):
    """The metadata store does not know the ledger: it was never created, or is deleted."""

    code = -25


class UnclosedFragmentError(LedgerStateError):
    """Replication refused: the fragment is still being written."""

    code = -103


class AccessError(BKError):
    """Access was denied."""


class UnauthorizedError(AccessError):
    """Wrong password, or the connection is not authenticated."""

    code = -102


class SecurityError(AccessError):
    """The secure connection could not be set up."""

    code = -24


class BookieRequestError(BKError):
    """A bookie, or the connection to it, failed a request."""


class BookieUnavailableError(BookieRequestError):
    """No usable connection to the bookie."""

    code = -8


class RequestTimeoutError(BookieRequestError, TimeoutError):
    """The bookie did not answer in time."""

    code = -23


class TooManyRequestsError(BookieRequestError):
    """The bookie or the connection to it is overloaded."""

    code = -105


class BackpressureError(TooManyRequestsError):
    """The writer has as much in flight as it may: wait for appends to complete, or use `append`, which waits."""


class WriteOnReadOnlyError(BookieRequestError):
    """The bookie is read-only."""

    code = -104


class ReadError(BookieRequestError):
    """Read failed."""

    code = -1


class WriteError(BookieRequestError):
    """Write failed."""

    code = -12


class QuorumError(BookieRequestError):
    """Bad quorum sizes."""

    code = -2


class NoBookieAvailableError(BookieRequestError):
    """No bookie is available."""

    code = -3


class NotEnoughBookiesError(BookieRequestError):
    """There are not enough writable bookies to form an ensemble."""

    code = -6


class AddEntryQuorumTimeoutError(BookieRequestError, TimeoutError):
    """The ack quorum was not reached in time."""

    code = -21


class DigestMismatchError(BookieRequestError):
    """The entry's digest or ids do not match: the data is damaged, or the digest type or password is wrong."""

    code = -5


class NoSuchEntryError(BookieRequestError):
    """The entry does not exist."""

    code = -13


class DataUnknownError(BookieRequestError):
    """The bookie cannot tell whether it has the data (the ledger is in limbo)."""

    code = -108


class ProtocolVersionError(BookieRequestError):
    """The bookie refused the protocol version."""

    code = -16


class MetadataStoreError(BKError):
    """The metadata store failed a request."""


class ZKError(MetadataStoreError):
    """The metadata store could not be reached or failed."""

    code = -9


class MetadataTimeoutError(ZKError, TimeoutError):
    """The metadata store did not answer in time; a change may have happened."""


class MetaStoreError(MetadataStoreError):
    """The metadata store failed."""

    code = -18


class MetadataVersionError(MetadataStoreError):
    """Another client changed the ledger's metadata."""

    code = -17


class MetadataSerializationError(MetadataStoreError):
    """The ledger's metadata cannot be written."""

    code = -107


class LedgerIdOverflowError(MetadataStoreError):
    """No more ledger ids."""

    code = -106


class LedgerRecoveryError(BKError):
    """Ledger recovery failed; the next open tries again."""

    code = -10


class ClientClosedError(BKError):
    """The client was closed."""

    code = -19


class OperationInterruptedError(BKError):
    """The operation was interrupted."""

    code = -15


class DuplicateEntryIdError(BKError):
    """The entry id was used already."""

    code = -22


class ReplicationError(BKError):
    """Replication failed."""

    code = -200


class UnexpectedError(BKError):
    """An unexpected condition."""

    code = -999


def _concrete(cls: type[BKError]) -> dict[int, type[BKError]]:
    found = {cls.code: cls} if "code" in cls.__dict__ else {}
    for sub in cls.__subclasses__():
        found.update(_concrete(sub))
    return found


_BY_CODE = _concrete(BKError)
_BY_CODE[-999] = UnexpectedError


def from_code(
    code: int,
    message: str = "",
    *,
    ledger_id: int | None = None,
    entry_id: int | None = None,
    bookie: str | None = None,
) -> BKError:
    """The error for a numeric result code; an unknown code gives `UnexpectedError`."""
    cls = _BY_CODE.get(code, UnexpectedError)
    return cls(message, ledger_id=ledger_id, entry_id=entry_id, bookie=bookie)


# --- metadata stores -----------------------------------------------------------------------------


class MetadataError(BookKeeperError):
    """Base class of what a metadata store reports."""


class ServiceUnavailable(MetadataError):
    """The store could not be reached or did not answer; with `maybe_applied` a change may have happened."""

    def __init__(self, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class StoreTimeout(ServiceUnavailable, TimeoutError):
    """The store did not answer within `metadataTimeoutSec`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, maybe_applied=True)


class SessionLost(MetadataError):
    """The session that the operation belongs to has ended."""


class NoSuchLedger(MetadataError):
    """The store has no record of this ledger."""


class LedgerExists(MetadataError):
    """The store has a record of this ledger already."""


class VersionConflict(MetadataError):
    """Compare-and-set lost: the record has another version."""


class CorruptMetadata(MetadataError):
    """A stored value cannot be parsed."""


class SerializationError(MetadataError):
    """A value cannot be written in its format version."""


class RecordTooLarge(MetadataError):
    """A record is larger than the store takes; nothing was sent."""


class LedgerIdOverflow(MetadataError):
    """The id space of the layout is used up."""


class NoSuchBookie(MetadataError):
    """The bookie is not registered, or published no address."""


class CookieExists(MetadataError):
    """The bookie has a cookie already."""


class CookieNotFound(MetadataError):
    """The bookie has no cookie."""


class CookieConflict(MetadataError):
    """Another process changed the cookie."""


class AlreadyRegistered(MetadataError):
    """Another live session holds this bookie id."""


class NotInitialized(MetadataError):
    """There is no cluster at this root: run `bookkeeper shell initnewcluster`."""


class LayoutExists(MetadataError):
    """The cluster has a layout already."""


class LayoutMismatch(MetadataError):
    """The cluster has another layout than the one asked for."""


class LockHeld(MetadataError):
    """Another worker holds the lock of this ledger."""


class AlreadyEnabled(MetadataError):
    """Re-replication is enabled already."""


class AlreadyDisabled(MetadataError):
    """Re-replication is disabled already."""


class UnderreplicationIncompatible(MetadataError):
    """The under-replication layout in the store is of an unknown kind."""


class Unsupported(MetadataError):
    """This store cannot do that."""


# --- inside a bookie -----------------------------------------------------------------------------


class BookieError(BookKeeperError):
    """Base class of what a bookie's storage and request handling report."""


class NoLedgerError(BookieError):
    """This bookie does not know the ledger."""


class NoEntryError(BookieError):
    """This bookie knows the ledger and surely does not hold the entry."""


class UnauthorizedAccessError(BookieError):
    """The master key does not match the ledger's."""


class FencedError(BookieError):
    """The ledger is fenced: normal adds are refused."""


class FencedAndDeletedError(BookieError):
    """The ledger was fenced and then deleted here: it must not come back."""


class LimboError(BookieError):
    """This bookie may have lost data of the ledger and cannot say that something is absent."""


class RejectedError(BookieError):
    """The storage has no room for the write and none came up in time."""


class ReadOnlyError(BookieError):
    """The bookie does not accept this write because it is read-only."""


class NoWritableLedgerDirError(BookieError):
    """All ledger directories are full."""


class CorruptStorageError(BookieError):
    """Stored bytes are not what they must be. Never answered as 'no such entry'."""


class InvalidCookieError(BookieError):
    """The directories, the configuration and the metadata store do not belong to the same bookie."""


class FatalBookieError(BookieError):
    """The bookie cannot go on (failed sync, lost disk): it stops and recovers from disk at its next start."""


# --- streams (spec streams §14) ------------------------------------------------------------------


class StreamError(BookKeeperError):
    """Base class of what streams report; `code` is DistributedLog's number, or -1."""

    code: ClassVar[int] = -1


class InvalidStreamNameError(StreamError):
    """No stream can have this name."""

    code = 602


class StreamNotFoundError(StreamError):
    """There is no such stream."""

    code = 510


class StreamExistsError(StreamError):
    """There is a stream of this name already."""

    code = 522


class StreamMetadataError(StreamError):
    """A record of a stream or namespace makes no sense."""

    code = 506


class NamespaceNotBoundError(StreamMetadataError):
    """There is no namespace at this address: nothing says where its ledgers are."""


class NamespaceExistsError(StreamError):
    """There is a namespace at this address already."""


class NamespaceNotEmptyError(StreamError):
    """The namespace has streams."""


class StreamConflictError(StreamError):
    """Another client changed the record meanwhile."""


class StreamStateError(StreamError):
    """What was asked for does not fit the state of the stream."""

    code = 600


class LockError(StreamError):
    """The lock of the stream is not held, or stands in the way."""

    code = 504


class NotOwnerError(StreamError):
    """Another client owns the stream; `owner` is what is known of it, perhaps nothing."""

    code = 302

    def __init__(self, message: str, owner: str = "") -> None:
        super().__init__(message)
        self.owner = owner
