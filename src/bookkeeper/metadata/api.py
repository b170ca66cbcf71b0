"""The contract between the program and its metadata stores (spec metadata §12).

The interface speaks of ledgers, bookies and cookies, not of keys and nodes, because the layouts of ZooKeeper and
etcd are fixed by the Java system and differ in shape. Everything above this floor uses only this interface.

Theory of operation

- **Versions.** A successful create or write returns the version that a later read returns; every write changes
  it; a write or remove with a version that is not current fails with `VersionConflict` and changes nothing.
- **Read your writes.** After a call returns, later calls through the same driver see its effect.
- **Watches are level-triggered.** The iterator yields the current state first, then at least the latest state after any
  change; intermediate states may be skipped; nothing is lost across reconnects. Errors inside are retried forever and
  never raised; the iterator ends when the driver is closed.
- **Ephemerals** (registrations, locks, votes) belong to the driver's one session. On LOST the driver reports once, then
  opens a new session by itself; it does not re-create ephemerals: their owners do.
- **Unknown outcomes.** Reads and compare-and-set are retried inside the driver on transport errors. Where an earlier
  attempt of the same call may have been applied, a conflict is examined before it is reported (creation token, byte
  equality).
- All methods are coroutines on one loop; callbacks are plain functions called on that loop and must not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeVar

from ..types import BookieId
from .ledger_metadata import LedgerMetadata
from .tree import RecordTree
from .versions import ANY as ANY
from .versions import Version as Version

T_co = TypeVar("T_co", covariant=True)

Unsubscribe = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T_co]):
    """A value and the version it had when it was read or written."""

    value: T_co
    version: Version


class Mode(Enum):
    """How a bookie is registered."""

    WRITABLE = "writable"
    READ_ONLY = "readonly"


class SessionEvent(Enum):
    """What happened to the driver's session."""

    CONNECTED = 1
    SUSPENDED = 2
    """Connection trouble; the session may survive."""
    LOST = 3
    """Every ephemeral record of the session is gone."""


