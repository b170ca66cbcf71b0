"""The caller: what adds, reads and the rest may know of a connection.

The connection alone knows bytes, buffers and time. What serves a request sends its answer here, and asks here
whether there is room for more: so what is served knows nothing of how it came in.
"""

from __future__ import annotations

from typing import Protocol

from .ledger_queues import LedgerQueues
from .long_poll import LongPoll


class Caller(Protocol):
    """See the module."""

    queues: LedgerQueues
    """Requests that may need the disk."""
    urgent_queues: LedgerQueues
    """Those that do not wait behind others: they fence, or recover."""
    polls: dict[LongPoll, None]
    """Long polls of this caller that wait."""

    def send(self, data: bytes) -> None:
        """Send the bytes of one or more answers; dropped if the peer is gone."""

    @property
    def gone(self) -> bool:
        """The peer is gone: answers are dropped."""

    @property
    def output_full(self) -> bool:
        """It does not take its answers as fast as they come."""

    def answer_has(self, size: int) -> None:
        """So large was an answer: it is what the next ones are expected to be."""

    def may_ask_more(self) -> bool:
        """Whether the requests that it has waiting leave room for more."""

    def requests_wait(self, count: int) -> None:
        """So many requests begin to wait."""

    def requests_ended(self, count: int) -> None:
        """So many requests that waited are finished or dropped."""

    @property
    def may_use_journal(self) -> bool:
        """Whether one more fence, WRITE_LAC or FORCE request of it may wait for the journal."""

    def waits_for_journal(self) -> None:
        """One request begins to wait for the journal."""

    def journal_has_it(self) -> None:
        """One request that waited for the journal is finished."""

    def adds_wait_for_journal(self, size: int, count: int) -> None:
        """So many adds begin to wait for the journal, of so many bytes together."""

    def journal_has_adds(self, size: int, count: int) -> None:
        """They are in the journal."""

    @property
    def must_spare(self) -> bool:
        """Its peer wants much, and must leave something for others."""

    async def turn(self) -> None:
        """Wait while its peer rests, and then for its turn."""
