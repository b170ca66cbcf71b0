"""Errors of what writes and reads streams (spec streams §14). Those of their names are in `bookkeeper.errors`."""

from __future__ import annotations

from ..errors import StreamError


class UnsupportedVersionError(StreamError):
    """A record of a stream has a version that this program does not know."""

    code = 521


class SegmentFormatError(StreamError):
    """The record of a segment is not what it must be."""

    code = 506


class CorruptEntryError(StreamError):
    """An entry of a stream is not what it must be.

    `offset` is where in the entry's payload the trouble begins; of compressed records, where in them.
    """

    code = 520

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.offset = offset


class RecordTooLargeError(StreamError):
    """A record does not fit into an entry."""

    code = 413


class TxidOrderError(StreamError):
    """The transaction id is lower than one before it, or none that a record may have."""

    code = 513


class EndOfStreamError(StreamError):
    """The stream was sealed: there is nothing more to read, and nothing can be appended."""

    code = 512


class TruncatedError(StreamError):
    """The stream does not have this position any more. `first_available`: the text of the first one that it has."""

    code = 511

    def __init__(self, message: str, first_available: str) -> None:
        super().__init__(message)
        self.first_available = first_available


class IdleReaderError(StreamError, TimeoutError):
    """Nothing came for as long as the reader was told to wait. It may be used again."""


class StreamEmptyError(StreamError):
    """The stream has no records, or none that is left."""

    code = 509


class EpochConflictError(StreamError):
    """A sink cannot publish this epoch: it has published a later one, or this one with other data."""


class StagingLostError(StreamError):
    """The ledgers of a run cannot be published: they were published already, or given up."""


class StreamClosedError(StreamError):
    """The writer or reader was closed."""

    code = 502


class TransmitError(StreamError):
    """An entry of the stream could not be stored; what was appended may be part of the stream or not. `rc` is the
    result code of the client."""

    code = 507

    def __init__(self, message: str, rc: int) -> None:
        super().__init__(message)
        self.rc = rc
