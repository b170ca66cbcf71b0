"""Stories told to a simulated cluster step by step: clients that die, meet each other, or lose the metadata store.

Numbers: S-n are scenarios of spec safety §2.3, MF-n failure modes of the metadata store (§5.3), C-n of spec client §17.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from bookkeeper.client.adds.explicit_lac import ExplicitLac
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.errors import (
    BKError,
    IllegalOpError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataStoreError,
    NoSuchLedgerOnMetadataError,
    NotEnoughBookiesError,
)
from bookkeeper.metadata.api import Mode
from bookkeeper.metadata.records.store import Topic
from bookkeeper.simulation.world.network import SimulatedTransport
from bookkeeper.types import LedgerState

from .scenario import BOOKIES, Died, Scenario, play, power_off, refused

# --- dying clients: S-18 -----------------------------------------------------------------------------------


class Counter:
    """A tap that counts what a machine has been sent, and strikes at one of the pieces."""

    def __init__(self, s: Scenario, name: str, at: int, strike: Callable[[], None]) -> None:
        self._inner = s.tap
        self._name = name
        self._left = at
        self._strike = strike
        self.struck = False
        s.world.tap = self

    def sent(self, transport: SimulatedTransport, data: bytes) -> None:
        self._inner.sent(transport, data)

    def received(self, transport: SimulatedTransport, data: bytes) -> None:
        self._inner.received(transport, data)
        if transport.owner.machine.name == self._name:
            self._left -= 1
            if self._left == 0:
                self.struck = True
                self._strike()


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_s18_recovery_may_die_at_every_step_and_the_next_one_ends_alike(protocol: str) -> None:
    """The writer leaves an unacknowledged tail on one bookie; the recoverer dies after its nth answer. PI-18."""

    async def story(s: Scenario, step: int) -> bool:
        writer = await s.create(await s.connect("w", protocol=protocol))
        await s.append(writer, 4)
        s.cut("w", "b2")
        s.cut("w", "b3")
        tail = s.push(writer, 3)
        await asyncio.sleep(0.1)
        s.cluster.machine("w").kill()
        for task in tail:
            with pytest.raises(Died):
                await s.wait(task)
        counter = Counter(s, "r", step, s.cluster.machine("r").kill)
        try:
            await s.recover(await s.connect("r", protocol=protocol), writer.id)
        except Died:
            assert counter.struck
        s.world.tap = s.tap
        await s.recover(await s.connect("q", protocol=protocol), writer.id)
        await s.recover(await s.connect("q2", protocol=protocol), writer.id)
        return counter.struck

    step = 1
    while play(lambda s, step=step: story(s, step), seed=step, settings={"flushInterval": 5000}):  # type: ignore[misc]
        step += 1
    assert step > 8


def test_recovery_may_die_at_every_change_of_the_store() -> None:
    """The recoverer loses the answers to its first, or its second write, and dies."""

    async def story(s: Scenario, operation: str) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 4)
        s.cluster.machine("w").kill()
        r = await s.connect("r")
        s.cluster.faults.lose_answers_to[operation] = 1
        recovering = s.begin("r", r.recover_ledger(writer.id, password=b"simulated").__aenter__())
        await s.until(lambda: not s.cluster.faults.lose_answers_to[operation])
        s.cluster.machine("r").kill()
        with pytest.raises(Died):
            await s.wait(recovering)
        await s.recover(await s.connect("q"), writer.id)

    play(lambda s: story(s, "ledgers.write"))


def test_a_writer_that_dies_while_it_changes_the_ensemble_leaves_a_ledger_that_can_be_recovered() -> None:
    async def story(s: Scenario, delay: float) -> None:
        writer = await s.create(await s.connect("w"), 3, 3, 3)
        await s.append(writer, 3)
        members = s.stored(writer).last_ensemble[1]
        s.cluster.machine(members[0].partition(":")[0]).kill()
        tail = s.push(writer, 3)
        await asyncio.sleep(delay)
        s.cluster.machine("w").kill()
        for task in tail:
            if not task.done():
                with pytest.raises(Died):
                    await s.wait(task)
        await s.recover(await s.connect("r"), writer.id)
        assert s.stored(writer).state is LedgerState.CLOSED

    for number in range(20):
        play(lambda s, number=number: story(s, number * 0.0005), bookies=5, seed=number)  # type: ignore[misc]


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_c78_ten_clients_recover_at_once_while_the_writer_writes_and_agree(protocol: str) -> None:
    """RI-10, PI-18."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w", protocol=protocol))
        await s.append(writer, 5)
        clients = [await s.connect(f"r{number}", protocol=protocol) for number in range(10)]
        tail = s.push(writer, 20)
        recovering = [
            s.begin(s.home(bk), bk.recover_ledger(writer.id, password=b"simulated").__aenter__()) for bk in clients
        ]
        lasts = set()
        for task in recovering:
            reader = await s.wait(task)
            lasts.add((reader.last_add_confirmed, reader.length))
        assert len(lasts) == 1
        for append in tail:
            try:
                assert await s.wait(append) <= reader.last_add_confirmed
            except (LedgerFencedError, LedgerClosedError):
                break
        await s.recover(clients[0], writer.id)

    for seed in range(5):
        play(story, seed=seed)


