"""A tree of small records, and transactions over several of them: the generic part of a metadata store (spec
streams §15.1, metadata §12.7).

The other contracts speak of ledgers and bookies. What is built on ledgers (streams, sinks) keeps records of its own; it
gets this one contract, on every store. The model is ZooKeeper's, because records that Java reads lie there: paths with
slashes, a record at every step of a path, data and children side by side.

Theory of operation

- **Paths** are absolute (`/messaging/orders`). A record is created below a record that exists; one with children cannot
  be deleted. `/` is always there, and is no record.
- **Transactions.** `commit` carries out operations one after the other, all or none. The versions that they expect are
  its conditions. What one transaction may hold is said by `limits`, differently for each store; a larger one is
  refused before anything is sent.
- **Versions** belong to one life of a record: a new record at the same path may have a version again that an earlier
  one had. `Node.stamp` never comes back.
- **Listings.** `Listing.changes` counts creations and removals of children. So who knows two listings of one life of
  the parent can tell whether a name that is in both was removed and created again meanwhile: then there were more
  changes than names that differ.
- **Unknown outcomes.** A commit without an answer is tried again. If that meets a refusal, the records are looked at:
  if each is as the transaction would have left it, it counts as done. Equal records mean the same state, so it does
  not matter whose doing it was; where it does matter, one of the records says whose it is (a ledger's id, the id of a
  run). A transaction that only deletes leaves nothing to know it by, and who removes a record may own what it names:
  its unknown outcome is reported, as `ServiceUnavailable` with `maybe_applied`.
- **Members** are ephemeral records with a number: they end with the driver's session, and `Member.lost` says so.
- Watches are level-triggered, as in all contracts (`metadata.api`).
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import ConfigurationError, NoSuchRecord, RecordExists, RecordTooLarge
from .versions import ANY, Version

MOST_PARTS = 99
"""Of a path."""

_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Node:
    """A record as it was read."""

    data: bytes
    version: Version
    stamp: int
    """Which write this was: no other write of the store, at this path or elsewhere, before or later, has it, but for
    those of the same transaction."""
    session: int = 0
    """The session it ends with; 0: none."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The children of a record."""

    names: tuple[str, ...]
    """Ascending."""
    changes: int
    """How many children were created or removed so far in the life of the parent."""
    life: int
    """Which life of the parent: another one, after it was removed and created again, has another number. 0 before its
    first child."""


@dataclass(frozen=True, slots=True)
class Create:
    """A new record. Fails with `RecordExists`, or `NoSuchRecord` without a parent."""

    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Write:
    """Replace the data. Fails with `RecordChanged`, `NoSuchRecord`."""

    path: str
    data: bytes
    expected: Version = ANY


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove. Fails with `RecordChanged`, `NoSuchRecord`, `RecordNotEmpty`."""

    path: str
    expected: Version = ANY


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing. Fails with `RecordChanged`, `NoSuchRecord`."""

    path: str
    expected: Version = ANY


Operation = Create | Write | Delete | Check

