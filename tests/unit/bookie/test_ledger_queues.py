"""LedgerQueues: order within a ledger, ledgers side by side, bounds."""

from __future__ import annotations

import asyncio
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.bookie.requests.ledger_queues import Gate, LedgerQueues, Work
from bookkeeper.bookie.sharing.credit import LATELY_SECONDS
from bookkeeper.bookie.sharing.memory import Peer
from bookkeeper.bookie.sharing.shares import Shares
from bookkeeper.bookie.sharing.turns import SLICE_SECONDS, Turns
from bookkeeper.runtime.real import RealRuntime
from tests.support.waiting import loop_turns


class Clock(RealRuntime):
    time = 10.0

    def now(self) -> float:
        return self.time


class Bench:
    """LedgerQueues whose work the test finishes by hand."""

    def __init__(self, width: int, limit: int = 1000, slots: Shares | None = None) -> None:
        self.ended = 0
        self.width = width
        self.tasks: list[asyncio.Task[None]] = []
        self.started: list[tuple[int, int]] = []
        self.finish: dict[tuple[int, int], asyncio.Event] = {}
        self.gate = Gate()
        self.clock = Clock()
        self.turns = Turns(self.clock, 0.25)
        self.peer = Peer("peer")

        def ended(count: int) -> None:
            self.ended += count

        self.queues = LedgerQueues(
            lambda work: self.tasks.append(asyncio.ensure_future(work)),
            self.gate,
            ended,
            slots or Shares(1000, 1000),
            self.turns,
            lambda: self.peer,
            width=lambda: self.width,
            limit=limit,
        )

    def submit(self, ledger_id: int, number: int) -> bool:
        key = (ledger_id, number)
        self.finish[key] = asyncio.Event()
        return self.queues.submit(ledger_id, Work(partial(self._work, key)))

    async def _work(self, key: tuple[int, int]) -> None:
        self.started.append(key)
        await self.finish[key].wait()


async def test_one_ledger_in_order_and_others_beside_it() -> None:
    bench = Bench(width=2)
    for number in range(2):
        for ledger_id in (1, 2, 3):
            assert bench.submit(ledger_id, number)
    await loop_turns()
    assert bench.started == [(1, 0), (2, 0)]
    bench.finish[1, 0].set()
    await loop_turns()
    assert bench.started[2:] == [(3, 0)], "ledgers take turns"
    for event in bench.finish.values():
        event.set()
    await loop_turns(30)
    assert sorted(bench.started) == sorted(bench.finish)
    assert (bench.ended, bench.queues.pending) == (6, 0)
    assert all(task.done() for task in bench.tasks)


async def test_beyond_the_limit_nothing_is_queued() -> None:
    bench = Bench(width=1, limit=2)
    assert bench.submit(1, 0)
    await loop_turns()
    assert bench.submit(1, 1)
    assert bench.submit(1, 2)
    assert not bench.submit(1, 3)
    assert bench.ended == 0


async def test_a_closed_gate_holds_everything_back() -> None:
    bench = Bench(width=2)
    bench.gate.set(False)
    bench.submit(1, 0)
    await loop_turns()
    assert not bench.started
    bench.gate.set(True)
    await loop_turns()
    assert bench.started == [(1, 0)]


async def test_closing_drops_what_waits_and_says_so() -> None:
    bench = Bench(width=1)
    for number in range(5):
        bench.submit(1, number)
    await loop_turns()
    bench.queues.close()
    assert bench.ended == 4
    bench.finish[1, 0].set()
    await loop_turns()
    assert (bench.ended, bench.started) == (5, [(1, 0)])
    assert all(task.done() for task in bench.tasks)