# --- the metadata store: MF-1, MF-5, MF-7 ---------------------------------------------------------------------


def test_mf1_a_bookie_serves_on_without_its_session_and_registers_again() -> None:
    """FX-71, LV-6."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 2)
        for name in BOOKIES:
            assert s.cluster.expire_session(name)
        await s.append(writer, 2)
        assert not any(_registered(s, name) for name in BOOKIES)
        await s.until(lambda: all(_registered(s, name) is Mode.WRITABLE for name in BOOKIES), seconds=10)
        await s.append(writer, 2)
        r = await s.connect("r")
        assert len(await s.on("r", r.writable_bookies())) == 3

    play(story)


def test_mf5_a_writer_without_store_goes_on_until_it_needs_another_ensemble_and_ends_in_time() -> None:
    """LV-2."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"), 3, 3, 3)
        await s.append(writer, 2)
        s.cut("w", "store")
        await s.append(writer, 2)
        s.cluster.machine(s.stored(writer).last_ensemble[1][0].partition(":")[0]).kill()
        task = s.push(writer)[0]
        started = s.world.loop.time()
        with pytest.raises(BKError):
            await s.wait(task)
        assert s.world.loop.time() - started < 30
        await s.recover(await s.connect("r"), writer.id)
        assert s.stored(writer).last_entry_id >= 3

    play(story, bookies=4)


def test_mf5_a_short_absence_of_the_store_delays_an_ensemble_change_only() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"), 3, 3, 3)
        await s.append(writer, 2)
        s.cut("w", "store")
        s.cluster.machine(s.stored(writer).last_ensemble[1][0].partition(":")[0]).kill()
        tasks = s.push(writer, 3)
        await asyncio.sleep(1.5)
        assert not any(task.done() for task in tasks)
        assert len(s.stored(writer).ensembles) == 1
        s.cut("w", "store", False)
        for task in tasks:
            await s.wait(task)
        assert list(s.stored(writer).ensembles) == [0, 2]

    play(story, bookies=4)


@pytest.mark.parametrize("operation", ["ledgers.create", "ledgers.write"])
def test_mf7_a_lost_answer_of_the_store_neither_doubles_nor_loses_a_change(operation: str) -> None:
    async def story(s: Scenario) -> None:
        w = await s.connect("w")
        s.cluster.faults.lose_answers_to[operation] = 1
        writer = await s.create(w, 3, 3, 3)
        await s.append(writer, 2)
        s.cluster.machine(s.stored(writer).last_ensemble[1][1].partition(":")[0]).kill()
        await s.append(writer, 2)  # needs another ensemble
        assert list(s.stored(writer).ensembles) == [0, 2]
        s.cluster.faults.lose_answers_to[operation] = 1
        await s.on("w", writer.close())
        s.history.saw_closed(writer.id, 3, writer.length)
        assert s.stored(writer).last_entry_id == 3

    play(story, bookies=4)


# --- stories of clients ----------------------------------------------------------------------------------------


