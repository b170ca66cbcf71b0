"""What can be said of an entry by its bytes and its ledger's metadata."""

from __future__ import annotations

from ...errors import DigestMismatchError
from ...metadata.ledger_metadata import LedgerMetadata
from ...protocol.digest import digest_for
from ...quorum.distribution import Distribution
from ...types import BookieId, DigestType
from ..storage.examine import Judge


def judge_of(metadata: LedgerMetadata) -> Judge:
    """Who says whether entries of the ledger are what their writer sent.

    By the digest that the record names, with the password beside it. The oldest records have neither: then only ids and
    the least size are looked at, as for DUMMY.
    """
    digest = digest_for(metadata.digest_type or DigestType.DUMMY, metadata.password or b"")
    ledger_id = metadata.ledger_id

    def judge(entry_id: int, entry: bytes) -> str | None:
        try:
            digest.verify(ledger_id, entry_id, entry)
        except DigestMismatchError as error:
            return str(error.args[0])
        return None

    return judge


def belongs(metadata: LedgerMetadata, bookie: BookieId, entry_id: int) -> bool:
    """Whether the bookie is one of those that store the entry. What it has of others may go to ruin."""
    if metadata.closed and entry_id > metadata.last_entry_id:
        return False
    members = metadata.ensemble_at(entry_id)
    return bookie in [members[index] for index in Distribution(*metadata.quorums).write_set(entry_id)]


def ids_only(_entry_id: int, _entry: bytes) -> str | None:
    """The judge where there is no record to go by: that the record in the log has the right ids was seen already."""
    return None
