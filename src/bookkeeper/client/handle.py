"""What a client knows about one ledger it has open: the part that readers and writers share."""

from __future__ import annotations

from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest
from ..quorum.distribution import Distribution
from .context import ClientContext


class LedgerHandle:
    """An open ledger: its metadata, its keys, its schedule.

    The metadata is replaced only by `replace_metadata`, which compares object identity: whoever derived a new value from
    an old one loses if another change came first (spec client §7).
    """

    def __init__(
        self, context: ClientContext, metadata: Versioned[LedgerMetadata], digest: Digest, master_key: bytes
    ) -> None:
        self._context = context
        self._versioned = metadata
        self._digest = digest
        self._master_key = master_key
        value = metadata.value
        self._ledger_id = value.ledger_id
        self._distribution = Distribution(value.ensemble_size, value.write_quorum, value.ack_quorum)

    @property
    def id(self) -> int:
        """The ledger's id."""
        return self._ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this handle knows it."""
        return self._versioned.value

    @property
    def closed(self) -> bool:
        """Whether the ledger is sealed, as far as this handle knows."""
        return self._versioned.value.closed

    @property
    def versioned_metadata(self) -> Versioned[LedgerMetadata]:
        """The metadata with its version."""
        return self._versioned

    def replace_metadata(self, old: Versioned[LedgerMetadata], new: Versioned[LedgerMetadata]) -> bool:
        """Adopt `new` if the metadata is still the object `old`. Returns whether it did."""
        if self._versioned is not old:
            return False
        self._versioned = new
        self._metadata_replaced(old.value, new.value)
        return True

    def _metadata_replaced(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Called after each replacement."""