def test_c69_recovery_outlasts_a_rolling_restart() -> None:
    """Silence of a bookie that is down is never taken for "no such entry". LV-1."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 30)
        s.cluster.machine("w").kill()
        s.cluster.machine("b1").kill()
        s.cluster.machine("b2").kill()
        r = await s.connect("r")
        with pytest.raises(BKError):
            await s.recover(r, writer.id)
        await s.start("b1")
        s.cluster.machine("b3").kill()
        await s.start("b2")
        while True:
            try:
                await s.recover(r, writer.id)
                break
            except BKError:
                await asyncio.sleep(0.5)
        assert s.stored(writer).last_entry_id == 29

    play(story, bookies=4)


def test_c68_recovery_without_enough_bookies_ends_when_there_are_enough_again() -> None:
    """LV-1."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"), 3, 3, 3)
        await s.append(writer, 5)
        s.cluster.machine("w").kill()
        s.cluster.machine("b1").kill()
        await asyncio.sleep(5)
        r = await s.connect("r")
        with pytest.raises(BKError):
            await s.recover(r, writer.id)
        assert s.stored(writer).state is LedgerState.IN_RECOVERY
        await s.start("b1")
        await asyncio.sleep(1)
        await s.recover(r, writer.id)
        assert s.stored(writer).last_entry_id == 4

    play(story)


def test_c77_a_writer_of_a_ledger_that_was_fenced_and_deleted_fails_and_does_not_hang() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 2)
        r = await s.connect("r")
        await s.recover(r, writer.id)
        s.ledger(writer).delete_started = True
        await s.on("r", r.delete_ledger(writer.id))
        tasks = s.push(writer, 10)
        for task in tasks:
            with pytest.raises((LedgerFencedError, LedgerClosedError)):
                await s.wait(task)
        with pytest.raises((LedgerFencedError, LedgerClosedError, NoSuchLedgerOnMetadataError)):
            await s.on("w", writer.close())

    play(story)


def test_c79_one_bookie_that_hangs_does_not_hold_recovery_up() -> None:
    """FX-10, LV-3."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        s.cluster.machine("w").kill()
        s.cluster.machine(s.stored(writer).last_ensemble[1][1].partition(":")[0]).pause(500)
        started = s.world.loop.time()
        await s.recover(await s.connect("r"), writer.id)
        assert s.world.loop.time() - started < 10

    play(story, bookies=4)


def test_c83_a_reader_follows_its_writer_through_an_ensemble_change_and_a_lost_session_to_the_close() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"), 3, 3, 3)
        await s.append(writer, 3)
        f = await s.connect("f")
        reader = await s.open(f, writer.id)
        seen: list[int] = []

        async def follow() -> None:
            seen.extend([entry.entry_id async for entry in reader.tail(0)])

        following = s.begin("f", follow())
        await asyncio.sleep(1)
        assert s.cluster.expire_session("f")
        s.cluster.machine(s.stored(writer).last_ensemble[1][2].partition(":")[0]).kill()
        await s.append(writer, 3)
        await asyncio.sleep(5)
        await s.append(writer, 3)
        await s.on("w", writer.close())
        await s.wait(following)
        assert seen == list(range(9))
        assert reader.last_add_confirmed == 8

    play(story, bookies=4)


def test_c76_open_without_recovery_leaves_the_writer_alone_and_open_with_recovery_ends_it() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 3)
        r = await s.connect("r")
        reader = await s.open(r, writer.id)
        for _ in range(3):
            await s.append(writer)
        assert await s.on("r", reader.read_last_add_confirmed()) == 4
        await s.recover(r, writer.id)
        await refused(s, writer)

    play(story)


def test_a_writer_that_lost_its_ledger_is_told_so_and_not_that_bookies_are_missing() -> None:
    async def story(s: Scenario) -> None:
        w = await s.connect("w")
        writer = await s.create(w)
        await s.append(writer, 3)
        await s.recover(await s.connect("r"), writer.id)
        for name in ("b2", "b3"):  # that it is fenced comes after the loss of a bookie that nothing can replace
            s.world.link("w", name).latency = 0.5
        s.cluster.machine("b1").kill()
        await s.until(lambda: _registered(s, "b1") is None)
        with pytest.raises((LedgerFencedError, LedgerClosedError)):
            await s.on("w", writer.append(b"too late"))

    play(story)


def test_c88_a_read_only_bookie_is_not_chosen_and_still_read() -> None:
    async def story(s: Scenario) -> None:
        w = await s.connect("w")
        writer = await s.create(w)
        await s.append(writer, 3)
        s.cluster.bookies["b1"].state.to_read_only("a test", manual=True)
        await s.until(lambda: _registered(s, "b1") is Mode.READ_ONLY)
        await asyncio.sleep(1)
        with pytest.raises(NotEnoughBookiesError):
            await s.create(await s.connect("w2"))
        reader = await s.open(await s.connect("r"), writer.id)
        s.cluster.machine("b2").kill()
        s.cluster.machine("b3").kill()
        entries = await s.on("r", reader.read_unconfirmed(0, 2))
        assert [entry.entry_id for entry in entries] == [0, 1, 2]

    play(story)


@pytest.mark.parametrize("protocol", ["v2", "auto"])
def test_c41_the_lac_of_an_idle_writer_becomes_known_and_stays_known(protocol: str) -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w", protocol=protocol, explicitLacInterval=100))
        for _ in range(10):
            await s.append(writer)
        reader = await s.open(await s.connect("r", protocol=protocol), writer.id)
        assert await s.on("r", reader.try_read_last_add_confirmed()) == 8  # what entry 9 carries
        while await s.on("r", reader.read_explicit_last_add_confirmed()) < 9:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)  # the third bookie knows it too
        s.cluster.machine("w").kill()
        for name in BOOKIES:
            await power_off(s, name)
        await s.start(*BOOKIES)
        reader = await s.open(await s.connect("q", protocol=protocol), writer.id)
        assert await s.on("q", reader.read_explicit_last_add_confirmed()) == 9

    play(story)


# --- a quiet writer, with the settings as they are ---

PROTOCOLS = pytest.mark.parametrize("protocol", ["v2", "auto", "v3"])


@PROTOCOLS
def test_a_tailer_of_a_quiet_writer_sees_its_last_entry_within_a_second(protocol: str) -> None:
    """FX-19, LV-7."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w", protocol=protocol))
        reader = await s.open(await s.connect("r", protocol=protocol), writer.id)
        seen: dict[int, float] = {}

        async def follow() -> None:
            async for entry in reader.tail():
                seen[entry.entry_id] = s.world.loop.time()

        following = asyncio.ensure_future(s.on("r", follow()))
        acknowledged = []
        for count, pause in ((1, 5.0), (1, 0.2), (7, 60.0)):  # alone, soon after another, behind a burst
            await s.append(writer, count)
            acknowledged.append((writer.last_add_confirmed, s.world.loop.time()))
            await asyncio.sleep(pause)
        following.cancel()
        assert [last for last, _ in acknowledged] == [0, 1, 8]
        for last, at in acknowledged:
            assert seen[last] - at <= 1

    play(story)


