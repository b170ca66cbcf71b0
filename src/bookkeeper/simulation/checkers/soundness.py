"""Every copy that a bookie gives out is what was written (spec safety BI-10), asked of each bookie by itself."""

from __future__ import annotations

from collections.abc import Collection

from ...client.client import BookKeeper
from ...client.reads.replicas import Copy, CopyStatus, Replicas
from ...metadata.ledger_metadata import LedgerMetadata
from ...protocol.digest import digest_for
from ...types import DigestType
from ..history import LedgerHistory, Violation


async def find_unsound(
    bk: BookKeeper, metadata: LedgerMetadata, ledger: LedgerHistory, lost: Collection[str]
) -> list[str]:
    """The copies of a closed ledger that are damaged or cannot be had, in words; `lost` are bookies not to be asked.

    That a copy is missing is for `replicas` to judge. Raises `Violation` for one whose digest is right, and which is
    not what was written.
    """
    assert metadata.closed
    digest = digest_for(metadata.digest_type or DigestType.DUMMY, metadata.password or b"")
    replicas = Replicas(bk.context, metadata, digest)
    unsound = []
    for entry_id in range(metadata.last_entry_id + 1):
        for bookie in replicas.bookies(entry_id):
            if bookie in lost:
                continue
            found = replicas.examine(entry_id, await replicas.one(bookie, entry_id))
            if isinstance(found, Copy):
                if not ledger.is_as_given(entry_id, found.payload):
                    raise Violation(
                        f"{bookie} gives out an entry {entry_id} of ledger {ledger.ledger_id} that is made up"
                    )
            elif found.status is not CopyStatus.MISSING:
                unsound.append(f"{bookie}'s copy of entry {entry_id} of ledger {ledger.ledger_id}: {found.detail}")
    return unsound
