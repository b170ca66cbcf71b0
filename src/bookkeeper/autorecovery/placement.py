"""Ledgers that do not lie where the placement policy wants them (spec autorecovery-admin §3.7, §4.5).

Theory of operation

- A ledger is judged when it is closed: as its worst fragment stands. Until then its writer may still change it. Bookies
  are not asked; locations and records say all.
- A ledger that does not adhere lacks no copies. So it is marked only where the operator wants such ledgers moved, and
  the mark names no bookie. A worker that takes it copies first and changes the record afterwards (`repair`).
- What no bookies can better stays where it is. It is no failure, and its mark goes: the next check marks it again, when
  there may be other bookies. Java keeps such marks, and its workers keep trying.
- On the way the check counts marks that are older than `underreplicatedLedgerRecoveryGracePeriod`: repair does not get
  on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..client.context import Placement
from ..client.placement.policy import Adherence
from ..errors import NoSuchLedger
from ..metadata.api import MetadataDriver
from ..metadata.walking import AT_ONCE
from .audits import walk

log = logging.getLogger(__name__)


@dataclass(slots=True)
class PlacementReport:
    """What the placement check saw."""

    ledgers: int = 0
    """Ledgers looked at."""
    marked: int = 0
    """Ledgers that are marked now because of it."""
    NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY: int = 0
    NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY: int = 0
    NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD: int = 0

    def count(self, stands: Adherence) -> None:
        """One ledger."""
        self.ledgers += 1
        if stands is Adherence.FAIL:
            self.NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY += 1
        elif stands is Adherence.MEETS_SOFT:
            self.NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY += 1


async def check_placement(
    driver: MetadataDriver, placement: Placement, *, mark: bool, overdue_before: int | None
) -> PlacementReport:
    """Judge all closed ledgers. `mark`: those that do not adhere are to be moved. Raises `MetadataError`.

    `overdue_before`: marks that are older are counted (milliseconds of the wall clock); None: none is.
    """
    report = PlacementReport()
    if overdue_before is not None:
        report.NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD = await _overdue(driver, overdue_before)
    await placement.refresh()

    async def look(ledger_id: int) -> None:
        try:
            metadata = (await driver.ledgers.read(ledger_id)).value
        except NoSuchLedger:
            return
        if not metadata.closed:
            return
        stands = min(placement.adherence(ensemble, metadata.quorums) for ensemble in metadata.ensembles.values())
        report.count(stands)
        if stands is Adherence.FAIL and mark:
            await driver.underreplication.mark(ledger_id, ())
            report.marked += 1

    await walk(driver, AT_ONCE, look)
    return report


async def _overdue(driver: MetadataDriver, before: int) -> int:
    count = 0
    async for found in driver.underreplication.list():
        if 0 <= found.ctime < before:
            log.error("ledger %d is marked for repair since %d ms, and not repaired", found.ledger_id, found.ctime)
            count += 1
    return count
