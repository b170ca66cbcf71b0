"""The auditor: notices lost bookies and damaged ledgers, and marks what is to be repaired (spec autorecovery-admin §3).

Theory of operation

One autorecovery process of a cluster is elected auditor. It does one thing at a time, and nothing while re-replication
is disabled:

- When bookies come or go, `losses` decides whether an audit of the bookies is due, at once or after
  `lostBookieRecoveryDelay`. The first audit is due at the start, so nothing that happened without an auditor is missed.
- Writing the delay, if only with the value that it has, asks for an audit: that is how operators trigger one.
- `auditorPeriodicBookieCheckInterval`, `auditorPeriodicCheckInterval`, `auditorPeriodicPlacementPolicyCheckInterval`
  and `auditorReplicasCheckInterval` repeat audit, check of all ledgers, placement check and replicas check. When the
  last check was is kept in the store, and only of checks that came to their end, so a new auditor goes on where the old
  one was.
- An audit that fails, or that is declined because most bookies seem to be gone, is owed: it is tried again after
  `RETRY_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from ..client.client import BookKeeper
from ..config import ServerConfiguration
from ..errors import BKError, MetadataError
from ..metadata.api import CheckKind, MetadataDriver, Mode
from ..runtime import Runtime, TaskScope
from ..runtime.tasks import guarded
from .audits import AuditReport, ReplicasReport, audit_bookies, check_all_ledgers, check_replicas
from .losses import Due, Losses, outlook
from .placement import PlacementReport, check_placement
from .repair import Repair
from .stats import AuditorStats

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Before something that failed is tried again."""


