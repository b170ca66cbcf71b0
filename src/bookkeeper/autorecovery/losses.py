"""Which bookies are lost, and when an audit is due. No I/O (spec autorecovery-admin §3.3, §3.4).

Theory of operation

- A bookie is *available* while it is registered, for writes or for reads only. One that was available and is not is
  *missed*. A bookie that restarts is soon back: so while a single one is missed, the audit waits for
  `lostBookieRecoveryDelay`. When it returns meanwhile, nothing was lost. When a second one is missed, the audit is due
  at once.
- An audit looks at all bookies, whichever was missed.
- An audit is *owed* from when it is due until it has come to its end; the first one from the start. One that failed is
  still owed. What comes and goes meanwhile does not put it off: it would be forgotten if who left last came back.
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
    """What an auditor knows of bookies that come and go, and whether an audit is owed."""

    def __init__(self, known: Collection[BookieId], delay: int) -> None:
        """`known`: all that belong to the cluster, so that one which is gone already is missed. `delay`: seconds."""
        self._known = frozenset(known)
        """Those the last audit saw, and those seen since."""
        self.missed: frozenset[BookieId] = frozenset()
        """Those of them that are not available."""
        self._planned = False
        self._owed = True
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
        before, self.missed = self.missed, self._known - here
        if self._owed:
            return Due.NOTHING
        if not self.missed:
            dropped, self._planned = self._planned, False
            return Due.NEVER if dropped else Due.NOTHING
        if self.delay == 0 or len(self.missed) > 1:
            return self._now()
        if self._planned and self.missed == before:
            return Due.NOTHING
        self._planned = True
        return Due.LATER

    def delay_set(self, delay: int) -> Due:
        """The delay was written, if only with the value it had: that is how operators ask for an audit."""
        before, self.delay = self.delay, delay
        if delay in (0, before):
            return self._now()
        return Due.LATER if self._planned else Due.NOTHING

    def begun(self) -> None:
        """An audit begins, whatever it was planned for. It is owed until `audited` or `declined`."""
        self._now()

    def audited(self, available: Collection[BookieId]) -> None:
        """The audit came to its end. It took these bookies for available, and marked what others should have."""
        self._known = frozenset(available)
        self.missed = frozenset()
        self._owed = False

    def declined(self) -> None:
        """The audit marked nothing, because too many of the cluster's members were gone to believe it.

        The losses stay: those who are gone at the next change are missed then.
        """
        self._owed = False

    def _now(self) -> Due:
        self._planned = False
        self._owed = True
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
