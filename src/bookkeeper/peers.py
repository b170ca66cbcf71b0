"""The other bookies, as a bookie needs them that repairs itself: by way of a client (`bookie.integrity.peers`).

The copies that are handed out have been verified: with the digest and the password that the ledger's metadata has. The
oldest records have neither; then only the ids of an entry are compared.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .bookie.integrity.peers import Peers
from .client.client import BookKeeper, connect
from .client.reads.replicas import Copy, Replicas
from .client.recovery import recover_ledger
from .config import ServerConfiguration
from .errors import LedgerRecoveryError, ReadError
from .metadata import configured_service_uri
from .metadata.api import Versioned
from .metadata.ledger_metadata import LedgerMetadata
from .protocol.digest import Digest, digest_for, master_key
from .runtime import Runtime
from .types import BookieId, DigestType

log = logging.getLogger(__name__)

AVOID_SECONDS = 60.0
"""How long a bookie that failed is asked last."""


class ClientPeers(Peers):
    """Asks by way of `client`, which the caller opens and closes."""

    def __init__(self, client: BookKeeper, runtime: Runtime, own: BookieId) -> None:
        """`own`: the bookie that asks."""
        self._context = client.context
        self._runtime = runtime
        self._own = own
        self._avoided: dict[BookieId, float] = {}  # until when

    async def recover(self, metadata: Versioned[LedgerMetadata]) -> LedgerMetadata:
        password = metadata.value.password
        if password is None:
            raise LedgerRecoveryError(
                "its metadata has no password: open it with a client that knows it", ledger_id=metadata.value.ledger_id
            )
        key = master_key(password)
        return (await recover_ledger(self._context, metadata, _digest(metadata.value), key)).value

    async def fetch(self, metadata: LedgerMetadata, entry_id: int) -> bytes:
        replicas = Replicas(self._context, metadata, _digest(metadata))
        others = [bookie for bookie in replicas.bookies(entry_id) if bookie != self._own]
        reasons = []
        for bookie in sorted(others, key=self._is_avoided):
            reply = await replicas.one(bookie, entry_id)
            found = replicas.examine(entry_id, reply)
            if isinstance(found, Copy):
                return reply.body
            if reply.transient:
                self._avoided[bookie] = self._runtime.now() + AVOID_SECONDS
            reasons.append(f"{bookie}: {found.detail}")
        raise ReadError(
            f"no other bookie gives entry {entry_id}: {'; '.join(reasons) or 'there is none'}",
            ledger_id=metadata.ledger_id,
            entry_id=entry_id,
        )

    def _is_avoided(self, bookie: BookieId) -> bool:
        return self._avoided.get(bookie, 0.0) > self._runtime.now()


def _digest(metadata: LedgerMetadata) -> Digest:
    return digest_for(metadata.digest_type or DigestType.DUMMY, metadata.password or b"")


@asynccontextmanager
async def open_peers(runtime: Runtime, config: ServerConfiguration, own: BookieId) -> AsyncIterator[Peers]:
    """Connect to the cluster of the bookie with these settings.

    Raises `MetadataError`, `BKError`, `ConfigurationError`.
    """
    settings = config.client_settings()
    async with connect(configured_service_uri(config), config=settings, runtime=runtime) as client:
        yield ClientPeers(client, runtime, own)
