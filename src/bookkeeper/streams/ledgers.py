"""The ledgers of a stream: as Java's DistributedLog makes and opens them (spec streams §2.2, §13.1)."""

from __future__ import annotations

import contextlib
import logging
from copy import copy
from dataclasses import dataclass
from typing import Self

from ..client.client import BookKeeper
from ..client.reader import LedgerReader
from ..client.writer import LedgerAdvWriter, LedgerWriter
from ..errors import BKError, NoSuchLedgerOnMetadataError
from ..metadata.ledger_metadata import LedgerMetadata
from ..types import DigestType

log = logging.getLogger(__name__)

DIGEST = DigestType.CRC32
"""Of the ledgers of streams: Java's readers know no other."""


@dataclass(frozen=True, slots=True)
class Replication:
    """On how many bookies a segment is: as `create_ledger` takes it."""

    ensemble_size: int = 3
    """Bookies that a segment is spread over."""
    write_quorum: int = 3
    """Copies of each entry."""
    ack_quorum: int = 2
    """Copies that an append waits for."""
    password: bytes = b""
    """Of the ledgers; Java's `digestPw`. One for all streams of a namespace."""
    digest: DigestType = DIGEST
    """How entries are protected. Java's readers of streams know none but CRC32."""


class StreamLedgers:
    """Makes, opens and deletes ledgers; a `names.allocation.LedgerMaker`."""

    def __init__(self, client: BookKeeper, replication: Replication) -> None:
        self._client = client
        self._replication = replication

    @property
    def replication(self) -> Replication:
        return self._replication

    def like(self, replication: Replication) -> Self:
        """The same for ledgers of another kind."""
        other = copy(self)
        other._replication = replication
        return other

    async def create(self) -> LedgerWriter:
        """One for a new segment. Raises what `create_ledger` raises."""
        wanted = self._replication
        return await self._client.create_ledger(
            ensemble_size=wanted.ensemble_size,
            write_quorum=wanted.write_quorum,
            ack_quorum=wanted.ack_quorum,
            password=wanted.password,
            digest=wanted.digest,
        )

    async def reserve_id(self) -> int:
        """An id that no ledger gets but by `create_as`."""
        return await self._client.context.driver.ids.allocate()

    async def create_as(self, ledger_id: int) -> LedgerAdvWriter:
        """As `create`, with an id that is known before; its caller numbers the entries."""
        wanted = self._replication
        return await self._client.create_ledger_adv(
            ledger_id=ledger_id,
            ensemble_size=wanted.ensemble_size,
            write_quorum=wanted.write_quorum,
            ack_quorum=wanted.ack_quorum,
            password=wanted.password,
            digest=wanted.digest,
        )

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Its record. Raises `NoSuchLedgerOnMetadataError`."""
        return await self._client.get_ledger_metadata(ledger_id)

    async def size(self, ledger_id: int) -> int:
        """Bytes of one that is closed; 0 if it is gone."""
        try:
            return max((await self.metadata(ledger_id)).length, 0)
        except NoSuchLedgerOnMetadataError:
            return 0

    def id_of(self, ledger: LedgerWriter) -> int:
        """Its id."""
        return ledger.id

    async def delete(self, ledger_id: int) -> None:
        """One that is gone already is a success."""
        with contextlib.suppress(NoSuchLedgerOnMetadataError):
            await self._client.delete_ledger(ledger_id)

    async def close(self, ledger: LedgerWriter) -> None:
        """End a writer, if it can be done."""
        try:
            await ledger.close()
        except BKError as error:
            log.info("ledger %d is left as it is: %s", ledger.id, error)

    async def open(self, ledger_id: int) -> LedgerReader:
        """To be read; a writer of it is not disturbed."""
        return await self._client.open_ledger(ledger_id, password=self._replication.password)

    async def recover(self, ledger_id: int) -> LedgerReader:
        """Closed: a writer of it is fenced off."""
        return await self._client.recover_ledger(ledger_id, password=self._replication.password)
