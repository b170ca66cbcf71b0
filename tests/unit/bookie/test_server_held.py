"""Held: frames, adds and reads that wait are served in the order in which they came, and each once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.requests import held
from bookkeeper.bookie.requests.held import Backlog, HeldAdds, HeldReads
from bookkeeper.bookie.requests.replies import Reply
from bookkeeper.bookie.sharing.memory import REQUEST_COST, Account, Peer, RequestMemory
from bookkeeper.bookie.sharing.permits import Permits
from bookkeeper.bookie.stats import BookieStats
from bookkeeper.protocol import messages as m
from bookkeeper.protocol.messages import V3, AddRun, Status
from bookkeeper.runtime.real import RealRuntime
from tests.support.waiting import loop_turns


def account() -> Account:
    return Account(RequestMemory(1 << 40, 0, list), Peer("peer"))


# --- frames ---


@given(st.data())
def test_frames_are_served_in_order_each_once_and_counted_until_all_are(data: st.DataObject) -> None:
    mine = account()
    backlog = Backlog(mine)
    kept: list[bytes] = []
    served: list[bytes] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 20))):
        if not backlog.frames or data.draw(st.booleans()):
            frames = [b"%d" % (number + i) for i in range(data.draw(st.integers(1, 5)))]
            number += len(frames)
            first = not backlog.frames
            at = data.draw(st.integers(0, len(frames) - 1)) if first else 0
            kept += frames[at:]
            assert backlog.keep(frames, at) is first
        else:
            part = backlog.slice(data.draw(st.integers(1, 10)))
            count = data.draw(st.integers(0, len(part)))
            served += part[:count]
            assert backlog.served(count) is (served != kept)
        assert served + (backlog.slice(1000) if backlog.frames else []) == kept
        assert bool(backlog.frames) is (mine.held > 0) is (served != kept)
    backlog.drop()
    assert (backlog.frames, mine.held) == ([], 0)


def test_a_turn_serves_so_many_frames_at_most() -> None:
    backlog = Backlog(account())
    backlog.keep([b"x"] * 33)
    assert len(backlog.slice(32)) == 32
    assert backlog.served(32)
    assert len(backlog.slice(32)) == 1


# --- adds and reads ---


class Adds:
    """Room for adds, as the test gives it."""

    def __init__(self) -> None:
        self.room = 0
        self.too_late = False
        self.changed = asyncio.Event()

    def give(self, room: int) -> None:
        self.room += room
        self.changed.set()

    async def wait_for_room(self, *_: object) -> bool:
        while not (self.room or self.too_late):
            self.changed.clear()
            await self.changed.wait()
        return not self.too_late


class Service:
    """As much of a `RequestService` as what waits needs; the caller too."""

    def __init__(self) -> None:
        self.runtime = RealRuntime()
        self.stats = BookieStats()
        self.adds = self.journaled = Adds()
        self.permits = Permits(1)
        self.tasks: list[asyncio.Task[None]] = []
        self.done: list[object] = []
        self.waits: list[bool] = []

    @property
    def reads(self) -> Service:
        return self

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        self.tasks.append(asyncio.create_task(work, name=name))

    def ask(self, reply: Reply[Any]) -> bool:
        """Have a WRITE_LAC served, if there is room."""
        if not self.adds.room:
            return False
        self.adds.room -= 1
        self.done.append(reply)
        return True

    def read(self, reply: Reply[Any]) -> bool:
        """Have a read served, if there is a permit."""
        if not self.permits.free():
            return False
        self.permits.acquire()
        self.done.append(reply)
        return True


class Batch:
    """Stands in for `AddBatch`: what it adds and refuses is noted."""

    def __init__(self, adds: Adds, caller: Service, _started: float) -> None:
        self.adds = adds
        self.done = caller.done

    def add(self, run: AddRun) -> bool:
        if not self.adds.room:
            return False
        self.adds.room -= 1
        self.done.append(run)
        return True

    def refuse(self, run: AddRun, status: Status) -> None:
        self.done.append((run, status))

    def submit(self) -> None:
        """Nothing is gathered."""


class AddBench(Service):
    """Adds that wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(held, "AddBatch", Batch)
        self.account = account()
        everything: Any = self
        self.held = HeldAdds(everything, everything, self.account, self.ask, self.waits.append)

    async def turn(self) -> None:
        """The peer of the caller does not rest."""

    must_spare = False


def add(number: int) -> AddRun:
    return AddRun(1, b"", 0, 0, V3, [number], [bytes(10)], [b""])


def write_lac() -> Reply[m.WriteLacRequest]:
    return Reply(m.WriteLacRequest(1, 0, b"", b""), V3)


async def test_adds_go_on_in_order_as_there_is_room_and_are_counted_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = AddBench(monkeypatch)
    waiting = [add(0), write_lac(), add(1), add(2)]
    for each in waiting:
        bench.held.hold(each)
    assert len(bench.tasks) == bench.stats.ADD_ENTRY_BLOCKED == 1
    assert bench.account.held == 4 * REQUEST_COST + 3 * 10
    for room in (1, 2, 1):
        assert bench.waits == [True]
        bench.adds.give(room)
        await loop_turns(5)
        assert bench.adds.room == 0
    assert bench.done == waiting
    assert bench.waits == [True, False]
    assert bench.account.held == bench.stats.ADD_ENTRY_BLOCKED == 0
    bench.held.hold(add(3))
    bench.adds.give(1)
    await loop_turns(5)
    assert bench.waits == [True, False] * 2
    assert bench.done[-1] == add(3)


async def test_adds_that_wait_too_long_are_refused_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = AddBench(monkeypatch)
    bench.held.hold(add(0))
    bench.held.hold(add(1))
    bench.adds.too_late = True
    await loop_turns(5)
    assert bench.done == [(add(0), Status.ETOOMANYREQUESTS), (add(1), Status.ETOOMANYREQUESTS)]
    assert bench.waits == [True, False]


async def test_adds_of_a_connection_that_is_gone_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = AddBench(monkeypatch)
    bench.held.hold(add(0))
    await loop_turns(5)
    bench.held.drop()
    bench.adds.give(1)
    await loop_turns(5)
    assert (bench.done, bench.waits, bench.stats.ADD_ENTRY_BLOCKED) == ([], [True, False], 0)
    assert bench.tasks[0].done()


async def test_reads_go_on_in_order_as_there_are_permits() -> None:
    bench = Service()
    everything: Any = bench
    waiting = HeldReads(everything, bench.read, bench.waits.append)
    bench.permits.acquire()
    reads = [Reply(m.ReadRequest(1, entry_id), V3) for entry_id in range(3)]
    for read in reads:
        waiting.hold(read)
    assert len(bench.tasks) == bench.stats.READ_ENTRY_BLOCKED == 1
    for count in range(3):
        await loop_turns(5)
        assert (bench.done, bench.waits) == (reads[:count], [True])
        bench.permits.release()
    await loop_turns(5)
    assert (bench.done, bench.waits, bench.stats.READ_ENTRY_BLOCKED) == (reads, [True, False], 0)


async def test_reads_of_a_connection_that_is_gone_are_not_served() -> None:
    bench = Service()
    everything: Any = bench
    waiting = HeldReads(everything, bench.read, bench.waits.append)
    bench.permits.acquire()
    waiting.hold(Reply(m.ReadRequest(1, 0), V3))
    await loop_turns(5)
    waiting.drop()
    bench.permits.release()
    await loop_turns(5)
    assert (bench.done, bench.waits) == ([], [True, False])
