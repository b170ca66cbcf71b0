"""What a record store offers to the driver built on it.

A record is a value (the exact bytes of the spec's formats) under a topic and a key. Keys are text, and order by code
points. Everything that changes the store is a *transaction*: a plain function of a `Transaction`, run in one piece
and in isolation from all others; if it raises, nothing of it happened. It may run on another thread, so it touches
nothing but its arguments.

Versions are revisions of the whole store: each change of a record takes the next one, so that the versions of a
record increase even across its removal, and none is used twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from ..api import Version

T = TypeVar("T")

PERMANENT = 0
"""Session of a record that belongs to none."""

END = "\U0010ffff"
"""Above every key."""

SCAN_LIMIT = 10_000
"""Most records one scan returns: what a range of ledgers may hold in memory."""


class Topic(StrEnum):
    """The kinds of records."""

    LEDGERS = "ledgers"
    COOKIES = "cookies"
    AVAILABLE = "available"
    READ_ONLY = "readonly"
    MARKS = "marks"
    LOCKS = "locks"
    VOTES = "votes"
    CLUSTER = "cluster"
    """Single values: layout, instance id, counters, switches."""
    TREE = "tree"
    """The records of `metadata.tree`; see `records.tree`."""


Change = tuple[str, str]
"""Topic and key of a record that was created, replaced or removed."""

Changes = Sequence[Change] | None
"""What changed; None: anything may have."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was read."""

    key: str
    data: bytes
    version: Version
    ctime_ms: int
    """When it was created, milliseconds since 1970."""
    session: int = PERMANENT
    """The session it vanishes with."""


class Transaction(ABC):
    """Access to the records from inside a transaction."""

    @abstractmethod
    def get(self, topic: Topic, key: str) -> Record | None: ...

    @abstractmethod
    def put(self, topic: Topic, key: str, data: bytes, *, session: int = PERMANENT) -> Version:
        """Create or replace a record; returns its new version. A replaced record keeps its creation time.

        Raises `SessionLost` if the session has ended.
        """

    @abstractmethod
    def delete(self, topic: Topic, key: str) -> None:
        """Remove a record; nothing happens if there is none."""

    @abstractmethod
    def scan(self, topic: Topic, *, after: str = "", limit: int = SCAN_LIMIT) -> list[Record]:
        """Records with keys above `after`, ascending."""

    @abstractmethod
    def keys(self, topic: Topic, *, after: str = "", before: str = END, limit: int | None = None) -> list[str]:
        """Keys above `after` and below `before`, ascending, the first `limit` of them."""

    @abstractmethod
    def clear(self, topic: Topic) -> None:
        """Remove all records of a topic."""

    @abstractmethod
    def revision(self, topic: Topic) -> Version:
        """The version of the topic's last change, removals included; 0 if there never was one."""


class RecordStore(ABC):
    """One client's access to a store."""

    on_changes: Callable[[Changes], None]
    """Called on the loop after records changed, by any client; set by the driver before `open`."""

    @abstractmethod
    async def open(self, *, create: bool = False) -> None:
        """Raises `ServiceUnavailable` if the store is out of reach for now, `ConfigurationError` if for good, and
        `NotInitialized` if it is not there and `create` is not set.
        """

    @abstractmethod
    async def close(self) -> None:
        """Idempotent. Sessions are not ended by this."""

    @abstractmethod
    async def run(self, name: str, transaction: Callable[[Transaction], T], *, write: bool = True) -> T:
        """Run a transaction; `write=False` promises that it changes nothing. `name` is for logs and fault injection.

        Raises `ServiceUnavailable`, with `maybe_applied` when the outcome is unknown.
        """

    @abstractmethod
    async def start_session(self, timeout: float) -> int:
        """A new session, which lives until `timeout` seconds after its last renewal. Raises as `run` does."""

    @abstractmethod
    async def renew_session(self, session: int, timeout: float) -> bool:
        """False if the session has ended. Raises as `run` does."""

    @abstractmethod
    async def end_session(self, session: int) -> None:
        """End it and remove its records. Raises as `run` does."""