Written = Mapping[str, Version]
"""Path and version of each record that a transaction created or wrote."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """What one transaction may hold; None: no limit."""

    operations: int | None = None
    bytes: int | None = None
    """All paths and data, and `overhead` bytes for each operation."""
    overhead: int = 0

    def cost(self, operation: Operation) -> int:
        """Bytes of one operation."""
        data = operation.data if isinstance(operation, Create | Write) else b""
        return len(operation.path.encode()) + len(data) + self.overhead

    def hold(self, operations: Sequence[Operation]) -> bool:
        """Whether one transaction may be as large."""
        if self.operations is not None and len(operations) > self.operations:
            return False
        return self.bytes is None or sum(map(self.cost, operations)) <= self.bytes

    def check(self, operations: Sequence[Operation]) -> None:
        """Raises `RecordTooLarge`."""
        if not self.hold(operations):
            raise RecordTooLarge(
                f"a transaction of {len(operations)} operations and {sum(map(self.cost, operations))} bytes (the first "
                f"is at {operations[0].path}) is more than the metadata store takes: "
                f"{'any number of' if self.operations is None else self.operations} operations and "
                f"{'any number of' if self.bytes is None else self.bytes} bytes"
            )


class Member(Protocol):
    """An ephemeral record of ours."""

    @property
    def path(self) -> str: ...
    @property
    def session(self) -> int:
        """Id of the session it belongs to."""

    @property
    def lost(self) -> asyncio.Event:
        """Set when the record is gone, or may be by our own clock: it never comes back."""

    async def leave(self) -> None:
        """Remove it; one that is lost already is left alone. If that fails it goes later, with the session at last."""


class RecordTree(ABC):
    """See the module. All calls raise `ServiceUnavailable`, and `ConfigurationError` for a bad path."""

    limits: TransactionLimits

    @abstractmethod
    async def get(self, path: str, *, fresh: bool = False) -> Node | None:
        """A record, or None. `fresh`: as the store has it now; else it may be older than what other clients see, but
        never older than what this one has seen or done.
        """

    @abstractmethod
    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Several, not at one moment."""

    @abstractmethod
    async def children(self, path: str, *, fresh: bool = False) -> Listing | None:
        """The names of all children; None if there is no such record."""

    @abstractmethod
    def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        """The record now, and after changes; None while there is none. Ends when the driver is closed."""

    @abstractmethod
    def watch_children(self, path: str) -> AsyncGenerator[Listing | None, None]:
        """The children now, and after changes; None while there is no such record. Ends when the driver is closed."""

    @abstractmethod
    async def commit(self, operations: Sequence[Operation]) -> Written:
        """Carry out all or none. Raises the errors of the operation that failed, and `RecordTooLarge`."""

    @abstractmethod
    async def enter(self, directory: str, name: Callable[[int], str], data: bytes = b"") -> Member:
        """A new ephemeral child of `directory`: `name(session)` and ten digits, which grow with each child.

        Of an attempt that failed, or whose caller was cancelled, nothing stays behind. Raises `NoSuchRecord` for the
        directory, `SessionLost`.
        """

    async def create(self, path: str, data: bytes = b"") -> Version:
        """As `Create`."""
        return (await self.commit((Create(path, data),)))[path]

    async def write(self, path: str, data: bytes, expected: Version = ANY) -> Version:
        """As `Write`."""
        return (await self.commit((Write(path, data, expected),)))[path]

    async def delete(self, path: str, expected: Version = ANY) -> None:
        """As `Delete`."""
        await self.commit((Delete(path, expected),))

    async def make(self, path: str) -> None:
        """Create a record without data and its parents, as far as they are missing."""
        while await self.get(path) is None:
            try:
                await self.create(path)
            except NoSuchRecord:
                await self.make(parent_of(path))
            except RecordExists:
                return


def parent_of(path: str) -> str:
    """`/` of a path with one part."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> str:
    """The path. Raises `ConfigurationError` if no record could be there."""
    parts = path.split("/")[1:]
    good = path.startswith("/") and len(parts) <= MOST_PARTS
    if not good or any(part in ("", ".", "..") for part in parts) or not _is_writable(path):
        raise ConfigurationError(f"{path!r} is no path of a record: it starts with /, and has no empty part, . or ..")
    return path


def _is_writable(path: str) -> bool:
    """No control characters, and nothing else that ZooKeeper refuses; it knows 16 bits of a character."""
    return _REFUSED.search(path) is None


def would_leave(operations: Sequence[Operation]) -> dict[str, bytes | None]:
    """What lies at the paths after a transaction: data, or None for no record. What it only checks is not in it."""
    left: dict[str, bytes | None] = {}
    for operation in operations:
        if isinstance(operation, Create | Write):
            left[operation.path] = operation.data
        elif isinstance(operation, Delete):
            left[operation.path] = None
    return left


def recognised(operations: Sequence[Operation], found: Mapping[str, Node | None]) -> Written | None:
    """Whether the records look as if the transaction was applied: the versions of those that it wrote, else None.

    `found` has every path of `would_leave`. None also for a transaction that leaves no record behind to know it by.
    """
    left = would_leave(operations)
    written: dict[str, Version] = {}
    for path, data in left.items():
        node = found[path]
        if (None if node is None else node.data) != data:
            return None
        if node is not None:
            written[path] = node.version
    return written or None


def leaves_a_record(operations: Sequence[Operation]) -> bool:
    """Whether a transaction writes anything by which it could be recognised."""
    return any(data is not None for data in would_leave(operations).values())
