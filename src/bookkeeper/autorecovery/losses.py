"""Which bookies are lost, and when an audit is due. No I/O (spec autorecovery-admin §3.3, §3.4).

Theory of operation

- A bookie is *available* while it is registered, for writes or for reads only. One that was available and is not is
  *missed*. A bookie that restarts is soon back: so while a single one is missed, the audit waits for
  `lostBookieRecoveryDelay`. When it returns meanwhile, nothing was lost. When a second one is missed, the audit is due
  at once.
- An audit looks at all bookies, whichever was missed.
- When more than half of the cluster's bookies are not there, it is more likely that the auditor, or a network, is cut
  off than that they are lost; and there would not be enough left to copy to. Then an audit that comes from a change
  marks nothing and says so. It is `declined`: its losses are missed anew at the next change, and an operator's
  `triggeraudit` is carried out in any case. Java's auditor marks everything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from ..types import BookieId


class Due(Enum):
    """What is to be done about the audit."""

    NOTHING = "nothing"
    """What was planned before stays planned."""
    NOW = "now"
    """Audit at once; what was planned is done with it."""
    LATER = "later"
    """Plan an audit for when the delay is over, instead of what was planned."""
    NEVER = "never"
    """Drop what was planned."""


class Losses:
    """What an auditor knows of bookies that come and go. `expired` says that a planned audit was begun."""

    def __init__(self, known: Collection[BookieId], delay: int) -> None:
        """`known`: all that belong to the cluster, so that one which is gone already is missed. `delay`: seconds."""
        self._known = set(known)
        self.missed: frozenset[BookieId] = frozenset()
        """Those for which an audit is planned."""
        self._planned = False
        self.delay = delay
        """Seconds."""

    @property
    def planned(self) -> bool:
        """Whether an audit waits for the delay to pass."""
        return self._planned

    def changed(self, available: Collection[BookieId]) -> Due:
        """The available bookies are these now."""
        here = frozenset(available)
        self._known |= here
        returned = bool(self.missed) and self.missed <= here
        missed = (frozenset() if returned else self.missed) | (self._known - here)
        self._known -= missed
        if not missed:
            self.missed = missed
            dropped, self._planned = self._planned, False
            return Due.NEVER if dropped else Due.NOTHING
        self.missed = missed
        if self.delay == 0 or len(missed) > 1:
            return self._now()
        if self._planned and not returned:
            return Due.NOTHING
        self._planned = True
        return Due.LATER

    def delay_set(self, delay: int) -> Due:
        """The delay was written, if only with the value it had: that is how operators ask for an audit."""
        before, self.delay = self.delay, delay
        if delay in (0, before):
            return self._now()
        return Due.LATER if self._planned else Due.NOTHING

    def expired(self) -> None:
        """The delay of the planned audit is over, and the audit begins."""
        self._now()

    def declined(self, members: Collection[BookieId]) -> None:
        """The audit marked nothing, because too many of the cluster's members were gone to believe it.

        The losses are still owed: those who are gone at the next change are missed then.
        """
        self._known |= set(members)

    def _now(self) -> Due:
        self._planned = False
        self.missed = frozenset()
        return Due.NOW


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether what is seen of a cluster may be believed."""

    members: int
    """Bookies that belong to it."""
    absent: int
    """Those of them that are not available."""

    @property
    def plausible(self) -> bool:
        """Whether so many may be lost."""
        return self.absent * 2 <= self.members


def outlook(members: Collection[BookieId], available: Collection[BookieId]) -> Outlook:
    """What is seen of the cluster."""
    return Outlook(len(members), sum(bookie not in available for bookie in members))
