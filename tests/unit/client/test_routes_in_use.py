"""A tick looks at the routes on which adds are under way, and at no other; which of them are overdue
(`client/wire/add_channel.py`)."""

from __future__ import annotations

import math
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

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


class Patience:
    """What a route must say, told simply: every add with the tick whose end saw it first."""

    def __init__(self) -> None:
        self.unseen = 0
        self.unanswered: list[int] = []
        self.deadline = math.inf
        self.answers: list[int | None] = []

    def answer(self) -> None:
        if self.unanswered:
            self.answers.append(self.unanswered.pop(0))
        else:
            self.unseen -= 1
            self.answers.append(None)

    def look(self, tick: int) -> float:
        oldest = min([tick if seen is None else seen for seen in self.answers], default=math.inf)
        self.answers = []
        self.unanswered += [tick] * self.unseen
        self.unseen = 0
        return oldest

    def overdue(self, tick: int, moving_since: float, timeout: float) -> bool:
        if not self.unanswered:
            self.deadline = math.inf
        elif self.unanswered[0] >= moving_since or self.deadline == math.inf:
            self.deadline = tick + timeout
        return tick >= self.deadline


@given(
    st.lists(
        st.one_of(st.tuples(st.just("send"), st.integers(1, 3)), st.tuples(st.just("answer"), st.integers(1, 3)))
        | st.tuples(st.just("tick"), st.integers(0, 4)),
        max_size=40,
    ),
    st.integers(1, 3),
)
@example([("send", 1), ("tick", 4)] * 2 + [("send", 1), ("answer", 2), ("tick", 4), ("tick", 4)], 2)
def test_a_route_is_overdue_when_nothing_moved_for_so_many_ticks(steps: list[tuple[str, int]], timeout: int) -> None:
    connection = Connection()
    routed = cast(RoutedConnection, connection)
    channel = AddChannel(BOOKIE, 7, cast(AddSink, Sink()), 2, lambda channel: AddRoute(routed, channel, 7))
    route, patience = channel.use(), Patience()
    assert route is not None
    tick = 0
    for what, count in steps:
        if what == "send":
            channel.send(b"adds", count)
            patience.unseen += count
        elif what == "answer":
            for _ in range(min(count, route.sent - route.answered)):
                route.deliver([0], [])
                patience.answer()
        else:
            oldest = route.look(tick)
            assert oldest == patience.look(tick)
            assert route.waits_since == (patience.unanswered[0] if patience.unanswered else math.inf)
            moving_since = min(oldest, tick - count if count < 4 else math.inf)  # what others on the connection did
            late = route.waits_since < tick
            overdue = late and route.overdue(tick + 1, moving_since, timeout)
            assert overdue == patience.overdue(tick + 1, moving_since, timeout)
            if overdue:
                return
            tick += 1
