"""What a client knows about one ledger it has open: the part that readers and writers share."""

from __future__ import annotations

from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest
from ..quorum.distribution import schedule_of
from .context import ClientContext


class LedgerHandle:
    """An open ledger: its metadata, its keys, its schedule.

    The metadata changes as a whole, and only to a newer version: news may arrive from a watch, from an update of our
    own and from other clients', in any order.
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
        self._distribution = schedule_of(*value.quorums)

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

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.metadata.state.name.lower().replace("_", " ")
        return f"<{type(self).__name__} of ledger {self._ledger_id}: {state}{self._more()}>"

    def _more(self) -> str:
        """What else to show of it."""
        return ""

    def adopt_metadata(self, new: Versioned[LedgerMetadata]) -> bool:
        """Take over metadata that was read or written, if it is newer. Returns whether it was."""
        old = self._versioned
        if new.version <= old.version:
            return False
        self._versioned = new
        self._metadata_adopted(old.value, new.value)
        return True

    def _metadata_adopted(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Called after each change of `metadata`."""
