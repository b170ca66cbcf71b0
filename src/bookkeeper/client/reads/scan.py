"""Reading a ledger as packed entries: for readers of whole ledgers that make columns of them (Spark, tools).

A *packed run* is the body of an answer to a batch read: consecutive entries, each an int32 size and the entry as the
bookie stores it, header and digest included. Where bookies cannot give that (striped ledgers, old bookies, protocol
v3) the entries are read one by one and packed here, so that the caller has one format to take apart.

The caller's `take` checks the digests of a run while it takes it apart: checking is done once, and a run with a bad
entry at its beginning is read again from another replica. Nothing here looks at the last add confirmed: the caller
knows how far he may read.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Generic, Protocol, TypeVar

from ...errors import BookieUnavailableError, DigestMismatchError
from ...metadata.ledger_metadata import LedgerMetadata
from ...protocol.digest import Digest
from ...protocol.messages import Packed
from ...quorum.distribution import Distribution
from ...types import BookieId
from ..context import ClientContext
from .batch import PackedBatchRead
from .ledger_reads import LedgerReads
from .range import RangeRead

_SIZE = Struct(">i")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

OnDamage = Callable[[BookieId, int], None]
"""Hears of a copy whose digest is wrong: the bookie that has it, and the entry. May hear of one copy more than once."""


class Take(Protocol[T_co]):
    """Takes a packed run apart."""

    def __call__(self, first_entry_id: int, body: Packed, /) -> tuple[T_co | None, int | None]:
        """What the good entries at the beginning of `body` are worth (None: there are none), and the id of the first
        entry that is damaged (None: none is)."""


def _unheard(_bookie: BookieId, _entry_id: int) -> None:
    """Of damage that nobody asks for: the read has gone to another replica."""


class PackedReads:
    """Reads packed runs of one ledger, as its `reads` have it. `on_damage` hears of the damaged entries in a run."""

    def __init__(self, reads: LedgerReads, on_damage: OnDamage = _unheard) -> None:
        config = reads.context.config
        self._limit = config.nettyMaxFrameSizeBytes
        self._window = config.readEntriesWindow
        self._on_damage = on_damage
        self._reads = reads

    async def some(self, first: int, max_count: int, max_size: int, take: Take[T]) -> T:
        """What `take` makes of some entries from `first` on: at least one, `max_count` at most, about `max_size` bytes.

        Raises the `BKError` of the first entry.
        """
        boundary = self._reads.current_metadata().next_ensemble_change(first)
        if boundary >= 0:
            max_count = min(max_count, boundary - first)
        if self._reads.can_batch(first):
            size = min(max_size, self._limit)
            try:
                return await _Run(self._reads, first, max_count, size, take, self._on_damage).run()
            except BookieUnavailableError:
                pass  # what bookies do that do not know the request, or whose answer would be too large for a frame
        return await self._one_by_one(first, max_count, max_size, take)

    async def _one_by_one(self, first: int, max_count: int, max_size: int, take: Take[T]) -> T:
        last = first + min(max_count, self._window) - 1
        read = RangeRead(self._reads, first, last, prefix=True, whole=True, max_bytes=max_size)
        entries, error = await read.run()
        if not entries:
            assert error is not None
            raise error
        taken, _ = take(first, b"".join([piece for entry in entries for piece in (_SIZE.pack(len(entry)), entry.data)]))
        assert taken is not None  # every entry was checked when it came
        return taken


class LedgerScan(PackedReads):
    """Packed runs of a ledger that was not opened. `metadata` is its record; `on_damage` hears of every damaged copy
    met."""

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, digest: Digest, on_damage: OnDamage) -> None:
        super().__init__(_Reads(context, metadata, digest, on_damage), on_damage)


class _Reads(LedgerReads):
    """Tells of damage; keeps to the metadata given, and learns no LAC."""

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, digest: Digest, on_damage: OnDamage) -> None:
        distribution = Distribution(*metadata.quorums)
        super().__init__(context, distribution, digest, lambda: metadata, lambda *_: None)
        self._on_damage = on_damage

    def failed_at(self, index: int, bookie: BookieId, entry_id: int, code: int) -> None:
        super().failed_at(index, bookie, entry_id, code)
        if code == DigestMismatchError.code:
            self._on_damage(bookie, entry_id)


class _Run(PackedBatchRead[T], Generic[T]):
    """One packed run."""

    def __init__(
        self, reads: LedgerReads, first: int, max_count: int, max_size: int, take: Take[T], on_damage: OnDamage
    ) -> None:
        super().__init__(reads, first, max_count, max_size)
        self._take_run = take
        self._on_damage = on_damage

    def _take(self, bookie: BookieId, body: Packed) -> T | None:
        taken, damaged = self._take_run(self._first, body)
        if damaged is not None:
            self._on_damage(bookie, damaged)
        return taken
