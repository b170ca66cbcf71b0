"""Something that there is only so much of, handed out in turn among peers.

Theory of operation

A *peer* is all that comes from one address; its connections are its *owners*. What cannot be had at once is waited
for: peers take turns, and so do the connections of one peer. A peer with a thousand connections, or a connection with a
thousand requests, gets no more than one with a single request that it waits for. No peer has more
than `peer_limit`: what one holds for long leaves something for the others.

What is granted is taken on behalf of the waiter at that moment: no other can take it before the waiter runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable


class Shares:
    """`limit` units."""

    def __init__(self, limit: int, peer_limit: int) -> None:
        assert 0 < peer_limit <= limit
        self._limit = limit
        self._peer_limit = peer_limit
        self.used = 0
        """<= limit; == sum of `_used_by`."""
        self._full = False  # the one whose turn it is waits for others to give back
        self._used_by: dict[Hashable, int] = {}  # by peer; no zeros, each <= peer_limit
        # Peer -> owner -> its waiters, in the order of turns; nothing in it is empty. One waiter per task that waits.
        self._waiting: dict[Hashable, dict[Hashable, deque[tuple[int, asyncio.Future[None]]]]] = {}

    @property
    def awaited(self) -> bool:
        """There are waiters."""
        return bool(self._waiting)

    def units(self, wanted: int) -> int:
        """What is charged for something that needs `wanted`: one alone may have all that a peer may have."""
        return min(wanted, self._peer_limit)

    def _fits(self, peer: Hashable, units: int) -> bool:
        return self.used + units <= self._limit and self._used_by.get(peer, 0) + units <= self._peer_limit

    def try_acquire(self, peer: Hashable, units: int = 1) -> bool:
        """Take at once; False if they are not free, or others were first."""
        if (self._waiting and (self._full or peer in self._waiting)) or not self._fits(peer, units):
            return False
        self._take(peer, units)
        return True

    def _take(self, peer: Hashable, units: int) -> None:
        self.used += units
        self._used_by[peer] = self._used_by.get(peer, 0) + units

    def wait(self, peer: Hashable, owner: Hashable, units: int = 1) -> asyncio.Future[None]:
        """Wait for one's turn; when the future is done they are taken. A caller that is cancelled calls `forget`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer, {}).setdefault(owner, deque()).append((units, future))
        self._grant()  # others of this peer may wait for more than is free
        return future

    def forget(self, peer: Hashable, units: int, future: asyncio.Future[None]) -> None:
        """The waiter has gone away, before or after it was granted what it waited for."""
        if future.done() and not future.cancelled():
            self.release(peer, units)
        else:
            future.cancel()
            self._grant()

    def release(self, peer: Hashable, units: int = 1) -> None:
        left = self._used_by[peer] - units
        assert left >= 0
        if left:
            self._used_by[peer] = left
        else:
            del self._used_by[peer]
        self.used -= units
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        """Let those whose turn it is have what is free."""
        passed = 0  # peers in a row that have all that one may have
        self._full = False
        while passed < len(self._waiting):
            peer, owners = next(iter(self._waiting.items()))
            if self._must_wait(peer, owners):
                self._full = True
                return
            del self._waiting[peer]
            granted = self._grant_one(peer, owners)
            if owners:
                self._waiting[peer] = owners
            passed = 0 if granted else passed + 1

    def _must_wait(self, peer: Hashable, owners: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]]) -> bool:
        """Whether the next of this peer could have its units if others had not taken so many."""
        units, future = next(iter(owners.values()))[0]
        mine = self._used_by.get(peer, 0) + units
        return not future.done() and mine <= self._peer_limit and self.used + units > self._limit

    def _grant_one(self, peer: Hashable, owners: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]]) -> bool:
        """Whether something changed for this peer."""
        owner, waiters = next(iter(owners.items()))
        units, future = waiters[0]
        gone = future.done()
        if not gone:
            if not self._fits(peer, units):
                return False
            self._take(peer, units)
            future.set_result(None)
        waiters.popleft()
        del owners[owner]
        if waiters:
            owners[owner] = waiters
        return True
