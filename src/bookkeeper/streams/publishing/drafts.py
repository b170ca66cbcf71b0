"""Segments that are still to get their place in a stream (spec streams §15.7). Pure.

Numbers, positions and sequence ids are not in the data of a stream, so a ledger can be filled by anybody, and become a
segment later. Transaction ids are in the data. Who cannot know them while it writes (others may publish first) leaves
them 0: the segment gets its id when it gets its place, and a reader takes the higher one of record and segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from ...errors import IncorrectParameterError, StreamMetadataError
from ..dlsn import DLSN
from ..errors import EndOfStreamError, TxidOrderError
from ..formats.records import END_TXID
from ..formats.segment import MOST_RECORDS, SegmentMetadata
from ..segments import StreamState, next_number, start_sequence_id

UNSTAMPED = 0
"""The transaction id of records that get theirs with their place."""

Drafts = Mapping[str, Sequence["SegmentDraft"]]
"""By the names of streams, in the order in which they become segments."""


@dataclass(frozen=True, slots=True)
class SegmentDraft:
    """A closed ledger with records in the format of streams, of version 5. Raises `IncorrectParameterError`."""

    ledger_id: int
    """It must be closed."""
    records: int
    """User records in it; their positions count from 1."""
    last_entry: int
    """Its last entry."""
    last_slot: int
    """Of the last record in that."""
    first_txid: int | None = None
    """Of the first record. None: the records have the transaction id 0, and get one when they are published."""
    last_txid: int | None = None
    """Of the last record; None just as the first one."""
    staged: bool = False
    """Whether its ledger belongs to a `Staging`."""
    size: int = 0
    """Bytes of its entries. 0: not known."""

    def __post_init__(self) -> None:
        known = self.first_txid is not None
        if known != (self.last_txid is not None):
            raise IncorrectParameterError("give both transaction ids of a draft or none")
        if known and not 0 <= (self.first_txid or 0) <= (self.last_txid or 0) < END_TXID:
            raise IncorrectParameterError(f"the transaction ids {self.first_txid} to {self.last_txid} make no sense")
        if not (0 < self.records <= MOST_RECORDS and self.ledger_id >= 0 and self.last_entry >= 0 <= self.last_slot):
            raise IncorrectParameterError(f"{self} has no records, or makes no sense")

    @property
    def stamped(self) -> bool:
        """Whether its records have transaction ids of their own."""
        return self.first_txid is not None

    def to_json(self) -> dict[str, Any]:
        """To be sent or stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises `StreamMetadataError`."""
        try:
            return cls(**data)
        except (TypeError, IncorrectParameterError) as error:
            raise StreamMetadataError(f"{data!r} is no draft of a segment: {error}") from None


def check_drafts(drafts: Drafts) -> None:
    """Raises `IncorrectParameterError` for a ledger that is in there twice, and for a stream that gets nothing."""
    ledgers = [draft.ledger_id for some in drafts.values() for draft in some]
    if not all(drafts.values()):
        raise IncorrectParameterError("there is nothing to publish for one of the streams")
    if len(set(ledgers)) < len(ledgers):
        raise IncorrectParameterError("a ledger can become one segment only: one is there twice")


def place(
    state: StreamState, drafts: Sequence[SegmentDraft], now_ms: int, *, decided: bool = False
) -> list[SegmentMetadata]:
    """The segments that drafts become behind all that is there, whose segments must be completed.

    - `decided`: they are published in any case: what has moved the transaction ids since then moves theirs.

    Raises `EndOfStreamError`, and unless it is decided `TxidOrderError`.
    """
    if state.max_txid == END_TXID:
        raise EndOfStreamError("the stream was sealed")
    number, floor = next_number(state), max(state.max_txid, 0)
    sequence_id = start_sequence_id(state.segments, number)
    placed = []
    for draft in drafts:
        first, floor = _stamp(draft, floor, now_ms, decided)
        placed.append(
            SegmentMetadata(ledger_id=draft.ledger_id, first_txid=first, number=number).complete(
                last_txid=floor,
                records=draft.records,
                last=DLSN(number, draft.last_entry, draft.last_slot),
                completed_ms=now_ms,
                start_sequence_id=sequence_id,
            )
        )
        number, sequence_id = number + 1, sequence_id + draft.records
    return placed


def _stamp(draft: SegmentDraft, floor: int, now_ms: int, decided: bool) -> tuple[int, int]:
    """First and last transaction id of a draft behind others whose last one is `floor`."""
    if draft.first_txid is None or draft.last_txid is None:
        stamp = max(floor, now_ms)
        return stamp, stamp
    if draft.first_txid < floor and not decided:
        raise TxidOrderError(
            f"ledger {draft.ledger_id} begins with transaction id {draft.first_txid}, but {floor} is in the stream "
            "already: leave the ids to the publisher"
        )
    return max(draft.first_txid, floor), max(draft.last_txid, floor)


def already_there(state: StreamState, drafts: Sequence[SegmentDraft]) -> tuple[int, int] | None:
    """First and last number of the segments that these drafts are already, or None.

    Raises `IncorrectParameterError` if that is true of some of them only.
    """
    wanted = {draft.ledger_id for draft in drafts}
    found = [segment.number for segment in state.segments if segment.ledger_id in wanted]
    if not found:
        return None
    if len(found) < len(wanted):
        raise IncorrectParameterError(f"{len(found)} of these ledgers are segments of the stream already")
    return min(found), max(found)