class Auditor:
    """What the elected one does. Made anew for each term."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        driver: MetadataDriver,
        client: BookKeeper,
        repair: Repair,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._driver = driver
        self._client = client
        self._repair = repair
        self._wake = asyncio.Event()
        self._bookies_changed = True
        self._delays: list[int] = []  # written and not looked at yet
        self._audit_at = 0.0  # the first audit is due at once
        self._asked = False
        """An operator wants the next audit whatever it finds."""
        self._checks: dict[CheckKind, float] = {}  # when they are due
        self.replicas = ReplicasReport()
        """What the last replicas check saw."""
        self.placement = PlacementReport()
        """What the last placement check saw."""
        self._losses = Losses((), 0)
        self.stats = AuditorStats()

    async def run(self) -> None:
        """Audit, until cancelled."""
        tasks = TaskScope(self._runtime, "auditor")
        try:
            await self._begin()
            for mode in Mode:
                bookies = partial(self._driver.discovery.watch, mode)
                tasks.spawn(self._follow(bookies, self._on_bookies), name=mode.value)
            tasks.spawn(self._follow(self._written_delays, self._on_delay), name="lostBookieRecoveryDelay")
            while True:
                done = False
                with guarded("auditor"):
                    done = await self._step()
                await (self._rest() if done else asyncio.sleep(RETRY_SECONDS))
        finally:
            await tasks.close()

    async def _begin(self) -> None:
        marks = self._driver.underreplication
        while True:
            try:
                await marks.init_lost_bookie_recovery_delay(self._config.lostBookieRecoveryDelay)
                delay = await marks.get_lost_bookie_recovery_delay()
                members = (await self._driver.discovery.list_all()).value
                self._checks = {kind: await self._first(kind) for kind in self._intervals}
                break
            except MetadataError as error:
                log.warning("the auditor cannot begin: %s; trying again", error)
                await asyncio.sleep(RETRY_SECONDS)
        self._losses = Losses(members, delay)

    @property
    def _intervals(self) -> dict[CheckKind, int]:
        config = self._config
        return {
            CheckKind.ALL_LEDGERS: config.auditorPeriodicCheckInterval,
            CheckKind.PLACEMENT_POLICY: config.auditorPeriodicPlacementPolicyCheckInterval,
            CheckKind.REPLICAS: config.auditorReplicasCheckInterval,
        }

    async def _first(self, kind: CheckKind) -> float:
        """When a check is due for the first time in this term."""
        interval = self._intervals[kind]
        if interval <= 0:
            return math.inf
        last = await self._driver.underreplication.get_check_time(kind)
        passed = max(0.0, (self._runtime.wall_ms() - last) / 1000) if last >= 0 else math.inf
        return self._runtime.now() + max(0.0, interval - passed)

    # --- news ---

    async def _follow(self, news: Callable[[], AsyncGenerator[Any, None]], take: Callable[[Any], None]) -> None:
        """Take what a watch brings; begin it again if it ends."""
        while True:
            with guarded("auditor's watch"):
                try:
                    async with aclosing(news()) as following:
                        async for item in following:
                            take(item)
                            self._wake.set()
                except MetadataError as error:
                    log.warning("the auditor hears nothing of the store: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _written_delays(self) -> AsyncGenerator[int, None]:
        """The delay whenever it is written. A watch begins with what is stored: that is news only if it is another."""
        first = True
        async with aclosing(self._driver.underreplication.watch_lost_bookie_recovery_delay()) as delays:
            async for seconds in delays:
                if not first or seconds != self._losses.delay:
                    yield seconds
                first = False

    def _on_bookies(self, _bookies: object) -> None:
        self._bookies_changed = True

    def _on_delay(self, seconds: int) -> None:
        self._delays.append(seconds)
        del self._delays[:-2]  # the last one counts, and whether it was written again

    # --- what is due ---

    async def _rest(self) -> None:
        """Wait for news, or until something is due."""
        checks = () if self._losses.planned else self._checks.values()  # they wait for an audit that is put off
        left = min((self._audit_at, *checks)) - self._runtime.now()
        if left <= 0 or self._bookies_changed or self._delays:
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(left if left < math.inf else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _step(self) -> bool:
        """Do what is due; False if that failed, and is owed."""
        try:
            await self._driver.underreplication.wait_enabled()
            if self._bookies_changed:
                self._bookies_changed = False
                available = await self._repair.available()
                waited = self._losses.planned
                self._plan(self._losses.changed(available), waited)
            while self._delays:
                waited = self._losses.planned
                due = self._losses.delay_set(self._delays.pop(0))
                self._asked = self._asked or due is Due.NOW
                self._plan(due, waited)
            if self._runtime.now() >= self._audit_at:
                await self._audit()
            elif not self._losses.planned:
                for kind, due_at in self._checks.items():
                    if self._runtime.now() >= due_at:
                        await self._check(kind)
                        break
        except (MetadataError, BKError) as error:
            log.warning("an audit failed and is owed: %s", error)
            self._bookies_changed = True
            return False
        return True

    def _plan(self, due: Due, waited: bool) -> None:
        """`waited`: whether an audit was put off until now."""
        now = self._runtime.now()
        self.stats.NUM_BOOKIE_AUDITS_DELAYED += due is Due.LATER
        self.stats.NUM_DELAYED_BOOKIE_AUDITS_CANCELLED += waited and due is not Due.NOTHING
        match due:
            case Due.NOW:
                self._audit_at = now
            case Due.LATER:
                self._audit_at = now + self._losses.delay
                log.info("bookies are missed: an audit follows in %d s unless they return", self._losses.delay)
            case Due.NEVER:
                self._audit_at = self._next_periodic()
            case Due.NOTHING:
                pass

    def _next_periodic(self) -> float:
        interval = self._config.auditorPeriodicBookieCheckInterval
        return self._runtime.now() + interval if interval > 0 else math.inf

    async def _audit(self) -> None:
        available = await self._repair.available()
        members = (await self._driver.discovery.list_all()).value | available
        self._losses.begun()
        seen = outlook(members, available)
        if not seen.plausible and not self._asked:
            log.warning(
                "%d of %d bookies are gone: more likely this process is cut off than they are lost. Nothing is marked; "
                "`bookkeeper shell triggeraudit` marks them all the same",
                *(seen.absent, seen.members),
            )
            self._losses.declined()
            self._audit_at = self._runtime.now() + RETRY_SECONDS
            return
        with self.stats.AUDIT_BOOKIES_TIME.timed(self._runtime.now):
            report = await audit_bookies(self._driver, available)
        self.stats.audited(report.marked, report.bytes)
        self._losses.audited(available)
        self._asked = False
        self._audit_at = self._next_periodic()
        _tell("audit of the bookies", report)

    async def _check(self, kind: CheckKind) -> None:
        match kind:
            case CheckKind.REPLICAS:
                with self.stats.REPLICAS_CHECK_TIME.timed(self._runtime.now):
                    self.replicas = await check_replicas(self._driver, self._client)
                log.info("%s", self.replicas)
            case CheckKind.PLACEMENT_POLICY:
                with self.stats.PLACEMENT_POLICY_CHECK_TIME.timed(self._runtime.now):
                    self.placement = await self._check_placement()
                log.info("%s", self.placement)
            case CheckKind.ALL_LEDGERS:
                with self.stats.CHECK_ALL_LEDGERS_TIME.timed(self._runtime.now):
                    report = await self._check_all_ledgers()
                self.stats.checked(report.shapes)
                _tell("check of all ledgers", report)
        await self._driver.underreplication.set_check_time(kind, self._runtime.wall_ms())
        self._checks[kind] = self._runtime.now() + self._intervals[kind]

    async def _check_all_ledgers(self) -> AuditReport:
        return await check_all_ledgers(
            self._driver,
            self._client,
            self._repair,
            percentage=self._config.auditorLedgerVerificationPercentage,
            at_once=self._config.auditorMaxNumberOfConcurrentOpenLedgerOperations,
        )

    async def _check_placement(self) -> PlacementReport:
        grace = self._config.underreplicatedLedgerRecoveryGracePeriod
        return await check_placement(
            self._driver,
            self._client.context.placement,
            mark=self._config.repairedPlacementPolicyNotAdheringBookieEnabled,
            overdue_before=self._runtime.wall_ms() - grace * 1000 if grace > 0 else None,
        )


def _tell(what: str, report: AuditReport) -> None:
    lost = f"; without what {', '.join(sorted(report.lost))} should have" if report.lost else ""
    log.info("%s: %d ledgers, %d marked%s", what, report.ledgers, report.marked, lost)
