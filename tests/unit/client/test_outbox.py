"""What a writer's frames go through, and what its routes are told of them (`client/adds/outbox.py`)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.client.adds.outbox import Lane, Outbox
from bookkeeper.client.wire.add_channel import AddChannel, AddRoute, ChannelOwner
from bookkeeper.client.wire.departures import Departures
from bookkeeper.errors import BKError, BookieUnavailableError
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.ensemble import EnsembleKeeper, EnsemblePolicy
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.types import BookieId

BOOKIES = [BookieId(f"b{number}:3181") for number in range(5)]


class Connection:
    """Takes frames at once; remembers its routes in use."""

    writable = True

    def __init__(self, bookie: BookieId) -> None:
        self.bookie = bookie
        self.got: list[bytes] = []
        self.used: list[AddRoute] = []
        self.dropped: list[AddRoute] = []

    def send(self, frames: bytes) -> None:
        self.got.append(frames)

    def uses_route(self, route: AddRoute) -> None:
        self.used.append(route)

    def drop_route(self, route: AddRoute) -> None:
        self.dropped.append(route)


class Sink:
    def __init__(self) -> None:
        self.lost: list[BookieId] = []
        self.lane: Lane | None = None

    def on_channel_lost(self, bookie: BookieId, error: BKError) -> None:
        self.lost.append(bookie)


class Client:
    """Connections to bookies, and writers that share them."""

    def __init__(self) -> None:
        self.departures = Departures()
        self.connections = {bookie: Connection(bookie) for bookie in BOOKIES}

    def writer(self, ledger_id: int, quorums: tuple[int, int, int] = (3, 3, 2), first: int = 0) -> Writer:
        return Writer(self, ledger_id, quorums, BOOKIES[first : first + quorums[0]])


class Writer:
    """An outbox, and what a pipeline does with it."""

    def __init__(self, client: Client, ledger_id: int, quorums: tuple[int, int, int], ensemble: list[BookieId]) -> None:
        self._client = client
        self.ledger_id = ledger_id
        self.sink = Sink()
        self.routes: dict[BookieId, AddRoute] = {}
        distribution = Distribution(*quorums)
        self.keeper = EnsembleKeeper(PendingWindow(distribution), ensemble, EnsemblePolicy())
        self.outbox = Outbox(self.keeper, distribution, self._open, client.departures, ledger_id, self.sink)  # type: ignore[arg-type]
        self.outbox.open_channels()
        self.pushed: dict[int, bytes] = {}

    def _open(self, bookie: BookieId, *, owner: ChannelOwner) -> AddChannel:
        return AddChannel(bookie, self.ledger_id, self.sink, 2, self._bind, owner=owner)  # type: ignore[arg-type]

    def _bind(self, channel: AddChannel) -> AddRoute:
        route = AddRoute(self._client.connections[channel.bookie], channel, self.ledger_id)  # type: ignore[arg-type]
        self.routes[channel.bookie] = route
        return route

    def push(self, *frames: bytes) -> None:
        for frame in frames:
            lane = self.sink.lane
            if lane is None:
                self.outbox.put(len(self.pushed), frame)
            else:
                lane.put(frame)
            self.pushed[len(self.pushed)] = frame

    def sent(self) -> list[int]:
        self.outbox.account()
        return [self.routes[bookie].sent for bookie in self.keeper.ensemble]


async def turn() -> None:
    await asyncio.sleep(0)


async def test_writers_with_the_same_bookies_in_any_order_share_what_each_of_these_is_sent() -> None:
    client = Client()
    one, two = client.writer(1), Writer(client, 2, (3, 3, 2), [BOOKIES[2], BOOKIES[0], BOOKIES[1]])
    other = client.writer(3, first=1)
    one.push(b"a")
    two.push(b"b")
    other.push(b"x")
    one.push(b"c")
    assert all(not connection.got for connection in client.connections.values())
    await turn()
    got = [client.connections[bookie].got for bookie in BOOKIES]
    assert got == [[b"abc"], [b"abc", b"x"], [b"abc", b"x"], [b"x"], []]
    assert (one.sent(), two.sent(), other.sent()) == ([2, 2, 2], [1, 1, 1], [1, 1, 1])
    assert one.sent() == [2, 2, 2]  # counted once
    assert one.sink.lane is not None
    assert not client.departures.due


async def test_striped_entries_go_to_their_write_sets_in_order() -> None:
    client = Client()
    one, two = client.writer(1, (3, 2, 2)), client.writer(2, (3, 2, 2), first=1)
    one.push(b"0", b"1", b"2", b"3")
    two.push(b"x")
    await turn()
    got = [b"".join(client.connections[bookie].got) for bookie in BOOKIES[:4]]
    assert got == [b"023", b"013x", b"12x", b""]
    assert one.sent() == [3, 3, 2]
    assert two.outbox.account() is None
    assert [two.routes[bookie].sent for bookie in BOOKIES[1:3]] == [1, 1]


async def test_held_indexes_are_sent_nothing_until_they_are_held_no_more() -> None:
    for quorums in ((3, 3, 2), (3, 2, 2)):
        client = Client()
        writer = client.writer(1, quorums)
        writer.push(b"a")
        writer.keeper.held[1] = None
        writer.outbox.route()
        writer.push(b"b", b"c")  # in the same turn
        writer.keeper.held.clear()
        writer.outbox.route()
        writer.push(b"d")
        await turn()
        assert b"".join(client.connections[BOOKIES[1]].got) == b"ad"
        assert writer.sent()[1] == 2


async def test_with_all_indexes_held_nothing_is_sent_nor_counted() -> None:
    for quorums in ((3, 3, 2), (3, 2, 2)):
        client = Client()
        writer = client.writer(1, quorums)
        writer.push(b"a")
        await turn()
        sent = writer.sent()
        writer.keeper.held.update(dict.fromkeys(range(3)))
        writer.outbox.route()
        writer.push(b"b", b"c")
        await turn()
        assert writer.sent() == sent
        assert not any(b"b" in b"".join(connection.got) for connection in client.connections.values())


async def test_a_route_that_was_lost_is_not_used_again_in_the_same_turn() -> None:
    client = Client()
    writer = client.writer(1)
    writer.push(b"a")
    before = client.connections[BOOKIES[0]]
    client.connections[BOOKIES[0]] = Connection(BOOKIES[0])
    writer.routes[BOOKIES[0]].detach(BookieUnavailableError())
    assert writer.sink.lost == [BOOKIES[0]]  # what has not left is unanswered, too
    assert before.dropped == []
    writer.push(b"b")
    await turn()
    assert before.got == [b"a"]
    assert client.connections[BOOKIES[0]].got == [b"b"]
    assert client.connections[BOOKIES[1]].got == [b"a", b"b"]
    assert writer.sent() == [1, 2, 2]


async def test_answers_of_all_bookies_alike_are_counted_once_and_told_to_the_routes_with_each_tick() -> None:
    client = Client()
    writer = client.writer(1)
    writer.push(b"a", b"b")
    await turn()
    assert writer.sink.lane is not None
    writer.sink.lane.answered += 2
    client.departures.look()
    for route in writer.routes.values():
        assert (route.sent, route.answered) == (2, 2)
    assert writer.sink.lane.answered == 0


async def test_answers_of_some_bookies_of_a_bundle_are_told_to_their_routes_whatever_the_order_of_the_ensemble() -> (
    None
):
    client = Client()
    writer = Writer(client, 1, (3, 3, 2), [BOOKIES[2], BOOKIES[0], BOOKIES[1]])
    writer.push(b"a", b"b", b"c")
    await turn()
    assert writer.sink.lane is not None
    assert writer.sink.lane.count_answers((0, 2), 2) == (1, 0)  # places in the bundle, indexes of the ensemble
    writer.sink.lane.answered += 1
    client.departures.look()
    assert [writer.routes[bookie].answered for bookie in BOOKIES[:3]] == [3, 1, 3]
    writer.outbox.account()
    assert [writer.routes[bookie].answered for bookie in BOOKIES[:3]] == [3, 1, 3]  # once


async def test_a_writer_is_told_by_all_bookies_together_while_its_entries_go_to_exactly_these() -> None:
    client = Client()
    three = client.departures.bundle(tuple(client.connections[bookie] for bookie in BOOKIES[:3]))
    writer, other = client.writer(1), client.writer(2, (3, 2, 2))
    assert not three.sinks  # nothing was sent
    for each in (writer, other):
        each.push(b"a")
    assert three.sinks == {1: writer.sink}  # of the other, each bookie gets some entries
    writer.outbox.unprepared()
    assert not three.sinks
    writer.push(b"b")
    assert three.sinks == {1: writer.sink}
    client.connections[BOOKIES[0]] = Connection(BOOKIES[0])
    writer.routes[BOOKIES[0]].detach(BookieUnavailableError())
    assert not three.sinks
    writer.push(b"c")  # to the new connection
    assert not three.sinks
    again = client.departures.bundle(tuple(client.connections[bookie] for bookie in BOOKIES[:3]))
    assert again.sinks == {1: writer.sink}
    writer.outbox.close()
    assert not again.sinks


async def test_a_writer_of_which_an_index_is_sent_nothing_is_told_by_each_bookie() -> None:
    client = Client()
    writer = client.writer(1)
    writer.keeper.held[1] = None
    writer.outbox.route()
    writer.push(b"a")
    (bundle,) = writer.outbox._bundles
    assert not bundle.sinks


async def test_a_route_at_rest_is_looked_at_again_when_the_next_entry_comes() -> None:
    client = Client()
    writer = client.writer(1)
    writer.push(b"a")
    route = writer.routes[BOOKIES[1]]
    used = client.connections[BOOKIES[1]].used
    assert used == [route]
    client.departures.look()
    route.look(1)
    assert not route.at_rest
    route.answered += 1
    for tick in (2, 3):
        client.departures.look()
        route.look(tick)
    writer.push(b"b")
    assert not route.at_rest  # one more has been put in, of which the route was not told
    assert route.sent == 2
    route.answered += 1
    client.departures.look()
    route.look(4)
    assert not route.at_rest  # it was answered just now
    route.look(5)
    assert route.at_rest
    route.rest()
    assert used == [route]
    writer.push(b"c")
    assert used == [route, route]


async def test_what_was_put_in_this_turn_can_be_taken_back() -> None:
    for quorums in ((3, 3, 2), (3, 2, 2)):
        client = Client()
        writer, other = client.writer(1, quorums), client.writer(2, quorums)
        writer.push(b"earlier")
        await turn()
        before = writer.sent()
        writer.outbox.take_back(writer.pushed)  # nothing of this turn
        shared = b"x"
        other.push(shared)
        writer.push(bytes(bytearray(shared)) + b"y", b"y")
        writer.outbox.take_back(writer.pushed)
        writer.outbox.close()
        await turn()
        assert writer.sent() == before
        got = b"".join(b"".join(connection.got) for connection in client.connections.values())
        assert (got.count(b"x"), got.count(b"y")) == (quorums[1], 0)


async def test_what_is_taken_back_is_of_this_turn_however_many_there_were_in_another() -> None:
    client = Client()
    writer, other = client.writer(1), client.writer(2)
    other.push(b"a")
    other.outbox.take_back({0: b"never put in"})
    await turn()
    writer.push(b"b")
    for _ in range(2):  # the second time there is nothing left of it
        writer.outbox.take_back(writer.pushed)
    other.push(b"c")
    await turn()
    assert client.connections[BOOKIES[0]].got == [b"a", b"c"]
    assert (writer.sent(), other.sent()) == ([0, 0, 0], [2, 2, 2])


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_lanes_that_no_frame_is_put_in_any_more_are_looked_at_by_no_tick(quorums: tuple[int, int, int]) -> None:
    client = Client()
    writer = client.writer(1, quorums)
    writer.push(b"a", b"b", b"c")
    assert client.departures.watched
    writer.outbox.open_channels()  # as when a bookie was replaced; nothing was answered
    assert not client.departures.watched
    assert writer.sent() == [3 * quorums[1] // quorums[0]] * quorums[0]
    for channel in writer.outbox._channels:
        channel._route, channel._bind = None, lambda channel: None  # the client is closed
    writer.push(b"d", b"e")
    assert len(client.departures.watched) <= 1  # each entry has lanes of its own


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_without_a_client_nothing_is_sent_and_every_entry_asks_again(quorums: tuple[int, int, int]) -> None:
    client = Client()
    writer = client.writer(1, quorums)
    asked: list[AddChannel] = []
    for channel in writer.outbox._channels:
        channel._bind = asked.append  # type: ignore[assignment]
    for number in (1, 2):
        writer.push(b"a")
        assert len(asked) == 3 * number
        await turn()
    assert not any(connection.got for connection in client.connections.values())
