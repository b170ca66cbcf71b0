"""Reading one entry from its replicas: which one to ask next, and what the answers amount to.

Spec client §9.2, §9.3, §10.3.

The replicas of an entry are asked one after the other, in an order the caller chose; a speculative request may be
added at any time. The first good copy wins. Without one, the entry's error is the most telling of the answers: 'no such
entry' is reported only when every replica said so, because one silent bookie may be the one that has it.

A *recovery read* has a further outcome: when `quorum_coverage` replicas deny the entry, no ack quorum can have it, and,
since these reads fence, none ever will. That is the end of the ledger, whatever the other replicas would say.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BookieUnavailableError, NoSuchEntryError
from .coverage import OK, is_negative


def first_error(so_far: int, code: int) -> int:
    """The error to report for an entry after one more failed answer; starts from `OK`.

    A negative gives way to anything else, and 'bookie unavailable' to anything but a negative.
    """
    if so_far == OK or is_negative(so_far):
        return code
    if so_far == BookieUnavailableError.code and not is_negative(code):
        return code
    return so_far


class EntryRead:
    """The state of reading one entry, or of reading one run of entries from the replicas of its first.

    Drive it so: ask `send_next()` for the first replica, report each answer with `succeed` or `fail`; while `outcome`
    is None and `idle`, or when a speculation timer fires, `send_next()` again. Reports after the outcome are ignored.
    """

    __slots__ = (
        "_asked",
        "_error",
        "_errored",
        "_negatives",
        "_negatives_to_end",
        "_order",
        "outcome",
        "winner",
    )

    def __init__(self, order: Sequence[int], *, negatives_to_end: int | None = None) -> None:
        """`order`: ensemble indexes, best first. `negatives_to_end`: for a recovery read, Wq - Aq + 1."""
        assert order
        self._order = tuple(order)
        self._negatives_to_end = negatives_to_end
        self._asked = 0  # the first `_asked` of `_order` were sent to
        self._errored = 0  # answers that were not good; <= _asked
        self._negatives = 0
        self._error = OK
        self.outcome: int | None = None
        """None while undecided, 0 when a good copy came, else the error code to report."""
        self.winner: int | None = None
        """The index whose copy was good."""

    def __str__(self) -> str:
        """A word or two: `asked 2 of 3, 1 failed`, `found at 1`, `error -13`."""
        if self.outcome is None:
            return f"asked {self._asked} of {len(self._order)}, {self._errored} failed"
        return f"found at {self.winner}" if self.outcome == OK else f"error {self.outcome}"

    def check(self) -> None:
        """The relations that hold between any two calls. For tests: raises `AssertionError`."""
        assert 0 <= self._negatives <= self._errored <= self._asked <= len(self._order), self
        assert (self.winner is not None) == (self.outcome == OK), self
        assert self.winner is None or self.winner in self._order, self

    @property
    def idle(self) -> bool:
        """No request is outstanding."""
        return self._asked == self._errored

    @property
    def asked(self) -> tuple[int, ...]:
        """Indexes sent to so far, in order. All before the last were slow or failing (`registerSlowBookie`)."""
        return self._order[: self._asked]

    def send_next(self) -> int | None:
        """The next replica to ask; None when there is none left or the outcome is known."""
        if self.outcome is not None or self._asked == len(self._order):
            return None
        self._asked += 1
        return self._order[self._asked - 1]

    def succeed(self, index: int) -> bool:
        """A good copy arrived (its digest was checked). Returns whether it decided the read."""
        if self.outcome is not None:
            return False
        self.outcome = OK
        self.winner = index
        return True

    def fail(self, code: int) -> None:
        """An asked replica has no good copy: an error code, a negative, or -5 for a bad digest."""
        assert code != OK
        if self.outcome is not None:
            return
        self._errored += 1
        assert self._errored <= self._asked, self
        self._error = first_error(self._error, code)
        if is_negative(code):
            self._negatives += 1
        if self._negatives_to_end is not None and self._negatives >= self._negatives_to_end:
            self.outcome = NoSuchEntryError.code
        elif self._errored == len(self._order):
            self.outcome = self._error
