"""What the request path knows about the ledgers in use: key, fence, last add confirmed.

Theory of operation

The bookie never asks the metadata store about a ledger. A ledger comes to life here with the first request that
brings a master key (add, fence, WRITE_LAC); from then on the key must match (spec bookie-server §2.3).
`LedgerTable.open` is the one place where a key is judged: what is not the key of the handle is compared with the stored
one, so an answer never depends on whether a handle happens to be cached.

A handle is a cache and a meeting point, not a store: the key, the fence and the explicit LAC live in the storage and in
the journal. What only the handle has is listed in `BookieLedger.pinned`; a handle with such state is never dropped.
Others are dropped when there are more than `ledgerHandleCacheSize`, between two turns of the loop, so that code which
holds a handle without awaiting anything always holds the one of the table. To keep them in the order of their use would
cost each add a move in the table; so a handle has a mark that it was used, and who drops some looks at those first that
he has not looked at for longest, and takes those without the mark before the others.

The last add confirmed that the bookie knows (§2.8) is the greatest LAC field of the entries that came in and of the
explicit LACs. It only grows. For a ledger that was here before its handle, the part of the past is read from the
storage when it is first asked for (`load_lac`).

A ledger that was fenced here and then deleted is remembered for a week: a writer that was asleep must not bring it
back.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Protocol, cast

from ..errors import FencedAndDeletedError, NoEntryError, NoLedgerError, UnauthorizedAccessError
from ..protocol.entry import LAC_HEADER, LAC_HEADER_SIZE, MIN_STORED_SIZE, lac_of
from ..protocol.limits import MAX_MASTER_KEY
from ..runtime import Runtime
from ..types import MASTER_KEY_LENGTH
from .storage.api import LedgerStorage

FENCED_AND_DELETED_SECONDS = 7 * 24 * 3600.0
"""How long after its last use a fenced and deleted ledger is remembered."""

MAX_FENCED_AND_DELETED = 100_000
"""How many are remembered; beyond it the longest unused are forgotten first."""


TRIM_LOOK = 64
"""Handles that one clean-up drops, and as many it looks at beside. So its cost does not grow with the table; after a
rush, or while most of the oldest are pinned, the table is larger than its limit for some turns of the loop."""


class Polls(Protocol):
    """The long polls of one ledger (`requests.long_poll`). Never empty while it is in a handle."""

    living: int


class BookieLedger:
    """One ledger in use."""

    __slots__ = (
        "fence_waiters",
        "fenced",
        "key",
        "key_journaled",
        "lac",
        "lac_known",
        "ledger_id",
        "plain_key",
        "polls",
        "used",
    )

    def __init__(self, ledger_id: int, *, fenced: bool, lac_known: bool) -> None:
        self.ledger_id = ledger_id
        self.key: bytes | None = None
        """The key that was accepted last; None while only reads without a key have come."""
        self.fenced = fenced
        """== storage.is_fenced(ledger_id); never goes back to False."""
        self.key_journaled = False
        """A key record of `key` was handed to the ledger's journal. Holds before any other record is."""
        self.plain_key = b""
        """`key`, if an add with it needs no other look: it is journaled, the ledger is not fenced, and it has the usual
        size. Else empty."""
        self.used = True
        """Since `_trim` looked at it last."""
        self.lac = -1
        """Greatest LAC seen since the handle exists; of all times if `lac_known`."""
        self.lac_known = lac_known
        self.fence_waiters: list[Callable[[], None]] | None = None
        """Not None exactly while a fence record is on its way to the disk: who waits for it."""
        self.polls: Polls | None = None
        """Long polls that wait for a LAC beyond theirs; None if there are none."""

    def accept(self, key: bytes) -> None:
        """This is the key from now on."""
        self.key = key
        self.key_journaled = False
        self.plain_key = b""

    def key_goes_to_journal(self) -> bytes:
        """A key record of `key`, which this returns, is handed to the journal now."""
        assert self.key is not None
        self.key_journaled = True
        if not self.fenced and len(self.key) == MASTER_KEY_LENGTH:
            self.plain_key = self.key
        return self.key

    def fence(self) -> None:
        """The storage has the fence."""
        self.fenced = True
        self.plain_key = b""

    @property
    def pinned(self) -> bool:
        """It has state that exists nowhere else."""
        return self.fence_waiters is not None or self.polls is not None


