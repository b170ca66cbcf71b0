"""Keeping the driver's one session alive, and saying so when it is not (spec metadata §12.3).

Theory of operation

The session is renewed at a third of its timeout. Three things can happen to it, and each is told in one place:

- a renewal fails: SUSPENDED. The session may well survive.
- a whole timeout passes since the last renewal that succeeded was *sent*: by our own clock another process may now
  hold what we hold, so locks and leadership are flagged lost. Registrations are not: a store outage must not take
  bookies down. If the session turns out to have survived, the records of what was flagged are removed: their owners
  gave them up.
- the store says that the session has ended: LOST, reported exactly once, in the order session listeners, lost
  registration, locks and leadership. Then a new session is started; its owners re-create their records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...errors import MetadataError, ServiceUnavailable, SessionLost
from ...runtime import Runtime, TaskScope, TimerHandle
from ..api import SessionEvent, Unsubscribe
from .store import RecordStore, Topic, Transaction

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
"""Pause after a failed renewal, at most a tenth of the timeout."""


class Holding:
    """A record we hold by our session: a lock or a vote."""

    def __init__(self, topic: Topic, key: str, session: int) -> None:
        self.topic = topic
        self.key = key
        self.session = session
        self.lost = asyncio.Event()
        """Set when the record is, or by our own clock may be, another session's."""

    def is_ours(self, tx: Transaction) -> bool:
        """Whether the record is there and still of the session it was created in."""
        record = tx.get(self.topic, self.key)
        return record is not None and record.session == self.session

    def remove(self, tx: Transaction) -> None:
        """Remove the record if it is ours."""
        if self.is_ours(tx):
            tx.delete(self.topic, self.key)


class SessionKeeper:
    """The session of a driver."""

    def __init__(self, store: RecordStore, runtime: Runtime, *, timeout: float) -> None:
        self._store = store
        self._runtime = runtime
        self.timeout = timeout
        self._scope = TaskScope(runtime, "metadata-session")
        self._current = 0
        """The live session's id; 0 while there is none."""
        self._started = asyncio.Event()
        """Set while there is a session, and after the end."""
        self._awake = asyncio.Event()
        """Set to renew at once."""
        self._suspended = False
        self._expiry: TimerHandle | None = None
        self._holdings: dict[Holding, None] = {}
        self._unwanted: list[Holding] = []
        """Given up, or flagged lost by our own clock: to be removed if the session has survived."""
        self.taking = asyncio.Lock()
        """Held while a record of our session is created or given up: so that what an attempt without an answer left
        behind is not confused with what another call of ours took."""
        self._listeners: dict[object, Callable[[SessionEvent], None]] = {}
        self._registration_listeners: dict[object, Callable[[], None]] = {}

    async def open(self) -> None:
        await self._start()
        self._scope.spawn(self._keep(), name="keep")

    async def close(self) -> None:
        """End the session, as far as the store can be reached."""
        await self._scope.close()
        self._cancel_expiry()
        session, self._current = self._current, 0
        self._started.set()  # no task waits for a session any more
        for holding in list(self._holdings):
            holding.lost.set()
        self._holdings.clear()
        if session:
            try:
                async with asyncio.timeout(self.timeout):
                    await self._store.end_session(session)
            except (MetadataError, TimeoutError) as error:
                log.warning("the session is left to its timeout: %s", error)

    async def live(self) -> int:
        """The id of the session; waits while a new one is being started. Raises `ServiceUnavailable`."""
        try:
            async with asyncio.timeout(self.timeout):
                await self._started.wait()
        except TimeoutError:
            raise ServiceUnavailable("there is no session with the metadata store") from None
        if not self._current:
            raise ServiceUnavailable("the metadata driver is closed")
        return self._current

    @property
    def current(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._current

    def hold(self, holding: Holding) -> None:
        """Tell `holding` when the session is lost. Raises `SessionLost` if it is lost already."""
        if holding.session != self._current:
            holding.lost.set()
            raise SessionLost("the session ended while the record was created")
        self._holdings[holding] = None

    def drop(self, holding: Holding) -> None:
        self._holdings.pop(holding, None)

    def abandon(self, holding: Holding) -> None:
        """Remove the record as soon as the store can be reached; its owner has no use for it any more."""
        self.drop(holding)
        holding.lost.set()
        if holding.session == self._current:
            self._unwanted.append(holding)
            self.wake()

    def wake(self) -> None:
        """A caller was told that the session has ended: act at once."""
        self._awake.set()

    def add_listener(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        return _add(self._listeners, callback)

    def on_registration_lost(self, callback: Callable[[], None]) -> Unsubscribe:
        return _add(self._registration_listeners, callback)

    # --- the keeper ---

    async def _keep(self) -> None:
        while True:
            await self._pause(min(RETRY_SECONDS, self.timeout / 10) if self._suspended else self.timeout / 3)
            try:
                await self._renew()
            except MetadataError as error:
                self._set_suspended(str(error))

    async def _pause(self, seconds: float) -> None:
        timer = self._runtime.call_later(seconds, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()
        self._awake.clear()

    async def _renew(self) -> None:
        if not self._current:
            await self._start()
            return
        sent = self._runtime.now()
        if not await self._store.renew_session(self._current, self.timeout):
            self._lose()
            await self._start()
            return
        self._confirmed(sent)
        if self._unwanted and not self.taking.locked():
            async with self.taking:
                await self._give_up()

    async def _start(self) -> None:
        sent = self._runtime.now()
        self._current = await self._store.start_session(self.timeout)
        self._started.set()
        self._suspended = True  # so that CONNECTED is told
        self._confirmed(sent)

    def _confirmed(self, sent: float) -> None:
        self._cancel_expiry()
        left = max(0.0, sent + self.timeout - self._runtime.now())
        self._expiry = self._runtime.call_later(left, self._doubt)
        if self._suspended:
            self._suspended = False
            self._tell(SessionEvent.CONNECTED)

    def _set_suspended(self, reason: str) -> None:
        if not self._suspended:
            log.warning("the metadata store does not answer: %s", reason)
            self._suspended = True
            if self._current:
                self._tell(SessionEvent.SUSPENDED)

    def _doubt(self) -> None:
        for holding in list(self._holdings):
            holding.lost.set()
            self._unwanted.append(holding)
        self._holdings.clear()

    async def _give_up(self) -> None:
        held = {(holding.topic, holding.key) for holding in self._holdings}
        unwanted = [holding for holding in self._unwanted if (holding.topic, holding.key) not in held]

        def remove(tx: Transaction) -> None:
            for holding in unwanted:
                holding.remove(tx)

        count = len(self._unwanted)
        await self._store.run("session.give_up", remove)
        del self._unwanted[:count]

    def _lose(self) -> None:
        log.warning("the session with the metadata store has ended: registrations and locks are gone")
        self._current = 0
        self._started.clear()
        self._cancel_expiry()
        self._unwanted.clear()
        holdings = list(self._holdings)
        self._holdings.clear()
        self._tell(SessionEvent.LOST)
        for callback in list(self._registration_listeners.values()):
            callback()
        for holding in holdings:
            holding.lost.set()

    def _tell(self, event: SessionEvent) -> None:
        for callback in list(self._listeners.values()):
            callback(event)

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def _add(listeners: dict[object, Callable[..., None]], callback: Callable[..., None]) -> Unsubscribe:
    token = object()
    listeners[token] = callback
    return lambda: listeners.pop(token, None) and None
