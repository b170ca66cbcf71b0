"""The memory that all requests and answers of a bookie may take: one budget, and who gives way when it is used up.

Theory of operation

Counted is what clients make the bookie hold and what no other limit bounds (caches and journal queues have their own):
frames that have begun, requests that wait, answers that have not been taken. Each connection has an `Account`.

What one connection may hold is bounded already, by its marks and numbers. For when many hold much together:

- Frames of more than `SMALL_FRAME` begin only when there is room for all of them (`shares`), peers in turn.
- A connection gets no more requests queued than a quarter of what is left (`allowance`): as the budget fills up those
  that hold most are refused first, and something is always left for those who come with little.
- When the budget is used up nevertheless, connections are closed until an eighth is free: of the peer that holds most,
  the connection that has stood still the longest. No peer is refused because others hold too much.

Answers are counted as they are handed to the transport, which may have passed on some of them since. So before
anything is closed every account is measured anew.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from typing import Protocol

from ...config import ServerConfiguration
from ...runtime import Runtime
from ..storage.db_storage import memory_budget
from .credit import Credit

BUDGET_SHARE = 4
"""Without `requestMemoryMaxSizeMb`, the budget of the caches divided by this, but at least:"""
MIN_FRAMES = 16
"""of the largest size."""

SMALL_FRAME = 64 << 10
"""Frames up to this size need no permission to begin."""

REQUEST_COST = 512
"""Bytes that one waiting request is taken for."""

ALWAYS_ALLOWED = 64 * REQUEST_COST
"""What a connection may hold in any case."""


class Peer:
    """All that comes from one network address."""

    __slots__ = (
        "address",
        "connections",
        "credit",
        "held",
        "in_debt_at",
        "in_debt_since",
        "in_journal",
        "owes",
        "rests_until",
        "spent",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.connections = 0
        self.held = 0
        """Bytes, of all its connections."""
        self.in_journal = 0
        """Bytes that wait for the journal, of all its connections (`turns`)."""
        self.spent = 0.0
        """Seconds of the loop's turn that its requests have taken (`turns`)."""
        self.owes = 0.0
        """Seconds of the loop's time that it was not charged for yet (`turns`)."""
        self.credit = Credit()
        self.in_debt_at = -math.inf
        self.in_debt_since = -math.inf
        """When it was in debt for the last time, and since when it was again and again (`turns`)."""
        self.rests_until = 0.0
        """When its debt is paid (`turns`)."""


class Holder(Protocol):
    """A connection, as seen from here."""

    @property
    def account(self) -> Account: ...

    @property
    def still_since(self) -> float:
        """When what it holds became less, or a frame more complete, for the last time."""

    def measure(self) -> None:
        """Correct what is counted for its answers."""

    def give_way(self) -> None:
        """End, to free memory."""


class Account:
    """What one connection holds."""

    __slots__ = ("_memory", "closed", "held", "peer")

    def __init__(self, memory: RequestMemory, peer: Peer) -> None:
        self._memory = memory
        self.peer = peer
        self.held = 0
        self.closed = False

    def add(self, size: int) -> None:
        """Hold `size` bytes more, or less if it is negative."""
        if self.closed:
            return
        self.held += size
        self.peer.held += size
        memory = self._memory
        memory.used += size
        if size > 0 and memory.used > memory.limit:
            memory.make_room()

    def close(self) -> None:
        """Hold nothing from now on."""
        if not self.closed:
            self.add(-self.held)
            self.closed = True


class RequestMemory:
    """The budget."""

    def __init__(self, total: int, reserved: int, holders: Callable[[], Iterable[Holder]]) -> None:
        """`total` bytes, of which `reserved` are for reads under way, which are bounded by their number."""
        self.total = total
        self.limit = total - reserved
        self.used = 0
        """<= limit, but for the last thing that was added and what has been sent meanwhile."""
        self.closed_connections = 0
        """How many had to give way since the start."""
        self._holders = holders
        self._making_room = False

    def allowance(self) -> int:
        """Bytes of waiting requests that one connection may hold now."""
        return max((self.limit - self.used) // 4, ALWAYS_ALLOWED)

    def make_room(self) -> None:
        """Measure all accounts; then close connections until an eighth is free, if it does not look good."""
        if self._making_room:
            return
        self._making_room = True
        for holder in self._holders():
            holder.measure()
        if self.used > self.limit - self.limit // 16:  # not at the limit only: this is too much work for each request
            self._close_some(self.limit - self.limit // 8)
        self._making_room = False

    def _close_some(self, target: int) -> None:
        holders: dict[Peer, list[tuple[float, int, Holder]]] = {}
        for number, holder in enumerate(self._holders()):
            if holder.account.held > 0:
                holders.setdefault(holder.account.peer, []).append((holder.still_since, number, holder))
        peers = [(-peer.held, number, peer) for number, peer in enumerate(holders)]
        for found in holders.values():
            heapq.heapify(found)
        heapq.heapify(peers)
        while self.used > target and peers:
            _, number, peer = peers[0]
            _, _, holder = heapq.heappop(holders[peer])
            holder.account.close()
            holder.give_way()
            self.closed_connections += 1
            if holders[peer]:
                heapq.heapreplace(peers, (-peer.held, number, peer))
            else:
                heapq.heappop(peers)


def largest_message(config: ServerConfiguration) -> int:
    """The size of the largest answer, and of the largest request."""
    return max(config.nettyMaxFrameSizeBytes, config.maxBatchReadSize)


def request_memory(runtime: Runtime, config: ServerConfiguration) -> int:
    """Bytes that requests and answers may take together."""
    if config.requestMemoryMaxSizeMb is not None:
        return max(config.requestMemoryMaxSizeMb << 20, MIN_FRAMES * largest_message(config))
    return max(memory_budget(runtime, config) // BUDGET_SHARE, MIN_FRAMES * largest_message(config))


def read_slots(runtime: Runtime, config: ServerConfiguration) -> tuple[int, int]:
    """How many reads of all connections may be under way at once, and how many urgent ones beside them.

    Twice as many as there are threads, as some wait for no disk; and no more than a third of the memory has room for.
    """
    frames = request_memory(runtime, config) // largest_message(config)
    plain = min(2 * config.numReadWorkerThreads, frames // 4)
    return max(2, plain), max(2, min(config.numHighPriorityWorkerThreads, frames // 8))