@PROTOCOLS
def test_a_reader_opened_after_one_append_of_a_quiet_writer_sees_it(protocol: str) -> None:
    """FX-19."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w", protocol=protocol))
        await s.append(writer)
        await asyncio.sleep(1)
        reader = await s.open(await s.connect("r", protocol=protocol), writer.id)
        assert await s.on("r", reader.read_explicit_last_add_confirmed()) == 0
        if protocol != "v2":  # where opening a ledger asks as v2 does
            assert reader.last_add_confirmed == 0
        assert (await s.on("r", reader.read_entry(0))).entry_id == 0

    play(story)


def test_one_silent_bookie_does_not_hold_back_the_lac() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer)
        await asyncio.sleep(1)
        member = s.stored(writer).last_ensemble[1][0]
        s.cluster.machine(member.partition(":")[0]).pause(3)
        for lac in (1, 2):
            await s.append(writer)
            await asyncio.sleep(1)
            assert writer._appending.explicit_lac._told == lac
            assert writer._appending.explicit_lac._telling is None

    play(story)


def test_a_writer_that_appends_all_the_time_tells_nothing_and_a_quiet_one_tells_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    looked: list[float] = []
    tell, look = ExplicitLac._tell, ExplicitLac.appended

    def counted(self: ExplicitLac, lac: int) -> None:
        told.append(lac)
        tell(self, lac)

    def counted_look(self: ExplicitLac) -> int:
        looked.append(self._context.runtime.now())
        return look(self)

    monkeypatch.setattr(ExplicitLac, "_tell", counted)
    monkeypatch.setattr(ExplicitLac, "appended", counted_look)

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        for _ in range(100):
            await s.append(writer)
            await asyncio.sleep(0.05)
        assert told == []
        assert len(looked) <= 5 / 0.3 + 1
        await asyncio.sleep(30)
        assert told == [99]
        assert len(looked) <= 5 / 0.3 + 3  # and nothing happens any more

    play(story)


@pytest.mark.parametrize("silent", [1, 2])
def test_c49_speculation_passes_silent_replicas_over_and_without_it_reads_take_the_timeout(silent: int) -> None:
    async def story(s: Scenario) -> None:
        w = await s.connect("w")
        writer = await s.create(w)
        await s.append(writer, 3)
        await s.on("w", writer.close())
        members = s.stored(writer).last_ensemble[1]
        readers = {}
        for name, delay in (("fast", 100), ("slow", 0)):
            bk = await s.connect(name, speculativeReadTimeout=delay)
            readers[name] = await s.open(bk, writer.id)
            await s.on(name, readers[name].read(0, 2))  # connections are there
        for member in members[:silent]:
            s.cluster.machine(member.partition(":")[0]).pause(500)
        took = {}
        for name, reader in readers.items():
            started = s.world.loop.time()
            await s.on(name, reader.read_entry(0))
            took[name] = s.world.loop.time() - started
        assert silent * 0.1 <= took["fast"] < 0.5
        assert took["slow"] >= silent * 1.0  # readEntryTimeoutSec

    play(story)


def test_c87_the_list_of_bookies_outlives_a_session_and_a_lost_store_is_reported() -> None:
    async def story(s: Scenario) -> None:
        bk = await s.connect("w")
        writer = await s.create(bk)
        assert s.cluster.expire_session("w")
        s.cluster.machine("b1").kill()
        await s.until(lambda: bk._placement.bookies.writable == tuple(map(s.cluster.bookie_id, ("b2", "b3", "b4"))))
        second = await s.create(bk)
        assert s.cluster.bookie_id("b1") not in s.stored(second).last_ensemble[1]
        await s.append(second, 3)
        await s.start("b1")
        await s.until(lambda: len(bk._placement.bookies.writable) == 4)
        s.cut("w", "store")
        with pytest.raises(MetadataStoreError):
            await s.create(bk)
        assert len(bk._placement.bookies.writable) == 4
        await s.append(second, 3)  # needs the store no more
        s.cut("w", "store", False)
        await s.append(await s.create(bk), 3)
        assert s.stored(writer).state is LedgerState.OPEN

    play(story, bookies=4)


def _registered(s: Scenario, name: str) -> Mode | None:
    bookie = s.cluster.bookie_id(name)
    if bookie in s.cluster.store.records(Topic.READ_ONLY):
        return Mode.READ_ONLY
    return Mode.WRITABLE if bookie in s.cluster.store.records(Topic.AVAILABLE) else None


# --- slow links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_burst_that_takes_longer_than_the_timeout_to_leave_ends_nobody(protocol: str) -> None:
    """All bookies acknowledge what they get; the way to them is long, and little is under way at once."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w", protocol=protocol, clientWriteBufferHighWaterMark=1 << 26))
        await s.append(writer)  # connects
        for name in BOOKIES:
            s.world.link("w", name).latency = 0.2
        begun = s.world.loop.time()

        ids = await s.on("w", writer.append_many([bytes(100_000)] * 60))
        assert ids == list(range(1, 61))
        assert s.world.loop.time() - begun > 3  # timeouts are one second
        assert len(s.stored(writer).ensembles) == 1
        assert not writer.closed

    play(story)


# --- a reserved ledger --------------------------------------------------------------------------------------


def test_a_claim_whose_request_was_lost_does_not_take_another_clients_claim_for_its_own() -> None:
    async def story(s: Scenario) -> list[str]:
        clients = {name: await s.connect(name) for name in ("a", "b")}
        ledger_id = await s.on("a", clients["a"].reserve_ledger(password=b"simulated"))
        writers: dict[str, LedgerWriter] = {}

        async def claim(name: str) -> None:
            with contextlib.suppress(IllegalOpError):
                writers[name] = await clients[name].claim_ledger(ledger_id, password=b"simulated")

        s.cluster.faults.lose_requests_of["ledgers.write"] = 1
        first = s.begin("a", claim("a"))
        await s.until(lambda: not s.cluster.faults.lose_requests_of["ledgers.write"])
        s.cut("a", "store")
        await s.on("b", claim("b"))
        s.cut("a", "store", False)
        await s.wait(first)
        for name, writer in writers.items():
            await s.on(name, writer.close())
        return list(writers)

    assert play(story) == ["b"]
