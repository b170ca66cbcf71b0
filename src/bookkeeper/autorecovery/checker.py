"""The ledger checker: which copies of a ledger are not where its record says (spec autorecovery-admin §5.2).

Theory of operation

- A bookie that is not available has nothing, without being asked: also where nothing was stored on it yet, so that a
  record never goes on naming one that is gone.
- Of any other bookie a sample of its entries is read: the first and the last of each fragment, and so many per cent of
  those between. A copy counts if its digest and ids are right: there is one answer to what a good copy is
  (`client.reads.replicas`). Java's checker looks at presence only.
- The end of a ledger that is not closed is looked at up to the last entry known to be confirmed. Beyond it nothing need
  be anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from ..client.context import ClientContext
from ..client.reads.replicas import Copy, Replicas
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest, digest_for
from ..runtime import Runtime
from ..types import BookieId, DigestType
from .fragments import Fragment, fragments_of

READS_AT_ONCE = 512
"""Entries of one bookie that are asked for together, unless `inFlightReadEntryNumInLedgerChecker` is less."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A fragment, and the indexes of its ensemble whose bookies do not have what they must."""

    fragment: Fragment
    bad: frozenset[int]

    @property
    def bookies(self) -> list[BookieId]:
        """Those bookies."""
        return [self.fragment.ensemble[index] for index in sorted(self.bad)]


class LedgerChecker:
    """Reads and compares; changes nothing."""

    def __init__(self, runtime: Runtime, context: ClientContext, *, in_flight: int = -1) -> None:
        """`in_flight`: entries that are asked for together, not positive for `READS_AT_ONCE`."""
        self._context = context
        self._random = runtime.random("ledger checker")
        self._at_once = min(in_flight, READS_AT_ONCE) if in_flight > 0 else READS_AT_ONCE

    async def check(
        self, metadata: LedgerMetadata, last_confirmed: int, available: Collection[BookieId], percentage: int
    ) -> list[Damage]:
        """The damaged fragments of a ledger, ascending; empty if it is whole.

        `percentage` of the entries between the first and the last of each bookie are looked at.
        """
        replicas = Replicas(self._context, metadata, digest_of(metadata))
        found = []
        for fragment in fragments_of(metadata, last_confirmed):
            bad = await self._bad(replicas, fragment, available, percentage)
            if bad:
                found.append(Damage(fragment, bad))
        return found

    async def _bad(
        self, replicas: Replicas, fragment: Fragment, available: Collection[BookieId], percentage: int
    ) -> frozenset[int]:
        gone = fragment.gone(available)
        others = [index for index in range(len(fragment.ensemble)) if index not in gone]
        good = await asyncio.gather(*(self._has_all(replicas, fragment, index, percentage) for index in others))
        return gone | {index for index, whole in zip(others, good, strict=True) if not whole}

    async def _has_all(self, replicas: Replicas, fragment: Fragment, index: int, percentage: int) -> bool:
        """Whether a bookie has the entries of the sample."""
        bookie = fragment.ensemble[index]
        sample = fragment.sample(index, percentage, self._random)
        while entries := [*islice(sample, self._at_once)]:
            async for entry_id, reply in replicas.each(bookie, entries):
                if not isinstance(replicas.examine(entry_id, reply), Copy):
                    return False
        return True


def digest_of(metadata: LedgerMetadata) -> Digest:
    """With what the ledger's entries were packaged. The oldest records do not say: then only ids are compared."""
    return digest_for(metadata.digest_type or DigestType.DUMMY, metadata.password or b"")
