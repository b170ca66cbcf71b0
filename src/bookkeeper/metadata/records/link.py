"""Running transactions for the components: retries, unknown outcomes, following what changes.

Theory of operation

A transaction that failed for lack of an answer is run again, until the retry time is over. Once an attempt may have
been applied, a conflict that a later attempt meets may be our own doing; then, and only then, the caller's `resolve`
looks at what is there, in the same transaction, and either returns the result or raises the conflict. A change that
can neither be repeated nor recognised is run with `repeat=False` and reports its unknown outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from ...errors import LedgerExists, MetadataError, ServiceUnavailable, SessionLost, VersionConflict
from ...runtime import Runtime
from ..api import Version
from .changes import ChangeHub, HubClosed
from .session import SessionKeeper
from .store import RecordStore, Topic, Transaction

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
WATCH_FIRST_PAUSE_SECONDS = 0.2
WATCH_LONGEST_PAUSE_SECONDS = 5.0


class Link:
    """What the components of one driver share."""

    def __init__(self, store: RecordStore, runtime: Runtime, *, session_timeout: float, retry_seconds: float) -> None:
        self.store = store
        self.runtime = runtime
        self.retry_seconds = retry_seconds
        self.hub = ChangeHub()
        self.session = SessionKeeper(store, runtime, timeout=session_timeout)
        self._random = runtime.random("metadata")

    async def read(self, name: str, look: Callable[[Transaction], T]) -> T:
        """Run a transaction that changes nothing."""
        return await self._attempt(name, lambda _unknown: self.store.run(name, look, write=False), repeat=True)

    async def change(
        self,
        name: str,
        transaction: Callable[[Transaction], T],
        *,
        resolve: Callable[[Transaction, MetadataError], T] | None = None,
        repeat: bool = True,
    ) -> T:
        """Run a transaction; see the module's text for `resolve` and `repeat`."""

        def second_thoughts(tx: Transaction) -> T:
            try:
                return transaction(tx)
            except (LedgerExists, VersionConflict) as conflict:
                if resolve is None:
                    raise
                return resolve(tx, conflict)

        try:
            return await self._attempt(
                name,
                lambda unknown: self.store.run(name, second_thoughts if unknown else transaction),
                repeat=repeat,
            )
        except SessionLost:
            self.session.poke()
            raise

    async def retry(self, name: str, step: Callable[[], Awaitable[T]]) -> T:
        """Try something that may be tried again, until the retry time is over."""
        return await self._attempt(name, lambda _unknown: step(), repeat=True)

    async def _attempt(self, name: str, run: Callable[[bool], Awaitable[T]], *, repeat: bool) -> T:
        deadline = self.runtime.now() + self.retry_seconds
        pause = FIRST_PAUSE_SECONDS
        unknown = False
        while True:
            try:
                return await run(unknown)
            except ServiceUnavailable as error:
                unknown = unknown or error.maybe_applied
                if self.hub.closed or (unknown and not repeat) or self.runtime.now() + pause > deadline:
                    raise ServiceUnavailable(f"{name}: {error}", maybe_applied=unknown) from None
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def follow(
        self, name: str, topic: Topic, key: str | None, look: Callable[[Transaction], tuple[Version, T]]
    ) -> AsyncGenerator[tuple[Version, T], None]:
        """What `look` sees, now and whenever its version has changed; ends when the driver is closed.

        Failures to read are retried for ever.
        """
        seen: Version | None = None
        pause = WATCH_FIRST_PAUSE_SECONDS
        try:
            with self.hub.subscribe((topic, key)) as changes:
                while True:
                    changes.clear()
                    try:
                        version, value = await self.store.run(name, look, write=False)
                    except ServiceUnavailable as error:
                        log.warning("%s: %s; trying again", name, error)
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, WATCH_LONGEST_PAUSE_SECONDS)
                        continue
                    pause = WATCH_FIRST_PAUSE_SECONDS
                    if version != seen:
                        seen = version
                        yield version, value
                    await changes.changed()
        except HubClosed:
            return

    async def until(
        self, name: str, topics: tuple[tuple[Topic, str | None], ...], poll: Callable[[], Awaitable[T | None]]
    ) -> T:
        """Call `poll` now and after each change in `topics`, until it gives something.

        Raises `SessionLost` when the driver is closed meanwhile.
        """
        try:
            with self.hub.subscribe(*topics) as changes:
                while True:
                    changes.clear()
                    found = await poll()
                    if found is not None:
                        return found
                    await changes.changed()
        except HubClosed:
            raise SessionLost(f"{name}: the metadata driver was closed") from None
