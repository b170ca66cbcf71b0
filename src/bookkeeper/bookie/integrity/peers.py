"""What the check of a bookie's data needs of other bookies.

A bookie imports no client. Whoever builds the bookie gives it a way to open one (`bookkeeper.peers`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ...config import ServerConfiguration
from ...metadata.api import Versioned
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime import Runtime
from ...types import BookieId


class Peers(Protocol):
    """The other bookies, by way of a client."""

    async def recover(self, metadata: Versioned[LedgerMetadata]) -> LedgerMetadata:
        """Bring a ledger to its end, and return the metadata of the closed one.

        Raises `BKError` if that cannot be done now.
        """

    async def fetch(self, metadata: LedgerMetadata, entry_id: int) -> bytes:
        """An entry as another bookie stores it: packaged, its digest verified. Raises `BKError` if none gives it."""


OpenPeers = Callable[[Runtime, ServerConfiguration, BookieId], AbstractAsyncContextManager[Peers]]
"""Connects to the cluster of a bookie, for as long as the context lasts; the id is the bookie's own."""
