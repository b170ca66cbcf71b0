"""`/api/v1/autorecovery/...`: repair, its switches and its auditor (spec autorecovery-admin §9.2).

`recover` and `decommission` take long: the answer only says that the work was taken. It is done one after another, at
most `MOST_WAITING` wait, and what comes of it is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...autorecovery.manual import Recovery, decommission, ledgers_of, trigger_audit
from ...errors import AlreadyDisabled, AlreadyEnabled, BookKeeperError, CookieNotFound, NotInitialized
from ...metadata.api import ANY, MetadataDriver
from ...runtime import Runtime, TaskScope
from ...types import BookieId
from ..http.messages import BadBodyError, Handler, Reply, Request, as_json, text, truth
from .access import Access
from .ledgers import NOT_GET

log = logging.getLogger(__name__)

MOST_WAITING = 100

NOT_PUT = text("Not found method. Should be PUT method", 404)
BAD_JSON = "Failed to deserialize Object from Json string"

Job = Callable[[], Awaitable[None]]


class Background:
    """Long work, one after another."""

    def __init__(self, runtime: Runtime) -> None:
        self._scope = TaskScope(runtime, "http background")
        self._waiting: deque[tuple[str, Job]] = deque()
        self._some = asyncio.Event()
        self._working = False

    def add(self, name: str, job: Job) -> bool:
        """Do it when its turn comes; False: there is too much already."""
        if len(self._waiting) >= MOST_WAITING:
            return False
        self._waiting.append((name, job))
        self._some.set()
        if not self._working:
            self._working = True
            self._scope.spawn(self._run(), name="work")
        return True

    async def _run(self) -> None:
        while True:
            while self._waiting:
                name, job = self._waiting.popleft()
                log.info("%s begins", name)
                try:
                    await job()
                    log.info("%s is done", name)
                except BookKeeperError as error:
                    log.error("%s failed: %s", name, error)
                except Exception:
                    log.exception("%s failed", name)
            self._some.clear()
            await self._some.wait()

    async def close(self) -> None:
        """What is not done by now is not done. Idempotent."""
        await self._scope.close()


class RecoveryEndpoints:
    """Those of autorecovery."""

    def __init__(self, access: Access, background: Background) -> None:
        self._access = access
        self._background = background

    def handlers(self) -> Mapping[str, Handler]:
        """By path."""
        root = "/api/v1/autorecovery"
        return {
            f"{root}/status": self.status,
            f"{root}/bookie": self.recover,
            f"{root}/decommission": self.decommission,
            f"{root}/list_under_replicated_ledger": self.marked,
            f"{root}/who_is_auditor": self.auditor,
            f"{root}/trigger_audit": self.trigger,
            f"{root}/lost_bookie_recovery_delay": self.delay,
        }

    async def status(self, request: Request) -> Reply:
        marks = (await self._access.driver()).underreplication
        if request.method == "PUT":
            if "enabled" not in request.parameters:
                return text(f"Param 'enabled' not found in {dict(request.parameters)}", 400)
            try:
                await (marks.enable() if request.flag("enabled") else marks.disable())
            except (AlreadyEnabled, AlreadyDisabled):
                log.debug("autorecovery stands as it was asked to")
        elif request.method != "GET":
            return text("Not found method. Should be GET or PUT method", 404)
        return as_json({"enabled": await marks.is_enabled()})

    async def recover(self, request: Request) -> Reply:
        if not request.body or request.method not in ("PUT", "GET"):
            return text("No request body provide.", 404)
        try:
            asked = request.json_object()
            if unknown := asked.keys() - {"bookie_src", "delete_cookie"}:
                raise BadBodyError(f"{', '.join(sorted(unknown))} is not known")
            sources = asked["bookie_src"]
            delete = truth(asked.get("delete_cookie"), default=False)
        except BadBodyError as error:
            return text(f"ERROR parameters: {error}", 404)
        if request.method != "PUT" or not sources:
            return NOT_PUT
        source = BookieId(str(sources[0]))
        return self._begin(
            f"recovery of {source}", lambda: self._recover(source, delete), "Success send recovery request command."
        )

    async def _recover(self, source: BookieId, delete_cookie: bool) -> None:
        driver, client = await self._access.open()
        recovery = Recovery(client, await self._access.repair(), [source], skip_open=False, dry_run=False)
        failed = 0
        async for record in ledgers_of(driver, [source]):
            outcome = await recovery.recover(record.ledger_id)
            if outcome is not None and outcome.error:
                failed += 1
                log.error("recovery of %s: ledger %d: %s", source, record.ledger_id, outcome.error)
        if failed:
            raise BookKeeperError(f"{failed} ledgers could not be recovered")
        if delete_cookie:
            await _delete_cookie(driver, source)

    async def decommission(self, request: Request) -> Reply:
        if not request.body:
            return text("Null request body for DecommissionService.", 404)
        if request.method != "PUT":
            return NOT_PUT
        asked = request.json_object()
        if not asked.get("bookie_src"):
            return text("Request body not contains bookie_src.", 404)
        source = BookieId(str(asked["bookie_src"]))
        delete = truth(asked.get("delete_cookie"), default=False)
        done = f"Success send decommission Bookie command {source}"
        return self._begin(f"decommission of {source}", lambda: self._decommission(source, delete), done)

    async def _decommission(self, source: BookieId, delete_cookie: bool) -> None:
        driver = await self._access.driver()

        def waits(left: int, seconds: float) -> None:
            log.info("decommission of %s: %d ledgers are left; next look in %.0f s", source, left, seconds)

        await decommission(driver, await self._access.repair(), source, waits)
        if delete_cookie:
            await _delete_cookie(driver, source)

    def _begin(self, name: str, job: Job, answer: str) -> Reply:
        return text(answer) if self._background.add(name, job) else text("too many jobs wait already", 503)

    async def marked(self, request: Request) -> Reply:
        if request.method != "GET":
            return NOT_GET
        missing, excluding = (request.parameters.get(name) for name in ("missingreplica", "excludingmissingreplica"))

        def wanted(replicas: Any) -> bool:
            return (not missing or missing in replicas) and (not excluding or excluding not in replicas)

        marks = [mark async for mark in (await self._access.driver()).underreplication.list(wanted)]
        if not marks:
            return text("No under replicated ledgers found", 404)
        if "printmissingreplica" in request.parameters:
            return as_json({str(mark.ledger_id): list(mark.replicas) for mark in marks})
        return as_json([mark.ledger_id for mark in marks])

    async def auditor(self, request: Request) -> Reply:
        if request.method != "GET":
            return NOT_GET
        found = await (await self._access.driver()).auditor.current()
        return text("No auditor elected", 404) if found is None else text(f"Auditor: {found}")

    async def trigger(self, request: Request) -> Reply:
        if request.method != "PUT":
            return NOT_PUT
        try:
            await trigger_audit(await self._access.driver())
        except BookKeeperError as error:
            return text(f"Exception when do operation.{error}", 404)
        return text("Success trigger audit.")

    async def delay(self, request: Request) -> Reply:
        marks = (await self._access.driver()).underreplication
        if request.method == "GET":
            try:
                return text(f"lostBookieRecoveryDelay value: {await marks.get_lost_bookie_recovery_delay()}")
            except NotInitialized as error:
                return text(f"Exception when do operation.{error}", 404)
        if request.method != "PUT":
            return text("Not found method. Should be GET or PUT method", 404)
        if not request.body:
            return text("Null request body for lostBookieRecoveryDelay.", 404)
        asked = request.json_object()
        if "delay_seconds" not in asked:
            return text("Request body not contains lostBookieRecoveryDelay.", 404)
        seconds = asked["delay_seconds"]
        if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 0:
            raise BadBodyError(f"delay_seconds={seconds!r} is no number of seconds")
        await marks.set_lost_bookie_recovery_delay(seconds)
        return text(f"Success set lostBookieRecoveryDelay to {seconds}")


async def _delete_cookie(driver: MetadataDriver, bookie: BookieId) -> None:
    try:
        await driver.cookies.remove(bookie, ANY)
    except CookieNotFound:
        log.info("bookie %s had no cookie", bookie)
