"""Which local ledgers are to be deleted. The question on which data is lost for ever if the answer is wrong.

Theory of operation (spec bookie-storage §9.2 and §9.3, safety BI-14)

A ledger is deleted here only for one of two reasons, each with two independent proofs:

- *It is gone.* A complete listing of the metadata store that began after the ledger was seen here does not have it; and
  two reads of just this ledger say that it does not exist, one at once, the other after the age guard of two session
  timeouts, so that neither a listing bug nor a lagging server can delete anything alone. Any doubt, error or timeout
  keeps it.
- *It lives elsewhere.* Its metadata is closed and names this bookie in no ensemble, read again while holding the
  ledger's replication lock, so that no replication to this bookie is under way.

The local ledgers are taken before the listing begins: a ledger created while it runs is no candidate. Each deletion
is logged with its proof.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ....config import ServerConfiguration
from ....errors import LockHeld, MetadataError, NoSuchLedger
from ....metadata.api import LedgerStore, UnderreplicationStore
from ....metadata.ledger_metadata import LedgerMetadata
from ....runtime import Runtime
from ....runtime.waiting.rate_limit import RateLimit
from ....types import BookieId

log = logging.getLogger(__name__)

SESSION_TIMEOUTS = 2
"""The age guard in session timeouts: a server that lags more has lost its session."""


class LedgerCollector:
    """Deletes the local ledgers that this bookie need not hold any more."""

    def __init__(
        self,
        runtime: Runtime,
        configuration: ServerConfiguration,
        ledgers: LedgerStore,
        underreplication: UnderreplicationStore | None,
        bookie_id: BookieId,
        local: Callable[[], Sequence[int]],
        delete: Callable[[int], None],
    ) -> None:
        """`local`: the ids of all local ledgers; `delete`: forget one."""
        self._runtime = runtime
        self._store = ledgers
        self._underreplication = underreplication
        self._bookie_id = bookie_id
        self._local = local
        self._delete = delete
        self._age_guard = SESSION_TIMEOUTS * configuration.zkTimeout / 1000
        self._listing_timeout = 2 * configuration.zkTimeout / 1000
        self._rate = RateLimit(runtime, configuration.gcMetadataOpRateLimit)
        self._overreplicated_interval = configuration.gcOverreplicatedLedgerWaitTime / 1000
        self._overreplicated_last = runtime.now()
        self.deleted = 0
        """Ledgers, in this process."""

    async def collect(self) -> None:
        """One pass. Raises `MetadataError` if the listing failed; then nothing is deleted that it would have shown."""
        if 0 < self._overreplicated_interval < self._runtime.now() - self._overreplicated_last:
            self._overreplicated_last = self._runtime.now()
            try:
                await self._collect_overreplicated()
            except MetadataError as error:
                log.warning("ledgers that live elsewhere are kept for now: %s", error)
        candidates = await self._not_listed()
        candidates = [ledger_id for ledger_id in candidates if await self._is_gone(ledger_id)]
        if not candidates:
            return
        await asyncio.sleep(self._age_guard)
        for ledger_id in candidates:
            if await self._is_gone(ledger_id):
                log.info("ledger %d is deleted here: not listed, and twice not found in the metadata store", ledger_id)
                self._delete(ledger_id)
                self.deleted += 1

    async def _not_listed(self) -> list[int]:
        """Local ledgers that a complete listing of the store does not have."""
        local = sorted(self._local())
        missing: list[int] = []
        index = 0
        async for found in self._store.ranges(self._listing_timeout):
            listed = frozenset(found.ids)
            await self._rate.take(1)
            while index < len(local) and local[index] <= found.end:
                if local[index] not in listed:
                    missing.append(local[index])
                index += 1
        return missing + local[index:]

    async def _is_gone(self, ledger_id: int) -> bool:
        """Whether a read of this ledger says that it does not exist."""
        await self._rate.take(1)
        try:
            await self._store.read(ledger_id)
        except NoSuchLedger:
            return True
        except MetadataError as error:
            log.warning("ledger %d is kept, because its metadata cannot be read: %s", ledger_id, error)
        return False

    # --- ledgers that live elsewhere ---

    async def _collect_overreplicated(self) -> None:
        if self._underreplication is None:
            return
        for ledger_id in self._local():
            if not await self._lives_elsewhere(ledger_id) or await self._underreplication.is_locked(ledger_id):
                continue
            try:
                lock = await self._underreplication.acquire(ledger_id)
            except LockHeld:
                continue
            try:
                if await self._lives_elsewhere(ledger_id):
                    log.info(
                        "ledger %d is deleted here: closed, and this bookie is in none of its ensembles", ledger_id
                    )
                    self._delete(ledger_id)
            finally:
                await lock.release()

    async def _lives_elsewhere(self, ledger_id: int) -> bool:
        await self._rate.take(1)
        try:
            metadata: LedgerMetadata = (await self._store.read(ledger_id)).value
        except MetadataError:
            return False  # also when it is gone: that is decided with the other proofs
        return metadata.closed and all(self._bookie_id not in members for members in metadata.ensembles.values())
