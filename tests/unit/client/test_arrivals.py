"""Acknowledgements of one turn of the loop, told to the writers together (`client/wire/arrivals.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.adds.pipeline import AddPipeline
from bookkeeper.client.wire import arrivals
from bookkeeper.client.wire import connection as wire
from bookkeeper.client.wire.arrivals import KEPT_FROM, Arrivals
from bookkeeper.client.wire.departures import Departures
from bookkeeper.client.wire.pool import ConnectionPool
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BKError, BookieUnavailableError
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.frames import Acks, PackedAcks, ResponseStream
from bookkeeper.protocol.messages import V2, AddResponse, Status
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.support.fake_bookie import HOLD, FakeCluster

from .support import DIGEST, eventually

Told = list[tuple[str, int, int]]


PACKED = {v2.Responses: lambda acks: b"".join(acknowledged(*ack) for ack in acks), v3.Responses: list}


@pytest.fixture(params=PACKED)
def version(request: pytest.FixtureRequest) -> type[ResponseStream]:
    return request.param  # type: ignore[no-any-return]


def acknowledged(ledger_id: int, entry_id: int) -> bytes:
    return v2.encode_response(AddResponse(Status.EOK, ledger_id, entry_id))


class Connection:
    def __init__(self, name: str, told: Told, responses: ResponseStream) -> None:
        self.bookie = BookieId(name)
        self.responses = responses
        self._told = told

    def send(self, frames: bytes) -> None:
        pass

    def failed_on_answer(self, error: Exception) -> None:
        self._told.append((f"{self.bookie}: {error}", -1, -1))

    def tell(self, acks: PackedAcks) -> None:
        self._told += [(self.bookie, *ack) for ack in self.responses.unpack(acks)]


class Sink:
    def __init__(self, ledger_id: int, told: Told) -> None:
        self._ledger_id = ledger_id
        self._told = told
        self.calls: list[Sequence[int]] = []

    def on_stored(self, entry_id: int) -> None:
        self.on_stored_at((0, 1, 2), [entry_id])

    def on_stored_at(self, places: Sequence[int], entry_ids: Sequence[int]) -> None:
        self.calls.append(entry_ids)
        self._told += [("".join("abc"[place] for place in places), self._ledger_id, entry_id) for entry_id in entry_ids]


class Client:
    """Three connections, and writers of some ledgers to all of them."""

    def __init__(self, version: type[ResponseStream], *ledgers: int) -> None:
        self.told: Told = []
        self._pack = PACKED[version]
        departures = Departures()
        self.arrivals = Arrivals(RealRuntime(), departures)
        self.a, self.b, self.c = self.connections = tuple(Connection(name, self.told, version()) for name in "abc")
        self.bundle = departures.bundle(self.connections)
        for ledger_id in ledgers:
            self.bundle.sinks[ledger_id] = Sink(ledger_id, self.told)  # type: ignore[assignment]

    def keep(self, connection: Connection, acks: Acks) -> None:
        self.arrivals.keep(connection, self._pack(acks))

    async def hear(self, a: Acks, b: Acks, c: Acks) -> Told:
        for connection, acks in zip(self.connections, (a, b, c), strict=True):
            if acks:
                self.keep(connection, acks)
        assert self.told == []  # not before the turn ends
        await asyncio.sleep(0)
        return self.told


async def test_what_several_have_stored_is_told_once_for_all_of_them(version: type[ResponseStream]) -> None:
    client = Client(version, 1, 2, 3, 4)
    acks = [(1, 0), (2, 5), (3, 7), (4, 1)]
    told = await client.hear(acks, acks[:3], acks[:2])
    assert told == [("abc", 1, 0), ("abc", 2, 5), ("ab", 3, 7), ("a", 4, 1)]


def test_kept_are_those_that_are_many(version: type[ResponseStream]) -> None:
    arrivals = Arrivals(RealRuntime(), Departures())

    def kept(acks: Acks) -> bool:
        return arrivals.worth_keeping(version(), PACKED[version](acks))

    for many in ([(number, 0) for number in range(KEPT_FROM)], [(1, number) for number in range(KEPT_FROM)]):
        assert kept(many)
        assert not kept(many[1:])


async def test_rows_of_a_ledger_are_told_as_such(version: type[ResponseStream]) -> None:
    client = Client(version, 1, 2)
    one, other = [(1, 0), (1, 1), (1, 2)], [(2, 0), (2, 1)]
    assert await client.hear(one, one, one) == [("abc", *ack) for ack in one]
    client.told.clear()
    mixed = [*one, *other, (9, 0), (9, 1)]
    told = await client.hear(mixed, mixed, mixed[:-1])
    expected = [("abc", *ack) for ack in (*one, *other)] + [(name, 9, 0) for name in "abc"]
    assert told == [*expected, ("a", 9, 1), ("b", 9, 1)]
    client.keep(client.c, mixed[-1:])
    assert len(client.bundle.sinks[1].calls) == 2  # type: ignore[attr-defined]
    client.told.clear()
    around = [(1, 3), (2, 2), (1, 4)]
    assert await client.hear(around, around, around) == [("c", 9, 1)] + [("abc", *ack) for ack in around]


async def test_of_a_ledger_with_other_bookies_too_each_is_told_by_itself(version: type[ResponseStream]) -> None:
    client = Client(version, 1, 2)
    acks = [(1, 0), (9, 0), (2, 0)]
    told = await client.hear(acks, acks, acks)
    assert told == [("abc", 1, 0), ("a", 9, 0), ("b", 9, 0), ("c", 9, 0), ("abc", 2, 0)]


async def test_bookies_that_answer_in_another_order_are_told_by_themselves_in_theirs(
    version: type[ResponseStream],
) -> None:
    client = Client(version, 1, 2)
    told = await client.hear([(1, 0), (2, 0)], [(2, 0), (1, 0)], [(1, 0), (2, 0)])
    assert told == [("a", 1, 0), ("a", 2, 0), ("b", 2, 0), ("b", 1, 0), ("c", 1, 0), ("c", 2, 0)]


async def test_a_writer_that_fails_ends_the_connections_as_it_is_unknown_who_was_told(
    version: type[ResponseStream],
) -> None:
    client = Client(version, 1, 2, 3)

    def fail(_places: Sequence[int], _entry_ids: Sequence[int]) -> None:
        raise ValueError("no")

    client.bundle.sinks[2].on_stored_at = fail  # type: ignore[method-assign]
    acks = [(1, 0), (2, 0), (3, 0)]
    told = await client.hear(acks, acks, acks)
    assert told == [("abc", 1, 0), ("a: no", -1, -1), ("b: no", -1, -1), ("c: no", -1, -1)]


async def test_two_of_three_are_no_bundle(version: type[ResponseStream]) -> None:
    client = Client(version, 1)
    assert await client.hear([(1, 0)], [(1, 0)], []) == [("a", 1, 0), ("b", 1, 0)]


async def test_what_else_comes_has_all_told_before_it(version: type[ResponseStream]) -> None:
    client = Client(version, 1)
    client.keep(client.a, [(1, 0)])
    client.arrivals.tell()
    assert client.told == [("a", 1, 0)]
    client.told.clear()
    both = [(1, 0), (1, 1)]
    assert await client.hear([(1, 1)], both, both) == [("a", 1, 1)] + [(name, *ack) for name in "bc" for ack in both]
    await asyncio.sleep(0)
    assert len(client.told) == 5  # once
    client.told.clear()
    assert await client.hear([(1, 2)], [(1, 2)], [(1, 2)]) == [("abc", 1, 2)]


async def test_reads_of_one_turn_are_one_stream(version: type[ResponseStream]) -> None:
    client = Client(version, 1, 2)
    client.keep(client.a, [(1, 0)])
    client.keep(client.a, [(2, 0)])
    client.keep(client.b, [(1, 0), (2, 0)])
    client.keep(client.c, [(1, 0)])
    await asyncio.sleep(0)
    assert client.told == [("abc", 1, 0), ("ab", 2, 0)]


async def test_who_is_behind_is_laid_beside_the_others_where_it_has_come_to(version: type[ResponseStream]) -> None:
    client = Client(version, *range(1, 10))
    row = [(ledger_id, 0) for ledger_id in range(1, 10)]
    expected = [("abc", *ack) for ack in row[:5]] + [("ab", 6, 0), ("a", 7, 0)]
    assert await client.hear(row[:7], row[:6], row[:5]) == expected
    client.told.clear()
    told = await client.hear(row[7:8], row[6:], row[5:8])
    assert told == [("c", 6, 0), ("bc", 7, 0), ("abc", 8, 0), ("b", 9, 0)]
    client.told.clear()
    assert await client.hear(row[8:], [], row[8:]) == [("ac", 9, 0)]


async def test_when_a_connection_is_lost_what_the_others_said_is_not_laid_beside_that_of_the_next_one(
    version: type[ResponseStream],
) -> None:
    client = Client(version, 1, 2)
    both = [(1, 0), (2, 0)]
    assert await client.hear(both, both[:1], both[:1]) == [("abc", 1, 0), ("a", 2, 0)]
    client.arrivals.tell()
    client.told.clear()
    assert await client.hear([(1, 1)], [(1, 1)], [(1, 1)]) == [("abc", 1, 1)]


async def test_of_a_bookie_that_says_more_and_more_what_nobody_asked_nothing_is_remembered(
    version: type[ResponseStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "MOST_AHEAD", 5)
    client = Client(version, 1)
    await client.hear([(1, 0)], [(1, 0)], [(1, 0)])
    for entry_id in range(20):
        client.told.clear()
        assert await client.hear([(9, entry_id)], [], []) == [("a", 9, entry_id)]
        held = [len(heard.acks) // version.unit for heard in client.arrivals._heard.values()]
        assert max(held, default=0) <= 5
    client.told.clear()
    assert await client.hear([(1, 1)], [(1, 1)], [(1, 1)]) == [("abc", 1, 1)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.tuples(*[st.integers(0, 5)] * 3)),
        st.tuples(st.just("odd"), st.integers(0, 2)),
        st.tuples(st.just("other"), st.integers(0, 2)),
    ),
    max_size=30,
)


@pytest.mark.parametrize("version", PACKED)
@given(steps=STEPS, known=st.sets(st.integers(0, 4)))
async def test_each_acknowledgement_is_told_once_in_order_when_the_turn_ends(
    version: type[ResponseStream], steps: list[tuple[str, Any]], known: set[int]
) -> None:
    client = Client(version, *known)
    row = [(number % 5, number // 5) for number in range(200)]
    at = [0, 0, 0]
    said: list[Acks] = [[], [], []]
    told: list[Acks] = [[], [], []]
    for what, argument in steps:
        news: list[Acks] = [[], [], []]
        if what == "turn":
            for place, count in enumerate(argument):
                news[place] = row[at[place] : at[place] + count]
                at[place] += count
        elif what == "odd":  # it says what no other one does
            news[argument] = [(argument, -1)]
        elif what == "other":  # something else comes behind it
            news[argument] = row[at[argument] : at[argument] + 2]
            at[argument] += 2
        client.told.clear()
        if what == "other":
            client.keep(client.connections[argument], news[argument])
            client.arrivals.tell()
            await asyncio.sleep(0)
        else:
            await client.hear(*news)
        for place, acks in enumerate(news):
            said[place] += acks
        for names, *ack in client.told:
            for name in names:
                told["abc".index(name)].append(tuple(ack))  # type: ignore[arg-type]
        assert told == said


# --- a whole client ---


async def test_a_client_is_told_once_of_what_three_bookies_stored(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    jointly: list[int] = []
    told, told_each = AddPipeline.on_stored_at, AddPipeline.on_stored

    def tell(self: AddPipeline, places: Sequence[int], entry_ids: Sequence[int]) -> None:
        if len(places) == 3:
            jointly.extend(entry_ids)
        told(self, places, entry_ids)

    def tell_each(self: AddPipeline, entry_id: int) -> None:
        jointly.append(entry_id)
        told_each(self, entry_id)

    monkeypatch.setattr(AddPipeline, "on_stored_at", tell)
    monkeypatch.setattr(AddPipeline, "on_stored", tell_each)
    bk = await cluster.connect()
    writers = [await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) for _ in range(2 * KEPT_FROM)]
    for entry_id in range(4):
        for bookie in cluster.bookies:
            bookie.on_request = lambda _: HOLD
        futures = [writer.append_nowait(b"entry") for writer in writers]
        await eventually(lambda: all(len(bookie._held) == len(writers) for bookie in cluster.bookies))
        for bookie in cluster.bookies:
            bookie.on_request = None
            bookie.release()
        assert await asyncio.gather(*futures) == [entry_id] * len(writers)
        await eventually(lambda: not any(writer._window.open for writer in writers))
        for writer in writers:
            writer._window.check()
    assert jointly  # how many depends on what comes in one turn
    for writer in writers:
        await writer.close()


class Noted(list[Any]):
    """Notes in `order` who heard something."""

    def __init__(self, order: list[int], number: int) -> None:
        super().__init__()
        self._order = order
        self._number = number

    def append(self, what: Any) -> None:
        super().append(what)
        self._order.append(self._number)


class Writer:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_add_responses(self, _: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        for entry_id in acked:
            self.heard.append(entry_id)
        for entry_id, _code in failed:
            self.heard.append(("refused", entry_id))

    def on_add_stored(self, _: BookieId, entry_id: int) -> None:
        self.heard.append(entry_id)

    def on_channel_lost(self, _: BookieId, error: BKError) -> None:
        self.heard.append(error)


def stored(ledger_ids: Iterable[int]) -> bytes:
    return b"".join([v2.encode_response(AddResponse(Status.EOK, ledger_id, 0)) for ledger_id in ledger_ids])


@asynccontextmanager
async def kept(cluster: FakeCluster) -> AsyncIterator[tuple[wire.Connection, list[Writer], list[int]]]:
    """A connection that keeps the acknowledgements of all writers' first entries but the last one's; the writers; the
    order in which they hear something."""
    bookie = cluster.bookies[0]
    bookie.on_request = lambda _: HOLD
    client = ConnectionPool(cluster.runtime, ClientConfiguration(), cluster.driver.discovery)
    writers = [Writer() for _ in range(KEPT_FROM + 1)]
    order: list[int] = []
    for ledger_id, writer in enumerate(writers):
        writer.heard = Noted(order, ledger_id)
        channel = client.open_add_channel(bookie.id, ledger_id, writer, version=V2)  # type: ignore[arg-type]
        channel.send(v2.encode_add_request(bytes(20), DIGEST.package(ledger_id, 0, -1, 0, b"entry")))
    await eventually(lambda: len(bookie._held) == len(writers))
    (connection,) = client.connections
    connection.data_received(stored(range(KEPT_FROM)))
    yield connection, writers, order
    await client.close()


async def test_what_a_bookie_stored_before_its_connection_was_lost_counts(cluster: FakeCluster) -> None:
    async with kept(cluster) as (connection, writers, _):
        assert not any(writer.heard for writer in writers)
        connection.connection_lost(None)
        assert [writer.heard for writer in writers[:-1]] == [[0]] * KEPT_FROM
        assert [type(error) for error in writers[-1].heard] == [BookieUnavailableError]


async def test_one_alone_comes_behind_those_that_were_kept(cluster: FakeCluster) -> None:
    async with kept(cluster) as (connection, _, order):
        connection.data_received(stored([KEPT_FROM]))
        assert not order  # it is kept with them
        await asyncio.sleep(0)
        assert order == [*range(KEPT_FROM + 1)]


async def test_a_refusal_comes_behind_what_was_stored_before_it(cluster: FakeCluster) -> None:
    async with kept(cluster) as (connection, writers, order):
        assert not order
        connection.data_received(v2.encode_response(AddResponse(Status.EIO, KEPT_FROM, 0)))
        assert order == [*range(KEPT_FROM + 1)]
        assert writers[-1].heard == [("refused", 0)]
