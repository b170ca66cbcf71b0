"""What a set of answers proves (spec client §1.2, §4.2, §4.3).

An answer to a question about an entry or a ledger is one of three: *positive* (the bookie has it), an explicit
*negative* (it says it has not), or *unknown* (error, timeout, silence, damaged data, limbo). Silence is never taken
for a negative.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NoSuchEntryError, NoSuchLedgerError
from .distribution import Distribution

OK = 0
NO_ANSWER = 1
"""BookKeeper's UNINITIALIZED: asked, nothing heard."""

NEGATIVES = (NoSuchEntryError.code, NoSuchLedgerError.code)


def is_negative(code: int) -> bool:
    """Whether a result code is an explicit 'I do not have it'."""
    return code in NEGATIVES


def is_known(code: int) -> bool:
    """Whether a result code is an answer at all: positive or negative."""
    return code == OK or code in NEGATIVES


class CoverageSet:
    """Answers of an ensemble to a fencing read or LAC read, and whether they cover it.

    Covered means: in no possible write set are there `ack_quorum` bookies that have not answered. So no entry can have
    been acknowledged, or can still be, without a bookie among those that answered.
    """

    __slots__ = ("_codes", "_distribution")

    def __init__(self, distribution: Distribution) -> None:
        self._distribution = distribution
        self._codes = [NO_ANSWER] * distribution.ensemble_size

    def add(self, index: int, code: int) -> None:
        """Record the latest answer of an ensemble index."""
        self._codes[index] = code

    def __str__(self) -> str:
        """By ensemble index: `y` positive, `n` negative, `?` unknown, `.` no answer yet; such as `answers=y?.`."""
        letters = ("." if c == NO_ANSWER else "y" if c == OK else "n" if c in NEGATIVES else "?" for c in self._codes)
        return f"answers={''.join(letters)}"

    @property
    def complete(self) -> bool:
        """Every index has answered something, be it an error."""
        return NO_ANSWER not in self._codes

    @property
    def covered(self) -> bool:
        codes = self._codes
        return all(
            sum(not is_known(codes[index]) for index in window) < self._distribution.ack_quorum
            for window in self._distribution.write_sets
        )


class AckSet:
    """Acks and failures of one request that goes to several ensemble indexes and needs `needed` of them.

    For the adds of a writer see `window`, which keeps the same account for many entries at once.
    """

    __slots__ = ("_acked", "_failed", "_members", "_needed")

    def __init__(self, members: Sequence[int], needed: int) -> None:
        assert 1 <= needed <= len(members)
        self._members = tuple(members)
        self._needed = needed
        self._acked: dict[int, None] = {}
        self._failed: dict[int, int] = {}  # disjoint from _acked

    def complete(self, index: int) -> bool:
        """Record an ack. Returns whether enough have acked."""
        assert index in self._members
        self._failed.pop(index, None)
        self._acked[index] = None
        return len(self._acked) >= self._needed

    def fail(self, index: int, code: int) -> bool:
        """Record a failure. Returns whether the needed number is out of reach."""
        assert index in self._members
        self._acked.pop(index, None)
        self._failed[index] = code
        return len(self._failed) > len(self._members) - self._needed

    def remove(self, index: int) -> bool:
        """Forget what the index answered. Returns whether enough others have acked."""
        self._acked.pop(index, None)
        self._failed.pop(index, None)
        return len(self._acked) >= self._needed

    def __str__(self) -> str:
        """Such as `acked=[0] failed={2: -8} needed=2`."""
        return f"acked={list(self._acked)} failed={self._failed} needed={self._needed}"

    def check(self) -> None:
        """The relations that hold between any two calls. For tests: raises `AssertionError`."""
        assert not self._acked.keys() & self._failed.keys(), f"an index acked or failed: {self}"
        assert {*self._acked, *self._failed} <= {*self._members}, f"answers of members: {self}"

    @property
    def failed(self) -> dict[int, int]:
        """Failed indexes and their codes, in the order they failed."""
        return dict(self._failed)