class CheckKind(Enum):
    """The auditor's periodic checks whose last time is kept in the store."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT_POLICY = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address a bookie serves."""

    id: str
    host: str
    port: int
    protocol: str = "bookie-rpc"
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BookieServiceInfo:
    """What a bookie publishes about itself."""

    endpoints: tuple[Endpoint, ...]
    properties: Mapping[str, str] = field(default_factory=dict)

    def bookie_rpc(self) -> Endpoint | None:
        """The endpoint that clients connect to."""
        return next((e for e in self.endpoints if e.protocol == "bookie-rpc"), None)


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Ledger ids of one bucket, ascending; `end` is the greatest id the bucket can hold ids up to, inclusive."""

    ids: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.ids[-1]


@dataclass(frozen=True, slots=True)
class UnderreplicatedLedger:
    """A mark: the ledger lost these replicas."""

    ledger_id: int
    replicas: tuple[str, ...]
    ctime: int = -1


@dataclass(frozen=True, slots=True)
class LedgerLayout:
    """Which factory lays out the ledgers of a cluster (spec metadata §4.3)."""

    factory_class: str
    manager_version: int
    layout_version: int = 2


class LedgerStore(Protocol):
    """Ledger metadata records."""

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Raises `LedgerExists`."""

    async def read(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """Raises `NoSuchLedger`, `CorruptMetadata`."""

    async def write(self, ledger_id: int, metadata: LedgerMetadata, expected: Version) -> Versioned[LedgerMetadata]:
        """Compare-and-set. Raises `VersionConflict`, `NoSuchLedger`."""

    async def remove(self, ledger_id: int, expected: Version = ANY) -> None:
        """Remove; an absent ledger is a success. Raises `VersionConflict`."""

    def watch(self, ledger_id: int) -> AsyncGenerator[Versioned[LedgerMetadata] | None, None]:
        """The record and its changes; None once when it is absent, then the end."""

    def ranges(self, op_timeout: float | None = None) -> AsyncGenerator[LedgerRange, None]:
        """All ledger ids in non-empty ranges, strictly ascending over the whole walk; complete or raising."""


class LedgerIdAllocator(Protocol):
    async def allocate(self) -> int:
        """A ledger id, unique for the life of the store, never handed out again."""


class BookieRegistry(Protocol):
    """The bookie's side of registration."""

    async def register(self, bookie_id: BookieId, mode: Mode, info: BookieServiceInfo) -> None:
        """Raises `AlreadyRegistered` when another session keeps the id for a whole session timeout."""

    async def unregister(self, bookie_id: BookieId, mode: Mode) -> None:
        """Absent: success."""

    async def is_registered(self, bookie_id: BookieId) -> bool: ...

    def on_registration_lost(self, callback: Callable[[], None]) -> Unsubscribe: ...


class BookieDirectory(Protocol):
    """The client's side of registration."""

    async def list(self, mode: Mode) -> Versioned[frozenset[BookieId]]: ...

    async def list_all(self) -> Versioned[frozenset[BookieId]]:
        """Every bookie that has a cookie."""

    async def info(self, bookie_id: BookieId) -> BookieServiceInfo:
        """What the bookie published. Raises `NoSuchBookie` when it is not registered."""

    def watch(self, mode: Mode) -> AsyncGenerator[Versioned[frozenset[BookieId]], None]: ...


class CookieStore(Protocol):
    """Bookie cookies, as bytes."""

    async def create(self, bookie_id: BookieId, data: bytes) -> Version:
        """Raises `CookieExists`."""

    async def read(self, bookie_id: BookieId) -> Versioned[bytes]:
        """Raises `CookieNotFound`."""

    async def write(self, bookie_id: BookieId, data: bytes, expected: Version) -> Version:
        """Raises `CookieNotFound`, `CookieConflict`."""

    async def remove(self, bookie_id: BookieId, expected: Version) -> None:
        """Raises `CookieNotFound`, `CookieConflict`."""


class LedgerLock(Protocol):
    """A held lock on an under-replicated ledger."""

    ledger_id: int
    lost: asyncio.Event

    async def mark_replicated(self) -> bool:
        """Delete the mark if it is unchanged since locking, then release; True if it was deleted."""

    async def release(self) -> None: ...


class UnderreplicationStore(Protocol):
    """Marks and locks of under-replicated ledgers (spec metadata §9)."""

    async def mark(self, ledger_id: int, missing: Sequence[str]) -> None: ...

    async def info(self, ledger_id: int) -> UnderreplicatedLedger | None: ...

    def list(
        self, predicate: Callable[[Sequence[str]], bool] | None = None
    ) -> AsyncGenerator[UnderreplicatedLedger, None]: ...

    async def poll(self) -> LedgerLock | None:
        """Lock some marked, unlocked ledger; None if there is none."""

    async def get(self) -> LedgerLock:
        """`poll`, waiting until there is one."""

    async def acquire(self, ledger_id: int, *, with_mark: bool = False) -> LedgerLock:
        """Lock a ledger, marked or not. `with_mark`: `mark_replicated` deletes the mark that it has now; without, it
        leaves the mark alone. Raises `LockHeld`."""

    async def is_locked(self, ledger_id: int) -> bool: ...

    async def lock_owner(self, ledger_id: int) -> str | None: ...

    async def enable(self) -> None:
        """Raises `AlreadyEnabled`."""

    async def disable(self) -> None:
        """Raises `AlreadyDisabled`."""

    async def is_enabled(self) -> bool: ...

    async def wait_enabled(self) -> None: ...

    async def init_lost_bookie_recovery_delay(self, seconds: int) -> bool: ...

    async def set_lost_bookie_recovery_delay(self, seconds: int) -> None: ...

    async def get_lost_bookie_recovery_delay(self) -> int: ...

    def watch_lost_bookie_recovery_delay(self) -> AsyncGenerator[int, None]: ...

    async def get_check_time(self, kind: CheckKind) -> int: ...

    async def set_check_time(self, kind: CheckKind, ms: int) -> None: ...


class Leadership(Protocol):
    """Being the auditor."""

    lost: asyncio.Event

    async def resign(self) -> None: ...


class AuditorElection(Protocol):
    async def campaign(self, bookie_id: BookieId) -> Leadership:
        """Returns when elected; cancellable."""

    async def current(self) -> BookieId | None: ...


class LayoutStore(Protocol):
    async def read(self) -> LedgerLayout | None: ...

    async def create(self, layout: LedgerLayout) -> None:
        """Raises `LayoutExists`."""

    async def delete(self) -> None: ...


class ClusterFlags(Protocol):
    async def health_check_enabled(self) -> bool: ...

    async def set_health_check(self, enabled: bool) -> None: ...


class ClusterAdmin(Protocol):
    async def exists(self) -> bool: ...

    async def instance_id(self) -> str | None: ...

    async def init_new_cluster(self) -> bool:
        """False if it exists."""

    async def prepare_format(self) -> bool:
        """True if there is old data."""

    async def format(self) -> None: ...

    async def nuke(self) -> bool:
        """False if bookies are alive or unknown data was found."""


class MetadataDriver(Protocol):
    """One connection (session) to a metadata store. Make one with `bookkeeper.metadata.open_driver`."""

    @property
    def layout(self) -> LayoutStore: ...
    @property
    def ledgers(self) -> LedgerStore: ...
    @property
    def ids(self) -> LedgerIdAllocator: ...
    @property
    def registration(self) -> BookieRegistry: ...
    @property
    def discovery(self) -> BookieDirectory: ...
    @property
    def cookies(self) -> CookieStore: ...
    @property
    def underreplication(self) -> UnderreplicationStore: ...
    @property
    def auditor(self) -> AuditorElection: ...
    @property
    def flags(self) -> ClusterFlags: ...
    @property
    def admin(self) -> ClusterAdmin: ...
    @property
    def tree(self) -> RecordTree:
        """Records of other kinds (`metadata.tree`)."""

    async def open(self, *, create: bool = False) -> None:
        """Connect. Does not require an initialised cluster. Raises `ServiceUnavailable`.

        `create`: make the store itself where that is ours to do (an SQLite file), for a cluster that is about to be
        initialised. Without it an address that leads nowhere is `NotInitialized`: a typo makes no new store.
        """

    async def close(self) -> None:
        """End the session: ephemerals vanish, pending calls fail, watches end. Idempotent."""

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe: ...

    async def is_available(self) -> bool: ...
