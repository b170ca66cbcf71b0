"""Running transactions for the components: retries, unknown outcomes, following what changes.

Theory of operation

A transaction that failed for lack of an answer is run again, until the retry time is over. Once an attempt may have
been applied, a conflict that a later attempt meets may be our own doing; then, and only then, the caller's `resolve`
looks at what is there, and either returns the result or raises the conflict. It has a transaction of its own, which
changes nothing: that of the attempt is undone by then, and with it what the attempt did before it met the conflict,
which would look like our own doing, too. A change that can neither be repeated nor recognised is run with
`repeat=False` and reports its unknown outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from ...errors import LedgerExists, MetadataError, RecordRefused, ServiceUnavailable, SessionLost, VersionConflict
from ...runtime import Runtime, TaskScope
from ...runtime.waiting.backoff import Backoff, Pauses
from .changes import ChangeHub, HubClosed
from .session import Holding, SessionKeeper
from .store import RecordStore, Topic, Transaction

T = TypeVar("T")
H = TypeVar("H", bound=Holding)
V = TypeVar("V")
"""What tells two states apart."""

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.05, longest=1.0, jitter=(0.5, 1.0))
"""Between attempts of one operation."""

WATCH_BACKOFF = Backoff(first=0.2, longest=5.0)
"""Between attempts to see what has changed."""


class StoreClient:
    """What the components of one driver share."""

    def __init__(self, store: RecordStore, runtime: Runtime, *, session_timeout: float, retry_seconds: float) -> None:
        self.store = store
        self.runtime = runtime
        self.retry_seconds = retry_seconds
        self.hub = ChangeHub()
        self.session = SessionKeeper(store, runtime, timeout=session_timeout)
        self._random = runtime.random("metadata")
        self._scope = TaskScope(runtime, "metadata-link", on_error=_told_to_the_caller)

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

        async def attempt(unknown: bool) -> T:
            try:
                return await self.store.run(name, transaction)
            except (LedgerExists, VersionConflict, RecordRefused) as conflict:
                if resolve is None or not unknown:
                    raise
                met, look = conflict, resolve
            return await self.store.run(name, lambda tx: look(tx, met), write=False)

        try:
            return await self._attempt(name, attempt, repeat=repeat)
        except SessionLost:
            self.session.wake()
            raise

    async def take(self, name: str, create: Callable[[Transaction, list[H]], H | None]) -> H | None:
        """Run a transaction that creates a record of our session, and hold it. None if it found nothing to take.

        The transaction adds to the list what it is about to create, and looks there for what an earlier attempt
        created. Nothing stays behind of an attempt whose outcome stays unknown, or whose caller is cancelled.
        """
        if self.hub.closed:
            raise ServiceUnavailable("the metadata driver is closed")
        taking = self._scope.spawn(self._take(name, create), name=name)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            if taking.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise SessionLost(f"{name}: the metadata driver was closed") from None
            taking.add_done_callback(self._abandon)
            raise

    async def _take(self, name: str, create: Callable[[Transaction, list[H]], H | None]) -> H | None:
        tried: list[H] = []
        async with self.session.taking:
            try:
                holding = await self.change(name, lambda tx: create(tx, tried))
            except BaseException:
                for left_behind in tried:
                    self.session.abandon(left_behind)
                raise
            if holding is not None:
                self.session.hold(holding)
            return holding

    def _abandon(self, taking: asyncio.Task[H | None]) -> None:
        """No task waits for it any more."""
        if not taking.cancelled() and taking.exception() is None:
            holding = taking.result()
            if holding is not None:
                self.session.abandon(holding)

    async def give_back(
        self, name: str, holding: Holding, *, first: Callable[[Transaction], bool] = lambda _: False
    ) -> bool:
        """Run `first`, and remove the record if it is ours, in one transaction; returns the result of `first`."""

        def finish(tx: Transaction) -> bool:
            result = first(tx)
            holding.remove(tx)
            return result

        self.session.drop(holding)
        try:
            return await self.change(name, finish)
        except BaseException:
            self.session.abandon(holding)  # others shall not have to wait until the session ends
            raise

    async def close(self) -> None:
        await self._scope.close()

    async def retry(self, name: str, step: Callable[[], Awaitable[T]]) -> T:
        """Try something that may be tried again, until the retry time is over."""
        return await self._attempt(name, lambda _unknown: step(), repeat=True)

    async def _attempt(self, name: str, run: Callable[[bool], Awaitable[T]], *, repeat: bool) -> T:
        deadline = self.runtime.now() + self.retry_seconds
        unknown = False
        failures = 0
        while True:
            try:
                return await run(unknown)
            except ServiceUnavailable as error:
                unknown = unknown or error.maybe_applied
                if (
                    self.hub.closed
                    or (unknown and not repeat)
                    or self.runtime.now() + BACKOFF.pause(failures) > deadline
                ):
                    raise ServiceUnavailable(f"{name}: {error}", maybe_applied=unknown) from None
            await asyncio.sleep(BACKOFF.jittered(failures, self._random))
            failures += 1

    async def follow(
        self, name: str, topic: Topic, key: str | None, look: Callable[[Transaction], tuple[V, T]]
    ) -> AsyncGenerator[tuple[V, T], None]:
        """What `look` sees, now and whenever its version has changed; ends when the driver is closed.

        Failures to read are retried for ever.
        """
        seen: V | None = None
        pauses = Pauses(WATCH_BACKOFF)
        try:
            with self.hub.subscribe((topic, key)) as changes:
                while True:
                    changes.clear()
                    try:
                        version, value = await self.store.run(name, look, write=False)
                    except MetadataError as error:
                        log.warning("%s: %s; trying again", name, error)
                        await asyncio.sleep(pauses.next())
                        continue
                    pauses.reset()
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


def _told_to_the_caller(task: str, error: BaseException) -> None:
    """The task's caller gets the error."""