async def test_what_the_peer_does_not_take_yet_is_left_for_later_and_others_have_the_slot_meanwhile() -> None:
    slots = Shares(1, 1)
    bench, other = Bench(width=2, slots=slots), Bench(width=2, slots=slots)
    rounds: list[str] = []

    async def second() -> Work | None:
        rounds.append("second")
        return None

    async def first() -> Work | None:
        rounds.append("first")
        bench.gate.set(False)
        return Work(second, 2)

    assert bench.queues.submit(1, Work(first, 3))
    await loop_turns()
    assert (rounds, bench.ended, bench.queues.pending, slots.used) == (["first"], 1, 2, 0)
    assert other.submit(1, 0)
    await loop_turns()
    assert other.started == [(1, 0)]
    bench.gate.set(True)
    await loop_turns()
    assert rounds == ["first"], "the slot is taken"
    other.finish[1, 0].set()
    await loop_turns()
    assert (rounds, bench.ended, slots.used) == (["first", "second"], 3, 0)


async def test_a_slot_that_comes_when_output_is_full_is_given_on() -> None:
    slots = Shares(1, 1)
    bench, other = Bench(width=1, slots=slots), Bench(width=1, slots=slots)
    assert slots.try_acquire("peer")
    bench.submit(1, 0)
    await loop_turns()
    bench.gate.set(False)
    other.submit(1, 0)
    slots.release("peer")
    await loop_turns()
    assert (bench.started, other.started) == ([], [(1, 0)])
    bench.gate.set(True)
    other.finish[1, 0].set()
    await loop_turns()
    assert bench.started == [(1, 0)]


async def test_runners_become_fewer_and_more_with_the_width() -> None:
    bench = Bench(width=3)
    for ledger_id in range(6):
        bench.submit(ledger_id, 0)
    await loop_turns()
    assert len(bench.started) == 3
    bench.width = 1
    for ledger_id in range(3):
        bench.finish[ledger_id, 0].set()
    await loop_turns()
    assert len(bench.started) == 4
    bench.width = 3
    for ledger_id in range(6):
        bench.finish[ledger_id, 0].set()
    await loop_turns(30)
    assert len(bench.started) == bench.ended == 6


@settings(max_examples=60)
@given(st.integers(1, 4), st.lists(st.integers(0, 4), max_size=40), st.randoms(use_true_random=False))
def test_everything_runs_once_and_in_order(width: int, ledgers: list[int], rng: object) -> None:
    async def main() -> None:
        bench = Bench(width=width)
        for number, ledger_id in enumerate(ledgers):
            assert bench.submit(ledger_id, number)
            if rng.random() < 0.3:  # type: ignore[attr-defined]
                await loop_turns(2)
        while len(bench.started) < len(ledgers) or bench.ended < len(ledgers):
            await loop_turns(2)
            running = [key for key in bench.started if not bench.finish[key].is_set()]
            assert len(running) <= width
            assert len({ledger_id for ledger_id, _ in running}) == len(running)
            if running:
                bench.finish[rng.choice(running)].set()  # type: ignore[attr-defined]
        for ledger_id in set(ledgers):
            numbers = [number for ledger, number in bench.started if ledger == ledger_id]
            assert numbers == sorted(numbers)

    asyncio.run(main())


async def test_work_that_never_waits_lets_the_loop_turn_after_a_slice() -> None:
    bench = Bench(width=1)
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)
        bench.clock.time += SLICE_SECONDS / 5

    for number in range(100):
        assert bench.queues.submit(1, Work(partial(work, number)))
    counts = []
    while len(done) < 100:
        await asyncio.sleep(0)
        counts.append(len(done))
    assert counts[1] <= 20
    assert len(set(counts)) >= 5
    await asyncio.gather(*bench.tasks)


async def test_work_of_a_peer_in_debt_rests_while_another_wants_little() -> None:
    bench = Bench(width=1)
    good = Peer("good")
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)
        bench.clock.time += 0.0004
        bench.turns.spent(good, 0.00001, bench.clock.time)

    for number in range(100):
        assert bench.queues.submit(1, Work(partial(work, number)))
    await loop_turns(50)
    assert len(done) < 20
    assert bench.peer.rests_until > bench.clock.time
    while len(done) < 100:
        bench.clock.time += LATELY_SECONDS
        await asyncio.sleep(0.001)
    await asyncio.gather(*bench.tasks)
