"""What all reads of one open ledger share: whom to ask first, and what was learnt on the way (spec client §9.5,
§9.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest
from ..protocol.messages import V2
from ..quorum.distribution import Distribution
from ..types import BookieId
from .context import ClientContext

Orders = tuple[tuple[int, ...], ...]
"""For each entry id modulo E: ensemble indexes in the order to ask them."""


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
        self.batch_reads_fail = False
        """A batch read found no bookie that answers it: this handle reads entry by entry from now on."""
        self._orders: dict[tuple[BookieId, ...], Orders] = {}
        self._orders_version: int | None = None  # placement's version for which _orders holds
        config = context.config
        self._reorder = config.reorderReadSequenceEnabled
        self._sticky: int | None = None
        """With sticky reads: whose turn it is, instead of the entry id."""
        if config.stickyReadSEnabled and distribution.ensemble_size == distribution.write_quorum:
            self._sticky = context.runtime.random("sticky reads").randrange(distribution.ensemble_size)

    def raise_lac(self, lac: int, length: int = 0) -> None:
        """A bookie knows of this LAC, and of a ledger of at least this length."""
        self._raise_lac(lac, length)

    @property
    def can_batch(self) -> bool:
        """Whether a bookie holds consecutive entries and can be asked for them at once."""
        return (
            self.distribution.ensemble_size == self.distribution.write_quorum
            and self.context.config.batchReadEnabled
            and self.context.bookies.read_version == V2
            and not self.batch_reads_fail
        )

    def orders(self, ensemble: tuple[BookieId, ...]) -> Orders:
        """Whom to ask for the entries of an ensemble, worked out once for as long as it holds."""
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
