"""What connections share: slots and memory in turn, the loop's time, room for connections."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.bookie.sharing.admission import Admission, connection_limit
from bookkeeper.bookie.sharing.credit import BURST_SECONDS, LATELY_SECONDS, LONGEST_REST_SECONDS, Credit, Lately
from bookkeeper.bookie.sharing.log_rate import LINES, WINDOW_SECONDS, LogRate
from bookkeeper.bookie.sharing.memory import (
    ALWAYS_ALLOWED,
    MIN_FRAMES,
    Account,
    Peer,
    RequestMemory,
    largest_message,
    read_slots,
    request_memory,
)
from bookkeeper.bookie.sharing.shares import Shares
from bookkeeper.bookie.sharing.turns import (
    ADD_LATER_SECONDS,
    HICCUP_SECONDS,
    IN_JOURNAL_BESIDE_LIGHT,
    IN_JOURNAL_BESIDE_OTHERS,
    SLICE_BESIDE_OTHERS,
    SLICE_SECONDS,
    WORTH_CHARGING_SECONDS,
    Turns,
)
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime.real import RealRuntime
from tests.support.waiting import loop_turns

# --- shares ---


async def test_peers_take_turns_however_much_one_of_them_asks_for() -> None:
    shares = Shares(1, 1)
    assert shares.try_acquire("flood")
    waits = [("flood", shares.wait("flood", owner)) for owner in range(100)]
    waits.append(("one", shares.wait("one", 0)))
    order = []
    holder = "flood"
    for _ in range(5):
        shares.release(holder)
        (granted,) = [item for item in waits if item[1].done()]
        waits.remove(granted)
        holder = granted[0]
        order.append(holder)
    assert order == ["one", "flood", "flood", "flood", "flood"]


async def test_the_owners_of_one_peer_take_turns() -> None:
    shares = Shares(1, 1)
    shares.try_acquire("peer")
    waits = {(owner, number): shares.wait("peer", owner) for owner in "ab" for number in range(2)}
    order = []
    for _ in range(4):
        shares.release("peer")
        (granted,) = [key for key, wait in waits.items() if wait.done()]
        del waits[granted]
        order.append(granted)
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


async def test_one_peer_leaves_something_for_the_others() -> None:
    shares = Shares(4, 3)
    assert [shares.try_acquire("flood") for _ in range(4)] == [True, True, True, False]
    waiting = shares.wait("flood", 1)
    assert shares.try_acquire("other"), "the flood's own bound is no reason for others to wait"
    assert not waiting.done()
    shares.release("flood")
    assert waiting.done()


async def test_a_large_request_is_not_overtaken_for_ever() -> None:
    shares = Shares(10, 10)
    assert shares.try_acquire("a", 6)
    large = shares.wait("b", 0, 8)
    assert not shares.try_acquire("c", 1), "b was first"
    shares.release("a", 6)
    assert large.done()


async def test_who_goes_away_leaves_nothing_taken() -> None:
    shares = Shares(1, 1)
    shares.try_acquire("a")
    before, after, last = (shares.wait(peer, 0) for peer in "bcd")
    shares.forget("b", 1, before)
    shares.release("a")
    assert after.done()
    shares.forget("c", 1, after)
    assert last.done()
    shares.release("d")
    assert (shares.used, shares.awaited) == (0, False)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 7)), max_size=40), st.randoms())
def test_nothing_is_lost_and_nobody_waits_when_all_is_free(wishes: list[tuple[int, int, int]], rng: object) -> None:
    async def main() -> None:
        shares = Shares(9, 6)
        held: list[tuple[int, int]] = []
        waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        for peer, owner, wanted in wishes:
            units = shares.units(wanted)
            if shares.try_acquire(peer, units):
                held.append((peer, units))
            else:
                waiting.append((peer, units, shares.wait(peer, owner, units)))
            while held and rng.random() < 0.3:  # type: ignore[attr-defined]
                shares.release(*held.pop())
            held += [(peer, units) for peer, units, wait in waiting if wait.done()]
            waiting = [item for item in waiting if not item[2].done()]
            assert shares.used == sum(units for _, units in held) <= 9
            assert all(sum(u for p, u in held if p == peer) <= 6 for peer in range(4))
        while held:
            shares.release(*held.pop())
            held += [(peer, units) for peer, units, wait in waiting if wait.done()]
            waiting = [item for item in waiting if not item[2].done()]
        assert not waiting
        assert (shares.used, shares.awaited) == (0, False)

    asyncio.run(main())


# --- memory ---


class Connection:
    """Holds memory, and perhaps less than was counted."""

    def __init__(self, memory: RequestMemory, peer: Peer, still_since: float = 0.0) -> None:
        self.account = Account(memory, peer)
        self.still_since = still_since
        self.really: int | None = None
        self.given_way = False

    def measure(self) -> None:
        if self.really is not None:
            self.account.add(self.really - self.account.held)

    def give_way(self) -> None:
        self.given_way = True


class Memory(RequestMemory):
    def __init__(self, limit: int) -> None:
        self.everybody: list[Connection] = []
        super().__init__(limit, 0, lambda: self.everybody)

    def connect(self, peer: Peer, held: int, still_since: float = 0.0) -> Connection:
        connection = Connection(self, peer, still_since)
        self.everybody.append(connection)
        connection.account.add(held)
        return connection


MB = 1 << 20


def test_when_memory_is_used_up_the_stillest_connections_of_the_largest_peer_give_way() -> None:
    """BI-26, FX-61."""
    memory = Memory(100 * MB)
    flood, good = Peer("flood"), Peer("good")
    innocent = memory.connect(good, 10 * MB, still_since=0.0)
    attackers = [memory.connect(flood, 8 * MB, still_since=100.0 - n) for n in range(11)]
    assert not any(connection.given_way for connection in attackers)
    attackers.append(memory.connect(flood, 8 * MB, still_since=200.0))
    assert memory.used <= memory.limit * 7 // 8
    assert not innocent.given_way
    assert [connection.given_way for connection in attackers] == [False] * 8 + [True] * 3 + [False]
    assert memory.closed_connections == 3


def test_what_has_been_sent_meanwhile_is_measured_before_anybody_must_go() -> None:
    memory = Memory(100 * MB)
    connections = [memory.connect(Peer(str(n)), 9 * MB) for n in range(11)]
    for connection in connections:
        connection.really = 1 * MB
    connections[0].account.add(5 * MB)
    assert memory.used == 11 * MB
    assert not any(connection.given_way for connection in connections)


def test_a_closed_account_holds_nothing() -> None:
    memory = Memory(100)
    peer = Peer("x")
    connection = memory.connect(peer, 60)
    connection.account.close()
    connection.account.add(70)
    connection.account.close()
    assert (memory.used, peer.held) == (0, 0)


def test_the_more_is_used_the_less_one_connection_may_hold_but_always_something() -> None:
    memory = Memory(100 * MB)
    assert memory.allowance() == 25 * MB
    memory.connect(Peer("x"), 60 * MB)
    assert memory.allowance() == 10 * MB
    memory.connect(Peer("x"), 40 * MB)
    assert memory.allowance() == ALWAYS_ALLOWED


class Machine(RealRuntime):
    def __init__(self, memory: int, files: int = 1 << 20) -> None:
        super().__init__()
        self.memory, self.files_limit = memory, files

    def physical_memory(self) -> int:
        return self.memory


@pytest.mark.parametrize("memory", [100 * MB, 512 * MB, 8 << 30, 256 << 30])
def test_defaults_follow_the_machine_and_reads_under_way_leave_most_of_it(memory: int) -> None:
    config = ServerConfiguration()
    total = request_memory(Machine(memory), config)
    assert MIN_FRAMES * largest_message(config) <= total <= 512 * MB
    plain, urgent = read_slots(Machine(memory), config)
    assert min(plain, urgent) >= 2
    assert (plain + urgent) * largest_message(config) <= total / 2


# --- turns ---


class Slow:
    """A connection whose requests take a slice each."""

    def __init__(self, clock: Clock, peer: Peer, served: list[str], requests: int) -> None:
        self.clock, self.peer, self.served, self.requests = clock, peer, served, requests

    def serve_more(self, until: float) -> bool:
        self.clock.time = until
        self.requests -= 1
        self.served.append(self.peer.address)
        return self.requests > 0


class Clock(RealRuntime):
    time = 0.0

    def now(self) -> float:
        return self.time


async def test_a_peer_with_little_is_served_between_two_slices_of_one_with_much() -> None:
    clock = Clock()
    turns = Turns(clock, 0.5)
    served: list[str] = []
    flood, good = Peer("flood"), Peer("good")
    for _ in range(50):
        turns.wait(flood, Slow(clock, flood, served, 10))
    turns.wait(good, Slow(clock, good, served, 1))
    await loop_turns(3)
    assert served.index("good") <= 1
    assert len(served) <= 8, "rounds end in time for the other"
    while len(served) < 501:
        clock.time += LONGEST_REST_SECONDS  # who is in debt rests
        await asyncio.sleep(0.0001)
    assert Counter(served) == {"flood": 500, "good": 1}


async def test_who_has_had_a_slice_waits_for_the_next_turn_of_the_loop() -> None:
    clock = Clock()
    turns = Turns(clock, 0.5)
    flood, good = Peer("flood"), Peer("good")
    assert turns.may_serve(flood, clock.time)
    turns.spent(flood, SLICE_SECONDS, 0.0)
    assert not turns.may_serve(flood, clock.time)
    assert turns.may_serve(good, clock.time)
    await asyncio.sleep(0)
    assert turns.may_serve(flood, clock.time)
    turns.wait(flood, Slow(clock, flood, [], 1))
    assert not turns.may_serve(flood, clock.time), "what came first is first"


def has_wanted_much(turns: Turns, peer: Peer, clock: Clock) -> None:
    """For long enough not to be a hiccup."""
    for _ in range(3):
        clock.time += HICCUP_SECONDS / 2
        turns.spent(peer, LONGEST_REST_SECONDS, clock.time)


async def test_who_took_very_long_rests_while_others_come_that_want_little() -> None:
    clock = Clock()
    turns = Turns(clock, 0.5)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    turns.spent(flood, 0.02, clock.time)
    await asyncio.sleep(0)
    assert turns.may_serve(flood, clock.time), "nobody else is there"
    turns.spent(good, 0.0001, clock.time)
    turns.spent(flood, 0.01, clock.time)
    await asyncio.sleep(0)
    assert not turns.may_serve(flood, clock.time)
    assert not turns.must_spare(flood, clock.time), "that was once"
    has_wanted_much(turns, flood, clock)
    turns.spent(good, 0.0001, clock.time)
    await asyncio.sleep(0)
    assert not turns.may_serve(flood, clock.time)
    assert turns.must_spare(flood, clock.time)
    assert turns.slice_requests(flood, clock.time) < turns.slice_requests(good, clock.time)
    assert turns.may_serve(good, clock.time)
    assert not turns.must_spare(good, clock.time)
    served: list[str] = []
    turns.wait(flood, Slow(clock, flood, served, 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    turns.wait(good, Slow(clock, good, served, 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert served == ["good"], "the rest of one holds up nobody else"
    clock.time += LONGEST_REST_SECONDS
    while len(served) < 2:
        await asyncio.sleep(0.001)
    assert served == ["good", "flood"]


async def test_who_wants_little_is_spared_though_one_of_its_requests_took_long() -> None:
    clock = Clock()
    turns = Turns(clock, 0.12)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    spared = 0
    for step in range(1000):
        clock.time += 0.001
        turns.spent(flood, 0.001, clock.time)
        if step % 5 == 0:
            turns.spent(good, 0.004 if step == 500 else 0.0003, clock.time)
        if step > 2 * HICCUP_SECONDS * 1000:
            assert turns.must_spare(flood, clock.time), step
            assert not turns.must_spare(good, clock.time), step
            spared += 1
        await asyncio.sleep(0)
    assert spared > 500


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1.0])
async def test_a_peer_that_wants_all_of_the_loop_gets_its_share_beside_one_that_wants_little(share: float) -> None:
    clock = Clock()
    turns = Turns(clock, share)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    used = 0.0
    while clock.time < 20.0:
        if turns.may_serve(flood, clock.time):
            clock.time += 0.0001
            used += 0.0001
            turns.spent(flood, 0.0001, clock.time)
        else:
            clock.time += 0.0001
        if int(clock.time * 1000) % 5 == 0:
            turns.spent(good, 0.00001, clock.time)
            assert not turns.must_spare(good, clock.time)
        await asyncio.sleep(0)
    # A loop that serves others in between is free for it in half of the steps here.
    assert used <= 10.0 * share + BURST_SECONDS + 0.1
    assert used >= 10.0 * min(share, 0.45) * 0.7


async def test_peers_that_all_want_much_do_not_rest() -> None:
    clock = Clock()
    turns = Turns(clock, 0.25)
    peers = [Peer("a"), Peer("b")]
    clock.time = 10.0
    for step in range(2000):
        peer = peers[step % 2]
        clock.time += 0.0004
        turns.spent(peer, 0.0004, clock.time)
        await asyncio.sleep(0)
        assert step < 1000 or turns.may_serve(peer, clock.time)


@given(st.floats(0.05, 1.0), st.lists(st.tuples(st.floats(0, 0.02), st.floats(0, 0.02)), max_size=50))
def test_credit_is_what_the_share_gives_and_rest_pays_the_debt(share: float, steps: list[tuple[float, float]]) -> None:
    credit, now, spent = Credit(), 0.0, 0.0
    for pause, seconds in steps:
        now += pause
        rest = credit.spend(seconds, now, share)
        spent += seconds
        assert 0 <= rest <= LONGEST_REST_SECONDS * 1.001
        if rest == 0:
            assert spent <= BURST_SECONDS + now * share + LONGEST_REST_SECONDS * len(steps)
        assert credit.spend(0.0, now + rest, share) <= 1e-9
        now += rest
        assert credit.spend(BURST_SECONDS / 2, now + BURST_SECONDS / share, share) == 0.0
        now += BURST_SECONDS / share


def test_who_came_lately() -> None:
    lately: Lately[str] = Lately()
    assert not lately.several(0.0)
    lately.came("a", 1.0)
    lately.came("a", 1.01)
    assert not lately.several(1.01)
    assert not lately.other_than("a", 1.01)
    assert lately.other_than("b", 1.01)
    lately.came("b", 1.02)
    assert lately.several(1.02)
    assert lately.other_than("a", 1.02)
    assert lately.other_than("b", 1.02)
    assert not lately.other_than("b", 1.01 + LATELY_SECONDS)
    assert lately.other_than("a", 1.01 + LATELY_SECONDS)


async def test_slices_are_short_where_there_is_more_than_one_peer() -> None:
    clock = Clock()
    turns = Turns(clock, 0.5)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    turns.spent(flood, 0.0001, clock.time)
    turns.spent(flood, 0.0001, clock.time)
    assert turns.slice_seconds(clock.time) == SLICE_SECONDS
    turns.spent(good, 0.0001, clock.time)
    assert turns.slice_seconds(clock.time) == SLICE_BESIDE_OTHERS
    clock.time += 2 * LATELY_SECONDS
    assert turns.slice_seconds(clock.time) == SLICE_SECONDS


async def test_who_fills_the_journal_waits_until_half_of_it_is_done_if_there_are_others() -> None:
    clock = Clock()
    turns = Turns(clock, 0.5)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    flood.in_journal = IN_JOURNAL_BESIDE_OTHERS
    turns.spent(flood, 0.0, clock.time)
    assert turns.may_serve(flood, clock.time), "it is alone"
    turns.spent(good, 0.0, clock.time)
    assert turns.fills_journal(flood, clock.time)
    assert not turns.may_serve(flood, clock.time)
    assert turns.may_serve(good, clock.time)
    served: list[str] = []
    turns.wait(flood, Slow(clock, flood, served, 1))
    await loop_turns(3)
    assert not served
    turns.journal_has_adds(flood, IN_JOURNAL_BESIDE_OTHERS // 4, 0)
    await loop_turns(3)
    assert not served
    while flood.in_journal > 0:
        turns.journal_has(flood)
    await asyncio.sleep(0)
    assert served == ["flood"]


async def test_beside_those_that_want_little_the_journal_gets_little_at_a_time() -> None:
    clock = Clock()
    turns = Turns(clock, 0.25)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    flood.in_journal = IN_JOURNAL_BESIDE_LIGHT
    has_wanted_much(turns, flood, clock)
    assert not turns.fills_journal(flood, clock.time), "it is alone"
    turns.spent(good, 0.00001, clock.time)
    assert turns.fills_journal(flood, clock.time)
    assert not turns.fills_journal(good, clock.time)
    clock.time = flood.rests_until  # it waits for the journal alone now
    turns.spent(good, 0.00001, clock.time)
    served: list[str] = []
    turns.wait(flood, Slow(clock, flood, served, 1))
    await loop_turns(3)
    assert not served
    turns.journal_has_adds(flood, IN_JOURNAL_BESIDE_LIGHT // 2, 0)
    await loop_turns(3)
    assert served == ["flood"]


async def test_what_fences_cost_after_they_were_served_is_charged_for() -> None:
    clock = Clock()
    turns = Turns(clock, 0.25)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    for _ in range(200):
        turns.journal_gets(flood)
    turns.spent(good, 0.00001, clock.time)
    assert not turns.may_serve(flood, clock.time)
    assert turns.may_serve(good, clock.time)
    turns.journal_gets(good)
    assert turns.may_serve(good, clock.time), "one is little"


@pytest.mark.parametrize("part", [0.00001, 0.01])
async def test_what_is_owed_is_charged_for_little_by_little_or_at_once(part: float) -> None:
    """By what follows a request: the journal, the answer."""
    clock = Clock()
    turns = Turns(clock, 0.25)
    flood, good = Peer("flood"), Peer("good")
    clock.time = 10.0
    turns.spent(good, 0.00001, clock.time)
    for _ in range(round(0.02 / part)):
        turns.owe(flood, part)
        assert flood.owes < WORTH_CHARGING_SECONDS
    assert not turns.may_serve(flood, clock.time)
    turns.owe(good, 0.00001)
    assert turns.may_serve(good, clock.time), "that is little"


async def test_what_is_owed_is_charged_with_what_comes_next() -> None:
    clock = Clock()
    turns = Turns(clock, 0.25)
    alone, good = Peer("alone"), Peer("good")
    clock.time = 10.0
    turns.spent(good, 0.00001, clock.time)
    owed = WORTH_CHARGING_SECONDS / 2
    turns.journal_gets_adds(alone, 0, int(owed / ADD_LATER_SECONDS))
    assert alone.owes > 0
    turns.spent(alone, BURST_SECONDS - owed / 2, clock.time)
    await asyncio.sleep(0)
    assert alone.owes == 0
    assert not turns.may_serve(alone, clock.time), "both together were more than it may"


async def test_nobody_rests_long_because_the_process_stood_still() -> None:
    clock = Clock()
    turns = Turns(clock, 0.5)
    unlucky, other = Peer("unlucky"), Peer("other")
    clock.time = 10.0
    turns.spent(other, 0.0001, clock.time)
    clock.time = 10.005
    turns.spent(unlucky, 0.0001, clock.time)
    turns.spent(unlucky, 10.0, clock.time)
    await asyncio.sleep(0)
    assert not turns.may_serve(unlucky, clock.time)
    clock.time += LONGEST_REST_SECONDS
    assert turns.may_serve(unlucky, clock.time)


async def test_a_connection_that_ended_has_no_turn() -> None:
    clock = Clock()
    turns = Turns(clock, 0.5)
    served: list[str] = []
    peer = Peer("x")
    connection = Slow(clock, peer, served, 1)
    turns.wait(peer, connection)
    turns.forget(peer, connection)
    turns.forget(peer, connection)
    await asyncio.sleep(0)
    assert not served
    assert turns.may_serve(peer, clock.time)


# --- room for connections ---


class Client:
    def __init__(self, admission: Admission[Client], address: str) -> None:
        self.source = admission.peer_at(address)
        self.quiet_ticks = 0
        self.idle = True
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_connections_leave_file_descriptors_for_files() -> None:
    config = ServerConfiguration()
    assert connection_limit(config, 1024) == 512
    assert connection_limit(config, 4096) == 3072
    assert connection_limit(config, 1 << 20) == 10000
    assert connection_limit(ServerConfiguration(reservedFileDescriptors=1000), 1024) == 24
    assert connection_limit(ServerConfiguration(reservedFileDescriptors=2000), 1024) == 1


def admission(limit: int, per_peer: int = 0) -> Admission[Client]:
    return Admission(ServerConfiguration(maxConnections=limit, maxConnectionsPerPeer=per_peer), 1 << 20)


def connect(room: Admission[Client], address: str) -> Client:
    client = Client(room, address)
    assert room.admit(client)
    return client


def test_a_new_connection_takes_the_place_of_the_longest_idle_of_the_largest_peer() -> None:
    room = admission(8)
    room.looks_begin(1.0)
    clients = [connect(room, address) for address in "aaaaabbc"]
    assert not room.admit(Client(room, "d")), "nobody has been idle for long"
    room.looks_begin(1.0)
    for ticks, client in enumerate(clients):
        client.quiet_ticks = 100 + ticks
    clients[4].idle = False
    new = Client(room, "d")
    assert room.admit(new)
    assert [client.aborted for client in clients].index(True) == 3
    assert len(room.connections) == 8
    room.left(clients[3])
    assert len(room.connections) == 8, "its end had been counted"


def test_one_address_has_only_some_of_the_connections() -> None:
    room = admission(100, per_peer=3)
    clients = [connect(room, "a") for _ in range(3)]
    assert not room.admit(Client(room, "a"))
    assert room.admit(Client(room, "b"))
    room.left(clients[0])
    assert room.admit(Client(room, "a"))
    assert [admission(limit).peer_limit for limit in (1, 4, 100)] == [1, 4, 75]


# --- log lines ---


def test_lines_that_clients_cause_are_few_and_those_left_out_are_told() -> None:
    rate = LogRate()

    def line(text: str, at: float, level: int = logging.INFO) -> str | None:
        record = logging.LogRecord("x", level, "x", 1, text, ("peer",), None)
        record.created = at
        return record.getMessage() if rate.filter(record) else None

    shown = [line("closing %s", 1000.0 + n / 100) for n in range(100)]
    assert [text for text in shown if text] == ["closing peer"] * LINES
    assert line("another %s", 1001.0) == "another peer"
    assert line("closing %s", 1001.0, logging.CRITICAL) == "closing peer"
    assert (
        line("closing %s", 1000.0 + WINDOW_SECONDS) == f"closing peer (and {100 - LINES} more lines like this before)"
    )
