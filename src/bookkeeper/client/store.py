"""The metadata store as a client calls it: from the client's own event loop, and never for ever.

A driver goes on trying while its store is away. Here every call gets `metadataTimeoutSec`; after that it is cancelled
and raises `StoreTimeout`, which names the store. Whether a change was made all the same is then unknown. Watches have
no deadline: they wait for news, and go on when the store is back. When the client is closed, calls end at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from ..errors import BookKeeperError, ServiceUnavailable, StoreTimeout, WrongLoopError
from ..metadata.api import (
    ANY,
    BookieDirectory,
    BookieServiceInfo,
    LedgerIdAllocator,
    LedgerRange,
    LedgerStore,
    MetadataDriver,
    Mode,
    Version,
    Versioned,
)
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.tree import Listing, Member, Node, Operation, RecordTree, Written
from ..runtime.loop_thread import ThisThread
from ..types import BookieId

T = TypeVar("T")


class Home:
    """The event loop that a client belongs to. Nothing of the client may be touched from another one."""

    __slots__ = ("loop", "thread")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """None until the client connects."""
        self.thread = ThisThread()
        """In which the loop runs."""

    def settle(self) -> None:
        """This is the loop."""
        self.loop = asyncio.get_running_loop()
        self.thread = ThisThread()

    def check(self) -> None:
        """Raises `WrongLoopError` anywhere but on this loop: in a forked process it does not run either."""
        loop = self.loop
        if loop is None or (self.thread.runs_here() and loop.is_running()):
            return
        if asyncio._get_running_loop() is not loop:
            raise wrong_loop()
        self.thread = ThisThread()  # the loop goes on in another thread than the one it was connected in


def wrong_loop() -> WrongLoopError:
    """The error for a call from elsewhere."""
    return WrongLoopError(
        "this client belongs to another event loop: connect one in each loop, thread and process that needs it; "
        "bookkeeper.sync has one that threads may share"
    )


class Calls:
    """How calls of one store are made."""

    def __init__(self, home: Home, name: str, seconds: float) -> None:
        """`name` is the store's in errors; `seconds` zero or less: no limit."""
        self._home = home
        self._name = name
        self._seconds = seconds if seconds > 0 else None
        self._under_way: dict[asyncio.Timeout, None] = {}
        self._ended = False

    async def make(self, call: Coroutine[Any, Any, T], what: str) -> T:
        """Wait for a call. Raises `StoreTimeout`, `WrongLoopError`, and what the call raises; `ServiceUnavailable` when
        the client is closed."""
        try:
            self._home.check()
            self._check_ended()
        except BookKeeperError:
            call.close()
            raise
        deadline = asyncio.timeout(self._seconds)
        try:
            async with deadline:
                self._under_way[deadline] = None
                try:
                    return await call
                finally:
                    del self._under_way[deadline]
        except TimeoutError:
            if not deadline.expired():
                raise
            self._check_ended()
            raise StoreTimeout(
                f"the metadata store {self._name} did not answer within {self._seconds:g} s, {what} "
                "(metadataTimeoutSec); is it running, and reachable from here?"
            ) from None

    def _check_ended(self) -> None:
        if self._ended:
            raise ServiceUnavailable("the client was closed", maybe_applied=True)

    def end(self) -> None:
        """End all calls now, and let none begin."""
        self._ended = True
        for deadline in list(self._under_way):
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())