class LedgerTable:
    """The handles."""

    def __init__(self, runtime: Runtime, storage: LedgerStorage, limit: int) -> None:
        self._runtime = runtime
        self._storage = storage
        self._limit = limit
        self._handles: dict[int, BookieLedger] = {}  # those that `_trim` has not looked at for longest first
        self._trim_scheduled = False
        self._deleted: dict[int, float] = {}  # ledger id -> when to forget it; least recently used first
        self.on_polls_due: Callable[[BookieLedger, int | None], None] = _no_polls
        """Called to end polls of a handle: all of them for None, those that the LAC passed otherwise."""

    def __len__(self) -> int:
        return len(self._handles)

    # --- finding ---

    def open(self, ledger_id: int, key: bytes) -> BookieLedger:
        """The ledger, for a request that brings its key; creates it if it is new here.

        Raises `UnauthorizedAccessError` for a wrong key, `FencedAndDeletedError`.
        """
        handle = self._handles.get(ledger_id)
        if handle is None:
            self._refuse_deleted(ledger_id)
            is_new = not self._storage.ledger_exists(ledger_id)
            self._judge(ledger_id, key)
            handle = self._add(ledger_id, lac_known=is_new)
            handle.accept(key)
        else:
            handle.used = True
            if handle.key is None or not hmac.compare_digest(handle.key, key):
                self._judge(ledger_id, key)
                handle.accept(key)
        return handle

    def open_plain(self, ledger_ids: Sequence[int], keys: Sequence[bytes]) -> list[BookieLedger] | None:
        """`open` for each of many, if all are in use and none needs more than that its key is compared; else None.

        `keys` have the usual size. They are compared together: what differs is found by who opens one by one.
        """
        handles = [*map(self._handles.get, ledger_ids)]
        if None in handles:
            return None
        found = cast(list[BookieLedger], handles)
        expected = b"".join([handle.plain_key for handle in found])
        return found if hmac.compare_digest(expected, b"".join(keys)) else None

    def _judge(self, ledger_id: int, key: bytes) -> None:
        """Store the key of a new ledger or in place of a placeholder; refuse any but the stored one."""
        stored = self._storage.master_key(ledger_id)
        if stored is not None and any(stored):
            if not hmac.compare_digest(stored, key):
                raise UnauthorizedAccessError(f"ledger {ledger_id} has another master key")
        elif len(key) > MAX_MASTER_KEY:  # it would be kept in memory as long as the ledger is
            raise UnauthorizedAccessError(f"a master key has at most {MAX_MASTER_KEY} bytes, not {len(key)}")
        self._storage.set_master_key(ledger_id, key)

    def find(self, ledger_id: int) -> BookieLedger:
        """The ledger, for a request without a key. Raises `NoLedgerError`."""
        handle = self._handles.get(ledger_id)
        if handle is not None:
            handle.used = True
            return handle
        if not self._storage.ledger_exists(ledger_id):
            raise NoLedgerError(f"ledger {ledger_id} is not here")
        return self._add(ledger_id, lac_known=False)

    def _add(self, ledger_id: int, *, lac_known: bool) -> BookieLedger:
        handle = BookieLedger(ledger_id, fenced=self._storage.is_fenced(ledger_id), lac_known=lac_known)
        self._handles[ledger_id] = handle
        if len(self._handles) > self._limit and not self._trim_scheduled:
            self._schedule_trim()
        return handle

    def _schedule_trim(self) -> None:
        self._trim_scheduled = True
        asyncio.get_running_loop().call_soon(self._trim)

    def _trim(self) -> None:
        """Drop idle handles beyond the limit: of those that were not looked at for longest the unused first."""
        self._trim_scheduled = False
        handles = self._handles
        excess = len(handles) - self._limit
        if excess <= 0:
            return
        oldest = [*islice(handles.values(), min(excess, TRIM_LOOK) + TRIM_LOOK)]
        idle = sorted((handle for handle in oldest if not handle.pinned), key=attrgetter("used"))
        dropped = set(idle[: min(excess, TRIM_LOOK)])
        for handle in oldest:
            del handles[handle.ledger_id]
            if handle not in dropped:  # others are looked at first next time
                handles[handle.ledger_id] = handle
                handle.used = False
        if dropped and excess > len(dropped):
            self._schedule_trim()

    # --- last add confirmed ---

    def raise_lac(self, handle: BookieLedger, lac: int) -> None:
        """A writer told a LAC. Ends the long polls that it passes."""
        if lac > handle.lac:
            handle.lac = lac
            if handle.polls:
                self.on_polls_due(handle, lac)

    def raise_lacs(self, handles: Sequence[BookieLedger], lacs: Sequence[int]) -> None:
        """`raise_lac` of each; they are in use."""
        for handle, lac in zip(handles, lacs, strict=True):
            handle.used = True
            if lac > handle.lac:
                handle.lac = lac
                if handle.polls:
                    self.on_polls_due(handle, lac)

    async def load_lac(self, handle: BookieLedger) -> int:
        """The ledger's LAC, -1 for none; reads the last entry if the past is not known yet.

        Raises what `LedgerStorage.last_entry` raises, except for a ledger without entries.
        """
        if not handle.lac_known:
            lac = -1
            explicit = self._storage.explicit_lac(handle.ledger_id)
            if explicit is not None and len(explicit) >= LAC_HEADER_SIZE:
                lac = LAC_HEADER.unpack_from(explicit)[1]
            try:
                last = await self._storage.last_entry(handle.ledger_id)
            except NoEntryError:
                pass
            else:
                if len(last) >= MIN_STORED_SIZE:
                    lac = max(lac, lac_of(last))
            handle.lac_known = True
            self.raise_lac(handle, lac)
        return handle.lac

    # --- deletion ---

    def ledger_deleted(self, ledger_id: int) -> None:
        """The storage is about to delete the ledger: forget it, or remember that it was fenced."""
        handle = self._handles.pop(ledger_id, None)
        if self._storage.is_fenced(ledger_id) or self._storage.is_limbo(ledger_id):
            self._deleted[ledger_id] = self._runtime.now() + FENCED_AND_DELETED_SECONDS
            while len(self._deleted) > MAX_FENCED_AND_DELETED:
                del self._deleted[next(iter(self._deleted))]
        if handle is not None and handle.polls:
            self.on_polls_due(handle, None)

    def _refuse_deleted(self, ledger_id: int) -> None:
        if not self._deleted:
            return
        now = self._runtime.now()
        while self._deleted and (oldest := next(iter(self._deleted.items())))[1] <= now:
            del self._deleted[oldest[0]]
        if self._deleted.pop(ledger_id, None) is not None:
            self._deleted[ledger_id] = now + FENCED_AND_DELETED_SECONDS
            raise FencedAndDeletedError(f"ledger {ledger_id} was fenced and deleted")


def _no_polls(handle: BookieLedger, lac: int | None) -> None:
    """Before the server is there no client polls."""
