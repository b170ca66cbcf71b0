"""When entries leave a writer, when readers see them, when a segment is rolled (spec streams §8.3, §8.4, §15.4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import ConfigurationError
from .formats.codec import Compression
from .formats.entry import HEADER_SIZE, LARGEST_ENTRY

LARGEST_BODY = LARGEST_ENTRY - HEADER_SIZE

MOST_PENDING_BYTES = 64 << 20


class Visibility(StrEnum):
    """When readers can see what is acknowledged. A reader sees an entry once a later one is stored; where none comes,
    the writer adds a control record."""

    ACK = "ack"
    """Before the append returns."""
    LINGER = "linger"
    """At most `linger` later."""
    MANUAL = "manual"
    """After `flush`, a roll or `close`, or when more is appended."""


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """How a writer of a stream works. Raises `ConfigurationError` for what makes no sense."""

    buffer_bytes: int = 16 * 1024
    """An entry leaves when its records are larger. 0: each record leaves at once, in an entry of its own."""
    linger: float = 0.001
    """Seconds that a record waits for others to share its entry, at most; none while no entry is on its way."""
    visibility: Visibility = Visibility.LINGER
    """When readers see what is acknowledged."""
    compression: Compression = Compression.NONE
    """Of the records of an entry, together."""
    roll_bytes: int | None = 1 << 30
    """Bytes of a segment, after which the next begins; None: as many as come. So for the next two."""
    roll_age: float | None = 7200.0
    """Seconds."""
    roll_records: int | None = None
    """Records."""
    pending_bytes: int = MOST_PENDING_BYTES
    """Of what `append_nowait` has taken and is not acknowledged; where it is more, the next one is refused."""

    def __post_init__(self) -> None:
        if not 0 <= self.buffer_bytes <= LARGEST_BODY:
            raise ConfigurationError(f"buffer_bytes {self.buffer_bytes}: give 0 to {LARGEST_BODY}")
        if not 0 <= self.linger < 3600:
            raise ConfigurationError(f"linger {self.linger}: give seconds, less than an hour")
        if self.pending_bytes < 1:
            raise ConfigurationError(f"pending_bytes {self.pending_bytes}: give 1 or more")

    def is_roll_due(self, *, size: int, records: int, age: float) -> bool:
        """Whether a segment of so many bytes and records, begun so many seconds ago, is to be followed by another."""
        limits = ((size, self.roll_bytes), (records, self.roll_records), (age, self.roll_age))
        return records > 0 and any(limit is not None and value >= limit for value, limit in limits)