class StoreLedgers:
    """Ledger records: a `LedgerStore`."""

    def __init__(self, ledgers: LedgerStore, calls: Calls) -> None:
        self._ledgers = ledgers
        self._calls = calls

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        return await self._calls.make(self._ledgers.create(ledger_id, metadata), f"creating ledger {ledger_id}")

    async def read(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        return await self._calls.make(self._ledgers.read(ledger_id), f"reading the record of ledger {ledger_id}")

    async def write(self, ledger_id: int, metadata: LedgerMetadata, expected: Version) -> Versioned[LedgerMetadata]:
        writing = self._ledgers.write(ledger_id, metadata, expected)
        return await self._calls.make(writing, f"writing the record of ledger {ledger_id}")

    async def remove(self, ledger_id: int, expected: Version = ANY) -> None:
        await self._calls.make(self._ledgers.remove(ledger_id, expected), f"deleting ledger {ledger_id}")

    def watch(self, ledger_id: int) -> AsyncGenerator[Versioned[LedgerMetadata] | None, None]:
        return self._ledgers.watch(ledger_id)

    async def ranges(self, op_timeout: float | None = None) -> AsyncGenerator[LedgerRange, None]:
        """The time is that of each range."""
        async with aclosing(self._ledgers.ranges(op_timeout)) as ranges:
            while (found := await self._calls.make(_next(ranges), "listing ledgers")) is not None:
                yield found


async def _next(ranges: AsyncGenerator[LedgerRange, None]) -> LedgerRange | None:
    return await anext(ranges, None)


class StoreIds:
    """Ledger ids: a `LedgerIdAllocator`."""

    def __init__(self, ids: LedgerIdAllocator, calls: Calls) -> None:
        self._ids = ids
        self._calls = calls

    async def allocate(self) -> int:
        return await self._calls.make(self._ids.allocate(), "taking a ledger id")


class StoreDirectory:
    """Bookies: a `BookieDirectory`."""

    def __init__(self, directory: BookieDirectory, calls: Calls) -> None:
        self._directory = directory
        self._calls = calls

    async def list(self, mode: Mode) -> Versioned[frozenset[BookieId]]:
        return await self._calls.make(self._directory.list(mode), f"listing {mode.value} bookies")

    async def list_all(self) -> Versioned[frozenset[BookieId]]:
        return await self._calls.make(self._directory.list_all(), "listing all bookies")

    async def info(self, bookie_id: BookieId) -> BookieServiceInfo:
        return await self._calls.make(self._directory.info(bookie_id), f"asking for the address of {bookie_id}")

    def watch(self, mode: Mode) -> AsyncGenerator[Versioned[frozenset[BookieId]], None]:
        return self._directory.watch(mode)


class StoreTree(RecordTree):
    """The tree of records. What is entered and watched is the driver's own."""

    def __init__(self, tree: RecordTree, calls: Calls) -> None:
        self._tree = tree
        self._calls = calls
        self.limits = tree.limits

    async def get(self, path: str, *, fresh: bool = False) -> Node | None:
        return await self._calls.make(self._tree.get(path, fresh=fresh), f"reading {path}")

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._calls.make(self._tree.get_many(paths), f"reading {len(paths)} records")

    async def children(self, path: str, *, fresh: bool = False) -> Listing | None:
        return await self._calls.make(self._tree.children(path, fresh=fresh), f"listing {path}")

    def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        return self._tree.watch(path)

    def watch_children(self, path: str) -> AsyncGenerator[Listing | None, None]:
        return self._tree.watch_children(path)

    async def commit(self, operations: Sequence[Operation]) -> Written:
        where = operations[0].path if operations else "nowhere"
        return await self._calls.make(self._tree.commit(operations), f"changing {where}")

    async def enter(self, directory: str, name: Callable[[int], str], data: bytes = b"") -> Member:
        return await self._calls.make(self._tree.enter(directory, name, data), f"taking a place in {directory}")


class ClientStore:
    """A driver's parts that a client uses. See the module."""

    def __init__(self, driver: MetadataDriver, home: Home, name: str, seconds: float) -> None:
        self._driver = driver
        self._calls = Calls(home, name, seconds)
        self.ledgers: LedgerStore = StoreLedgers(driver.ledgers, self._calls)
        self.ids: LedgerIdAllocator = StoreIds(driver.ids, self._calls)
        self.discovery: BookieDirectory = StoreDirectory(driver.discovery, self._calls)
        self.tree: RecordTree = StoreTree(driver.tree, self._calls)

    async def open(self) -> None:
        """Connect."""
        await self._calls.make(self._driver.open(), "connecting")

    def end_calls(self) -> None:
        """End what is under way with `ServiceUnavailable`; nothing begins any more."""
        self._calls.end()

    async def close(self) -> None:
        """End the session. Idempotent."""
        await self._driver.close()

    async def is_available(self) -> bool:
        """Whether the store answers."""
        try:
            return await self._calls.make(self._driver.is_available(), "asking whether it is there")
        except StoreTimeout:
            return False
