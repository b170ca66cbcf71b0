"""What a connection has received and cannot serve yet: frames, adds and reads that wait for their turn, room, a permit.

Each kind waits in its own line, in the order in which it came. The socket is not read while one of them is not empty,
so none has more than one socket read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ...protocol import messages as m
from ...protocol.messages import AddRun, Status
from ..sharing.memory import REQUEST_COST, Account
from .adds import AddBatch
from .caller import Caller
from .replies import Reply
from .service import RequestService

Ask = Callable[[Reply[Any]], bool]
"""Has a request served; False if it has to wait."""

Waits = Callable[[bool], None]
"""Told when something begins to wait, and when nothing waits any more."""


class Backlog:
    """Frames that wait for the loop's time."""

    __slots__ = ("_account", "_at", "_charge", "frames")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._at = 0  # those in front of it are served
        self._charge = 0  # counted in the account
        self.frames: list[bytes] = []
        """Not empty while some wait."""

    def keep(self, frames: list[bytes], at: int = 0) -> bool:
        """Keep frames, from `at` on, behind those that wait already; whether they are the first to wait."""
        size = sum(map(len, frames))
        self._charge += size
        self._account.add(size)
        if self.frames:
            self.frames += frames
            return False
        self.frames, self._at = frames, at
        return True

    def slice(self, count: int) -> list[bytes]:
        """The next ones, so many at most."""
        return self.frames[self._at : self._at + count]

    def served(self, count: int) -> bool:
        """So many of them are served; whether some still wait."""
        self._at += count
        if self._at < len(self.frames):
            return True
        self.drop()
        return False

    def drop(self) -> None:
        """Forget them all."""
        self.frames = []
        self._account.add(-self._charge)
        self._charge = 0


class HeldAdds:
    """Adds, and WRITE_LAC among them, that wait for room."""

    __slots__ = ("_account", "_ask", "_at_work", "_caller", "_service", "_waiting", "_waits")

    def __init__(self, service: RequestService, caller: Caller, account: Account, ask: Ask, waits: Waits) -> None:
        self._service = service
        self._caller = caller
        self._account = account
        self._ask = ask
        self._waits = waits
        self._at_work = False
        self._waiting: deque[AddRun | Reply[m.WriteLacRequest]] = deque()

    def hold(self, waiting: AddRun | Reply[m.WriteLacRequest]) -> None:
        """Serve it when there is room, behind those that wait already."""
        self._waiting.append(waiting)
        self._account.add(_size_of(waiting))
        if not self._at_work:
            self._at_work = True
            self._waits(True)
            self._service.stats.ADD_ENTRY_BLOCKED += 1
            self._service.spawn(self._work_off(), name="adds that wait for room")

    def drop(self) -> None:
        """Forget them all. The account is closed."""
        self._waiting.clear()

    async def _work_off(self) -> None:
        """Serve them; refuse all that find no room when the wait has been too long."""
        adds = self._service.adds
        held = self._waiting
        try:
            while held:
                await self._caller.turn()
                if not held:
                    break
                first = held[0]
                if isinstance(first, Reply):
                    await self._service.journaled.wait_for_room(first)
                    has_room = True
                else:
                    has_room = await adds.wait_for_room(self._caller, first)
                batch = AddBatch(adds, self._caller, self._service.runtime.now())
                while held and self._serve(batch, held[0], has_room):
                    self._account.add(-_size_of(held.popleft()))
                    if self._caller.must_spare:
                        break
                batch.submit()
        finally:
            self._at_work = False
            self._service.stats.ADD_ENTRY_BLOCKED -= 1
            self._waits(False)

    def _serve(self, batch: AddBatch, waiting: AddRun | Reply[m.WriteLacRequest], has_room: bool) -> bool:
        """Try again; False if it has to wait on."""
        if isinstance(waiting, Reply):
            batch.submit()
            return self._ask(waiting)
        if not batch.add(waiting):
            if has_room:
                return False
            batch.refuse(waiting, Status.ETOOMANYREQUESTS)
        return True


class HeldReads:
    """Reads that wait for a permit."""

    __slots__ = ("_ask", "_at_work", "_service", "_waiting", "_waits")

    def __init__(self, service: RequestService, ask: Ask, waits: Waits) -> None:
        self._service = service
        self._ask = ask
        self._waits = waits
        self._at_work = False
        self._waiting: deque[Reply[Any]] = deque()

    def hold(self, reply: Reply[Any]) -> None:
        """Serve it when there is a permit, behind those that wait already."""
        self._waiting.append(reply)
        if not self._at_work:
            self._at_work = True
            self._waits(True)
            self._service.stats.READ_ENTRY_BLOCKED += 1
            self._service.spawn(self._work_off(), name="reads that wait for a permit")

    def drop(self) -> None:
        """Forget them all."""
        self._waiting.clear()

    async def _work_off(self) -> None:
        held = self._waiting
        try:
            while held:
                await self._service.reads.permits.wait()
                while held and self._ask(held[0]):
                    held.popleft()
        finally:
            self._at_work = False
            self._service.stats.READ_ENTRY_BLOCKED -= 1
            self._waits(False)


def _size_of(waiting: AddRun | Reply[m.WriteLacRequest]) -> int:
    """What a waiting add or WRITE_LAC is counted for."""
    return REQUEST_COST if isinstance(waiting, Reply) else REQUEST_COST + sum(map(len, waiting.entries))
