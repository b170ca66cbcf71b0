"""Output: one write a turn, what is counted for answers that were not taken, and peers that take none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.requests.output import ANSWERS_UNDER_WAY, FLUSH_AT_ONCE, Output
from bookkeeper.bookie.sharing.memory import Account, Peer, RequestMemory
from bookkeeper.bookie.stats import BookieStats
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import TimerHandle
from bookkeeper.runtime.real import RealRuntime

TIMEOUT = 5.0


class Socket(asyncio.Transport):
    """Keeps what was written until the test takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.untaken = 0
        self.marks: tuple[int | None, int | None] = (None, None)

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        self.untaken += len(data)

    def writelines(self, pieces: Any) -> None:
        raise AssertionError("asyncio's own is not to be used: it knows neither a high mark nor an end")

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.marks = (high, low)


class Timer(TimerHandle):
    """Runs when the test says so."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock(RealRuntime):
    """Time that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.timers: list[Timer] = []

    def now(self) -> float:
        return self.time

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        assert delay == TIMEOUT
        assert not args
        self.timers.append(Timer(callback))
        return self.timers[-1]

    def expire(self) -> None:
        """The newest timer runs."""
        self.time += TIMEOUT
        assert not self.timers[-1].cancelled
        self.timers[-1].callback()


class Bench:
    """An output with its socket and clock."""

    def __init__(self, **settings: Any) -> None:
        config = ServerConfiguration.from_mapping(
            {
                "metadataServiceUri": "memory://output",
                "waitTimeoutOnResponseBackpressureMs": round(TIMEOUT * 1000),
                "serverWriteBufferHighWaterMark": 1000,
                **settings,
            }
        )
        self.clock = Clock()
        self.socket = Socket()
        self.stats = BookieStats()
        self.account = Account(RequestMemory(1 << 40, 0, list), Peer("peer"))
        self.given_up = 0
        self.took: list[float] = []
        self.output = Output(self.clock, config, self.stats, self.account, self._give_up, self.took.append)
        self.output.begin(self.socket)

    def _give_up(self) -> None:
        self.given_up += 1


async def test_answers_of_one_turn_are_one_write() -> None:
    bench = Bench()
    for answer in (b"a", b"b", b"c"):
        bench.output.send(answer)
    assert bench.socket.writes == []
    await asyncio.sleep(0)
    bench.output.send(b"d")
    await asyncio.sleep(0)
    assert bench.socket.writes == [b"abc", b"d"]


async def test_what_writing_takes_is_told() -> None:
    bench = Bench()

    def write(_: bytes) -> None:
        bench.clock.time += 0.25

    bench.socket.write = write  # type: ignore[method-assign]
    bench.output.send(b"a")
    await asyncio.sleep(0)
    assert bench.took == [0.25]


async def test_many_answers_do_not_wait_for_the_end_of_the_turn() -> None:
    bench = Bench()
    bench.output.send(b"a")
    bench.output.send(bytes(FLUSH_AT_ONCE - 1))
    assert [len(write) for write in bench.socket.writes] == [FLUSH_AT_ONCE]


async def test_the_low_mark_is_never_above_the_high_one() -> None:
    assert Bench(serverWriteBufferLowWaterMark=2000).socket.marks == (1000, 1000)
    assert Bench(serverWriteBufferLowWaterMark=300).socket.marks == (1000, 300)


async def test_counted_is_what_the_peer_has_not_taken() -> None:
    bench = Bench()
    bench.output.send(bytes(100))
    bench.output.flush()
    assert (bench.account.held, bench.output.charge) == (100, 100)
    bench.socket.untaken = 30
    bench.clock.time = 7.0
    bench.output.measure()
    assert (bench.account.held, bench.output.charge, bench.output.taken_at) == (30, 30, 7.0)
    bench.socket.untaken = 0
    bench.output.send(bytes(5))
    bench.output.flush()
    assert bench.account.held == 5


async def test_the_gate_is_closed_from_the_high_mark_to_the_low_one() -> None:
    bench = Bench()
    bench.output.full()
    assert not bench.output.gate.open
    bench.output.drained()
    assert bench.output.gate.open
    assert bench.clock.timers[0].cancelled


async def test_a_slow_peer_is_kept_and_one_that_takes_nothing_is_given_up() -> None:
    bench = Bench(closeChannelOnResponseTimeout=True)
    bench.output.send(bytes(2000))
    bench.output.flush()
    bench.output.full()
    for _ in range(3):
        bench.socket.untaken -= 1
        bench.clock.expire()
    assert bench.given_up == 0
    bench.clock.expire()
    assert bench.given_up == 1
    assert bench.clock.timers[-1].callback is not None
    assert len(bench.clock.timers) == 4


async def test_answers_are_dropped_and_counted_until_the_peer_takes_some_again() -> None:
    bench = Bench(closeChannelOnResponseTimeout=False)
    bench.output.send(bytes(2000))
    bench.output.flush()
    bench.output.full()
    bench.clock.expire()
    bench.output.send(b"dropped")
    bench.output.flush()
    assert (bench.given_up, bench.stats.responses_dropped, len(bench.socket.writes)) == (0, 1, 1)
    bench.output.drained()
    bench.output.send(b"sent")
    bench.output.flush()
    assert bench.socket.writes[-1] == b"sent"


async def test_without_a_time_limit_nobody_is_given_up() -> None:
    bench = Bench(waitTimeoutOnResponseBackpressureMs=-1)
    bench.output.full()
    assert bench.clock.timers == []


async def test_after_the_end_answers_are_dropped_and_nothing_waits() -> None:
    bench = Bench()
    bench.output.send(b"gathered")
    bench.output.full()
    bench.output.close()
    assert bench.output.gate.open
    assert bench.clock.timers[0].cancelled
    bench.output.send(b"late")
    await asyncio.sleep(0)
    bench.output.measure()
    assert bench.socket.writes == []


@given(st.lists(st.integers(1, 8 << 20), min_size=1), st.integers(2, 100))
async def test_the_larger_the_last_answers_the_fewer_are_made_side_by_side(sizes: list[int], most: int) -> None:
    output = Bench().output
    assert output.side_by_side(most) == most
    for size in sizes:
        output.answer_has(size)
    count = output.side_by_side(most)
    assert 2 <= count <= most
    assert count == 2 or count * sizes[-1] <= ANSWERS_UNDER_WAY
    for _ in range(200):
        output.answer_has(1)
    assert output.side_by_side(most) == most, "a large answer is forgotten in time"


async def test_one_alone_may_have_no_company_at_all() -> None:
    assert Bench().output.side_by_side(1) == 1
