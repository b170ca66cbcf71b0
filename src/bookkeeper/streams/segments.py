"""The contract with the store of segments, and what follows from a list of them (spec streams §8.2, §8.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..client.reader import LedgerReader
from ..client.writer import LedgerWriter
from ..errors import StreamStateError
from .errors import EndOfStreamError, TxidOrderError
from .formats.records import END_TXID
from .formats.segment import FIRST_WITH_SEQUENCE, SegmentMetadata


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as its store has it."""

    segments: Sequence[SegmentMetadata]
    """In order; two of one number never."""
    max_segment: int
    """The highest number that a segment ever had; 0 if none."""
    max_txid: int
    """The highest txid of completed segments."""
    first_number: int = 1
    """The number that the first segment gets."""


class SegmentStore(Protocol):
    """What writers and readers need of one stream: its records in the metadata store, and its ledgers.

    A change names what this owner has seen last: when another owner was there meanwhile it raises `NotOwnerError`, and
    changes nothing.
    """

    async def load(self) -> StreamState:
        """As it is now. An owner may be told here already that another one was there."""

    async def start(self, number: int, first_txid: int) -> tuple[SegmentMetadata, LedgerWriter]:
        """Begin a segment, with a ledger of its own."""

    async def complete(self, segment: SegmentMetadata) -> None:
        """End a segment, whose ledger is closed."""

    async def remove(self, segment: SegmentMetadata) -> None:
        """Delete a segment, the ledger first."""

    async def open(self, segment: SegmentMetadata) -> LedgerReader:
        """Its ledger; a writer of it is not disturbed."""

    async def recover(self, segment: SegmentMetadata) -> LedgerReader:
        """Its ledger, closed: a writer of it is fenced off."""

    def watch(self) -> AsyncGenerator[Sequence[SegmentMetadata], None]:
        """All segments in order, now and after each change."""

    async def release(self) -> None:
        """The owner is done: lets the next one in. Idempotent."""


def next_number(state: StreamState) -> int:
    """The number of the segment to begin. Raises `StreamStateError` when list and highest number disagree."""
    following = max((segment.number for segment in state.segments), default=state.first_number - 1) + 1
    known = {state.max_segment, state.max_segment + 1} if state.max_segment else {state.first_number}
    if not state.segments and state.max_segment:
        return state.max_segment  # the only one was empty and is gone: its number is used again
    if following not in known:
        raise StreamStateError(f"segment {following} does not follow {state.max_segment}, the highest there was")
    return following


def check_first_txid(state: StreamState, txid: int) -> None:
    """Whether a segment may begin with it. Raises `EndOfStreamError`, `TxidOrderError`."""
    if state.max_txid == END_TXID:
        raise EndOfStreamError("the stream was sealed")
    if txid < 0:
        raise TxidOrderError(f"the transaction id {txid} is negative")
    if txid < state.max_txid:
        raise TxidOrderError(f"the transaction id {txid} is lower than {state.max_txid} before it")


def start_sequence_id(segments: Sequence[SegmentMetadata], number: int) -> int:
    """The number in the stream of a segment's first record. Raises `StreamStateError` while the one before is open."""
    before = next((segment for segment in segments if segment.number == number - 1), None)
    if before is None or before.version < FIRST_WITH_SEQUENCE:
        return 0
    if not before.completed:
        raise StreamStateError(f"segment {number} cannot be completed before segment {number - 1}")
    return before.sequence_id + before.records
