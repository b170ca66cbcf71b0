"""Who waits for which change.

News of changes are hints: a waiter that is woken reads again and compares. So a subscription is one bit, and nothing
is lost or queued, however slow the waiter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ..api import Unsubscribe
from .store import Change, Changes, Topic


class HubClosed(Exception):
    """The driver was closed: tasks that wait for a change can stop."""


class ChangeSubscription:
    """Waits for changes of one record, or with key None of any in a topic. Use as a context manager."""

    def __init__(self, hub: ChangeHub, keys: tuple[tuple[Topic, str | None], ...]) -> None:
        self._hub = hub
        self.keys = keys
        self.event = asyncio.Event()

    async def changed(self) -> None:
        """Wait for a change since the last call of `clear`. Raises `HubClosed`."""
        await self.event.wait()
        self._hub.check_open()

    def clear(self) -> None:
        """Forget changes so far; call it *before* reading what they may concern."""
        self.event.clear()
        self._hub.check_open()

    def __enter__(self) -> Self:
        self._hub.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._hub.remove(self)


class ChangeHub:
    """All subscriptions of a driver."""

    def __init__(self) -> None:
        # In order of subscription: waking order must not depend on addresses.
        self._subscriptions: dict[tuple[str, str | None], dict[ChangeSubscription, None]] = {}
        self._listeners: dict[object, Callable[[Changes], None]] = {}
        self.closed = False

    def subscribe(self, *keys: tuple[Topic, str | None]) -> ChangeSubscription:
        return ChangeSubscription(self, keys)

    def listen(self, listener: Callable[[Changes], None]) -> Unsubscribe:
        """Call `listener` with all changes, before waiters are woken."""
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    def publish(self, changes: Changes) -> None:
        for listener in list(self._listeners.values()):
            listener(changes)
        if changes is None:
            self._wake_all()
            return
        for change in changes:
            self.wake(change)

    def wake(self, change: Change) -> None:
        """Those who wait for this change."""
        topic, key = change
        for wanted in ((topic, key), (topic, None)):
            for subscription in self._subscriptions.get(wanted, ()):
                subscription.event.set()

    def _wake_all(self) -> None:
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.event.set()

    def add(self, subscription: ChangeSubscription) -> None:
        self.check_open()
        for key in subscription.keys:
            self._subscriptions.setdefault(key, {})[subscription] = None

    def remove(self, subscription: ChangeSubscription) -> None:
        for key in subscription.keys:
            subscriptions = self._subscriptions.get(key, {})
            subscriptions.pop(subscription, None)
            if not subscriptions:
                self._subscriptions.pop(key, None)

    def check_open(self) -> None:
        if self.closed:
            raise HubClosed

    def close(self) -> None:
        """Wake all that wait, to tell them that it is over."""
        self.closed = True
        self._wake_all()

    def __len__(self) -> int:
        """Subscriptions in force."""
        return sum(map(len, self._subscriptions.values()))
