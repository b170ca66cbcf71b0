"""What all reads of one open ledger share: which bookie to ask first, and what was learnt on the way (spec client §9.5,
§9.6).

How large entries are decides how many may be asked for at once. What is known of it: the average of those that came
last, and, of a closed ledger, the average of those behind them, which its length tells. The larger of the two counts,
so that a ledger of small entries with large ones at its end is no surprise.

Where every bookie of an ensemble has every entry, small entries are asked for in *runs*: the replica that is asked
first changes with every run, not with every entry. The bookies share the reads all the same, but each finds what it is
asked for side by side, in its memory and on its disk, and has to keep its part of the ledger only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import BookieUnavailableError
from ...metadata.ledger_metadata import LedgerMetadata
from ...protocol.digest import Digest
from ...protocol.messages import V2
from ...quorum.distribution import Distribution
from ...types import INVALID_ENTRY_ID, BookieId
from ..context import ClientContext
from ..wire.results import LOCAL_FAILURES

Orders = tuple[tuple[int, ...], ...]
"""For each entry id modulo E, or the number of its run modulo E: ensemble indexes in the order to ask them."""

LARGEST_RUN = 64
"""Entries in a row that are asked of the same bookie, at most: a power of two."""

RUN_BYTES = 64 << 10
"""What such a run has about, in bytes: more is spread over more bookies."""

ENTRY_OVERHEAD = 64
"""About what an entry takes on the wire beside its payload."""

SIZE_MEMORY = 16
"""So many entries weigh as much in the average size as all that came before them."""


class LedgerReads:
    """State of a handle's reads. `metadata` gives the handle's current metadata; `raise_lac(lac, length)` tells it
    of a LAC and of a ledger length (0: unknown) that a bookie knows."""

    def __init__(
        self,
        context: ClientContext,
        distribution: Distribution,
        digest: Digest,
        metadata: Callable[[], LedgerMetadata],
        raise_lac: Callable[[int, int], None],
    ) -> None:
        self.context = context
        self.distribution = distribution
        self.digest = digest
        self.current_metadata = metadata
        self._raise_lac = raise_lac
        self.ledger_id = metadata().ledger_id
        self._everywhere = distribution.ensemble_size == distribution.write_quorum
        self._batches = self._everywhere and context.config.batchReadEnabled
        self.batches_under_way = 0  # calls for a batch that wait for bookies
        self._recent_size = 0.0  # average payload of the entries that came last; 0: none came
        self._coming_size = self._average_behind(INVALID_ENTRY_ID, 0)  # of those behind the last; 0: unknown
        self.run_length = self._run_for(self.entry_size)
        """How many entries in a row are asked of the same bookie first: those from a multiple of it on."""
        self._orders: dict[tuple[BookieId, ...], Orders] = {}
        self._orders_version: int | None = None  # placement's version for which _orders holds
        config = context.config
        self._reorder = config.reorderReadSequenceEnabled
        self._sticky: int | None = None
        """With sticky reads: whose turn it is, instead of the entry id."""
        if config.stickyReadSEnabled and self._everywhere:
            self._sticky = context.runtime.random("sticky reads").randrange(distribution.ensemble_size)

    def raise_lac(self, lac: int, length: int = 0) -> None:
        """A bookie knows of this LAC, and of a ledger of at least this length."""
        self._raise_lac(lac, length)

    # --- sizes ---

    @property
    def entry_size(self) -> float:
        """About how many bytes an answer with the next entry will have; 0 when nothing is known."""
        size = max(self._recent_size, self._coming_size)
        return size + ENTRY_OVERHEAD if size else 0.0

    def saw(self, count: int, size: float, entry_id: int, ledger_length: int) -> None:
        """`count` entries came with payloads of `size` bytes on average. The last was `entry_id`, and the ledger had
        `ledger_length` bytes with it."""
        size = max(size, 1.0)  # 0 means unknown
        weight = count / (count + SIZE_MEMORY) if self._recent_size else 1.0
        self._recent_size += (size - self._recent_size) * weight
        self._coming_size = self._average_behind(entry_id, ledger_length)
        self.run_length = self._run_for(self.entry_size)

    def _average_behind(self, entry_id: int, ledger_length: int) -> float:
        metadata = self.current_metadata()
        count = metadata.last_entry_id - entry_id
        return max(0.0, (metadata.length - ledger_length) / count) if metadata.closed and count > 0 else 0.0

    def expected_count(self, count: int, max_bytes: int) -> int:
        """About how many entries an answer will have, of `count` and of what fits `max_bytes`: one at least."""
        size = self.entry_size
        return max(1, min(count, int(max_bytes / size))) if size else count

    # --- which bookies to ask ---

    def _run_for(self, entry_size: float) -> int:
        if not (self._everywhere and entry_size):
            return 1
        return 1 << (max(1, min(LARGEST_RUN, int(RUN_BYTES / entry_size))).bit_length() - 1)

    def can_batch(self, entry_id: int) -> bool:
        """Whether a bookie holds this entry and those behind it, and can be asked for them at once.

        Of a striped ledger (E > Wq) a bookie holds runs of Wq entries only. A batch read of two or four costs a bookie
        several times what the same entries cost in a row of single reads, which it answers together; so those ledgers
        are read entry by entry, from all their bookies side by side.
        """
        if not self._batches or self.context.bookies.read_version != V2:
            return False
        ensemble = self.current_metadata().ensemble_at(entry_id)
        return self.context.batch_support.any(ensemble, self.context.runtime.now())

    def batch_order(self, ensemble: tuple[BookieId, ...], turn: int) -> tuple[int, ...]:
        """The bookies to ask for a batch, whose turn it is first; last those who may not know such requests."""
        orders = self.orders(ensemble)
        order = orders[turn % len(orders)]
        doubts = self.context.batch_support.doubts
        now = self.context.runtime.now()
        return tuple(sorted(order, key=lambda index: doubts(ensemble[index], now)))

    def batch_answered(self, bookie: BookieId, code: int) -> None:
        """A batch read of a bookie has ended."""
        if code == BookieUnavailableError.code:
            self.context.batch_support.lost(bookie, self.context.runtime.now())
        elif code not in LOCAL_FAILURES:
            self.context.batch_support.answered(bookie)

    def orders(self, ensemble: tuple[BookieId, ...]) -> Orders:
        """The bookies to ask for the entries of an ensemble, worked out once for as long as it holds."""
        version = self.context.placement.version
        if version is None or version != self._orders_version:
            self._orders.clear()
            self._orders_version = version
        orders = self._orders.get(ensemble)
        if orders is None:
            orders = self._orders[ensemble] = self._work_out(ensemble)
        return orders

    def _work_out(self, ensemble: Sequence[BookieId]) -> Orders:
        sets = self.distribution.write_sets
        if self._sticky is not None:
            sets = (sets[self._sticky],) * len(sets)
        if not self._reorder:
            return sets
        reorder = self.context.placement.reorder_read
        return tuple(reorder(ensemble, write_set) for write_set in sets)

    def order_of_all(self, ensemble: Sequence[BookieId], entry_id: int) -> tuple[int, ...]:
        """The whole ensemble, beginning with the entry's replicas: for what concerns all of it."""
        indexes = self.distribution.ensemble_set(entry_id)
        return self.context.placement.reorder_read(ensemble, indexes) if self._reorder else indexes

    def failed_at(self, index: int, bookie: BookieId, entry_id: int, code: int) -> None:  # noqa: ARG002
        """The replica at an ensemble index did not deliver an entry (or the entries from it on), because of `code`."""
        if self._sticky is not None:
            self._sticky = (index + 1) % self.distribution.ensemble_size
            self._orders.clear()
