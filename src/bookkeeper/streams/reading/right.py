"""The right to read a stream alone, or for a subscriber (spec streams §6, §11)."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import IncorrectParameterError, NoSuchRecord
from ...metadata.tree import RecordTree
from ..dlsn import DLSN
from ..names.lock import LogLock
from .subscriptions import Subscriptions


class ReadRight:
    """Held by a reader until it is closed. As with writers, who has lost it hears of it with the next batch."""

    def __init__(self, subscriptions: Subscriptions, subscriber: str | None) -> None:
        self._locks: list[LogLock] = []
        self._subscriptions = subscriptions
        self._subscriber = subscriber

    async def take(self, tree: RecordTree, directory: str, lock: Callable[[], LogLock], timeout: float | None) -> None:
        """Wait for one more lock; without it nothing stays held. Raises as `LogLock.acquire`."""
        while True:
            await tree.make(directory)
            taken = lock()
            try:
                await taken.acquire(timeout)
            except NoSuchRecord:
                continue  # its subscriber was deleted just now
            except BaseException:
                await self.release()
                raise
            self._locks.append(taken)
            return

    def check(self) -> None:
        """Raises `NotOwnerError` if another client reads in its place, `LockError` if the reader was closed."""
        for lock in self._locks:
            lock.check()

    async def commit(self, position: DLSN) -> None:
        """Store where the subscriber goes on."""
        if self._subscriber is None:
            raise IncorrectParameterError("the reader has no subscriber: give one to open_reader")
        await self._subscriptions.commit(self._subscriber, position)

    async def release(self) -> None:
        """Idempotent."""
        for lock in self._locks:
            await lock.release()
