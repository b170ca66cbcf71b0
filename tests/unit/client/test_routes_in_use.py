"""A tick looks at the routes on which adds are under way, and at no other (`client/wire/add_channel.py`)."""

from __future__ import annotations

from typing import cast

from bookkeeper.client.wire.add_channel import AddChannel, AddRoute, AddSink, RoutedConnection
from bookkeeper.errors import BKError
from bookkeeper.types import BookieId

BOOKIE = BookieId("bookie:3181")


class Connection:
    """Remembers which routes it was told of."""

    bookie = BOOKIE
    writable = True

    def __init__(self) -> None:
        self.used: list[AddRoute] = []

    def send(self, frames: bytes) -> None:
        pass

    def uses_route(self, route: AddRoute) -> None:
        self.used.append(route)


class Sink:
    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        pass

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        self.on_add_responses(bookie, [entry_id], [])

    def on_channel_lost(self, bookie: BookieId, error: BKError) -> None:
        raise error


def test_a_route_is_in_use_from_its_first_frame_until_two_ticks_after_its_last_answer() -> None:
    connection = Connection()
    routed = cast(RoutedConnection, connection)
    channel = AddChannel(BOOKIE, 7, cast(AddSink, Sink()), 2, lambda channel: AddRoute(routed, channel, 7))
    assert connection.used == []  # open, and nothing sent
    channel.send(b"one")
    channel.send(b"two")
    (route,) = connection.used  # told once
    assert not route.at_rest
    route.look(1)
    route.deliver([0], [])
    route.look(2)
    assert not route.at_rest  # one is not answered
    route.deliver([1], [])
    assert not route.at_rest  # no tick has seen the answer
    route.look(3)
    assert not route.at_rest  # more may come
    route.look(4)
    assert route.at_rest
    route.rest()  # as the connection does
    channel.send(b"three")
    assert connection.used == [route, route]
    assert not route.at_rest
