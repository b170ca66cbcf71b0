"""The ledger for a stream's next segment (spec streams §7.1).

Theory of operation

A ledger is made before the segment that will use it, so that a segment begins without waiting for bookies. Its id lies
in the stream's record `allocation` until then. One rule holds for all owners, also for Java's: **an id lies there only
while no segment has it**; whoever finds one there, left by a former owner, deletes that ledger. So it is taken out by
the transaction that begins the segment (`head.LogHead.start`), and by nothing else.

A left ledger is deleted only after this owner's own id is in the record: until then another owner might be using it.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Generic, Protocol, TypeVar

from ...errors import BookKeeperError, NoSuchRecord, NotOwnerError, RecordChanged, StreamStateError
from ...metadata.tree import Operation, RecordTree, Write, Written
from ...runtime.transitions import Transitions
from .logs import LogRecords
from .paths import encode_number

log = logging.getLogger(__name__)

L = TypeVar("L")


class LedgerMaker(Protocol[L]):
    """Makes and deletes ledgers; `L` is a ledger that can be written."""

    async def create(self) -> L: ...

    def id_of(self, ledger: L) -> int: ...

    async def delete(self, ledger_id: int) -> object:
        """One that is gone already is a success."""

    async def close(self, ledger: L) -> object:
        """End its writer, if it can be done."""


class Phase(Enum):
    """Where the next ledger is."""

    EMPTY = "empty"
    """Nowhere: it is still to be made."""
    MAKING = "making"
    READY = "ready"
    """Made, and its id in the record."""
    LEAVING = "leaving"
    """A transaction is on its way that gives it to a segment."""
    FAILED = "failed"
    """Another owner changed the record: this one is over."""


class Event(Enum):
    """What happens to it."""

    MAKE = "make"
    MADE = "made"
    OFFER = "offer"
    TAKEN = "taken"
    REFUSED = "refused"
    """The transaction was not carried out, for another reason than the record."""
    LOST = "lost"


ALLOCATION = Transitions(
    "next ledger",
    Phase,
    Event,
    {
        Phase.EMPTY: {Event.MAKE: Phase.MAKING},
        Phase.MAKING: {Event.MADE: Phase.READY, Event.REFUSED: Phase.EMPTY, Event.LOST: Phase.FAILED},
        Phase.READY: {Event.OFFER: Phase.LEAVING},
        Phase.LEAVING: {Event.TAKEN: Phase.EMPTY, Event.REFUSED: Phase.READY, Event.LOST: Phase.FAILED},
        Phase.FAILED: {},
    },
)


class LedgerAllocator(Generic[L]):
    """The next ledger of one stream."""

    def __init__(self, tree: RecordTree, records: LogRecords, ledgers: LedgerMaker[L]) -> None:
        self._tree = tree
        self._path = records.paths.allocation
        self._version = records.allocation.version
        self._left = records.allocation.value
        """The ledger of a former owner, which is to be deleted."""
        self._ledgers = ledgers
        self._ready: L | None = None
        self._lost: L | None = None
        """One that may be a segment's or another owner's business by now."""
        self.phase = Phase.EMPTY

    def _step(self, event: Event) -> None:
        self.phase = ALLOCATION.after(self.phase, event)

    async def allocate(self) -> L:
        """The next ledger; made now, unless there is one. Raises `NotOwnerError`, and what the maker raises.

        A call at a time.
        """
        if self.phase is Phase.READY and self._ready is not None:
            return self._ready
        if self.phase is not Phase.EMPTY:
            raise StreamStateError(f"{self._path}: there can be no ledger now, it is {self.phase.value}")
        self._step(Event.MAKE)
        try:
            ledger = await self._ledgers.create()
        except BaseException:
            self._step(Event.REFUSED)
            raise
        await self._announce(ledger)
        self._ready = ledger
        self._step(Event.MADE)
        if self._left is not None:
            left, self._left = self._left, None
            await self._delete(left)
        return ledger

    async def _announce(self, ledger: L) -> None:
        """Put the id into the record. A failure deletes the ledger; if its outcome is unknown, the next owner does."""
        try:
            self._version = await self._tree.write(
                self._path, encode_number(self._ledgers.id_of(ledger)), self._version
            )
        except (RecordChanged, NoSuchRecord) as error:
            self._step(Event.LOST)
            self._lost = ledger
            await self._delete(self._ledgers.id_of(ledger))
            raise NotOwnerError(f"another client has taken over {self._path}: {error}") from error
        except BaseException:
            self._step(Event.LOST)
            self._lost = ledger
            raise

    async def _delete(self, ledger_id: int) -> None:
        try:
            await self._ledgers.delete(ledger_id)
        except BookKeeperError as error:
            log.warning("ledger %d, which no segment has, could not be deleted: %s", ledger_id, error)

    def offer(self) -> list[Operation]:
        """What the transaction that gives the ledger to a segment must do with the record; tell the outcome by `taken`
        or `refused`.
        """
        self._step(Event.OFFER)
        return [Write(self._path, b"", self._version)]

    def taken(self, written: Written) -> None:
        """The transaction was carried out."""
        self._step(Event.TAKEN)
        self._version = written[self._path]
        self._ready = None

    def refused(self, error: BaseException) -> None:
        """It raised this. The ledger is kept for the next one, unless another owner has taken over, or it is not known
        what became of the transaction: then the ledger may be a segment's.
        """
        unknown = not isinstance(error, BookKeeperError) or getattr(error, "maybe_applied", False)
        if unknown or isinstance(error, NotOwnerError):
            self._step(Event.LOST)
            self._lost, self._ready = self._ready, None
        else:
            self._step(Event.REFUSED)

    async def close(self) -> None:
        """End the writer of a ledger that no segment got. The ledger is left to the next owner. Idempotent."""
        for ledger in (self._ready, self._lost):
            if ledger is not None:
                await self._ledgers.close(ledger)
        self._ready = self._lost = None
