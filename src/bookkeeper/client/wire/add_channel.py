"""The path of one writer's adds to one bookie.

Theory of operation

- A writer has one `AddChannel` per bookie. It asks it for the way (`use`) and puts its frames into the bundle of all
  writers with these connections (`departures`); the route is told how many they were with each tick, and when someone
  wants to know (`ChannelOwner.account`). What is sent again, and who sends little, goes through `send`. Nothing is
  called back from inside either.
- Answers come back per socket read: one call to the sink with all of them.
- A channel reaches its connection through an `AddRoute`, which counts frames sent and answers received. A bookie
  gives every add exactly one answer, so the difference is what is still unanswered. At each tick, when owners have told
  what they know (`departures`), the count is remembered; where one remembered is not reached for the timeout, and
  nothing else moved either (`progress`), an answer is overdue. Where nothing is under way nothing is looked at. This is
  the one timeout of adds. It costs one addition per add, where a table of entry ids would cost two dict operations. A
  single answer that is lost while later ones arrive is noticed when the later ones stop; TCP loses none.
- When the connection is lost or an answer is overdue the sink is told once that everything unanswered has failed, and
  the channel lets go of its route. The next `send` takes a new one, on a new connection. A route that still has
  answers to come stays on its connection and drops them, so an old answer is never taken for a new one. A connection
  that served only this route ends with the timeout: a bookie that hangs for long costs two connections, not one per
  timeout.
- When the client is closed every open channel is told, also one without unanswered adds: its writer may wait for
  something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ...errors import BKError, RequestTimeoutError
from ...protocol.frames import Acks
from ...types import BookieId

LOOKED_AT = 4
"""Acks that are looked at to see whether each is of another ledger."""

AddAnswers = dict[int, tuple[list[int], list[tuple[int, int]]]]
"""By ledger: entries stored, entries refused with their result codes."""


class AddSink(Protocol):
    """Receives the answers to the adds of one writer. Called from the loop, never from inside `AddChannel.send`."""

    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        """All answers that one socket read brought for this writer: ids stored; (id, result code) refused."""

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        """`on_add_responses` of one stored entry, as each ledger has where thousands are written."""

    def on_channel_lost(self, bookie: BookieId, error: BKError) -> None:
        """Everything sent on this channel and not answered has failed."""

    def on_writable(self, bookie: BookieId) -> None:
        """The channel became writable again."""


class JointSink(AddSink, Protocol):
    """One that may be told of what several bookies of its ensemble have stored (`wire.arrivals`)."""

    def on_stored(self, entry_id: int) -> None:
        """All of them have stored this entry."""

    def on_stored_at(self, places: Sequence[int], entry_ids: Sequence[int]) -> None:
        """Those at these places, by their order in the bundle, have stored these entries, one at least of each."""


class ChannelOwner(Protocol):
    """Who puts frames into a channel's way, past the channel, and counts them for it."""

    def account(self) -> None:
        """Tell the route what it has not been told of: frames sent, and answers that came past it."""

    def unprepared(self) -> None:
        """Call `AddChannel.use` before the next frame: its way has changed, or is not in use any more."""


class RoutedConnection(Protocol):
    """A connection, as seen by the routes on it."""

    bookie: BookieId
    writable: bool

    def send(self, frames: bytes) -> None: ...

    def count_failures(self, code: int, count: int = 1) -> None:
        """So many requests were not answered well."""

    def uses_route(self, route: AddRoute) -> None:
        """Something is sent on it: look at it with every tick until it is at rest."""

    def drop_route(self, route: AddRoute) -> None:
        """A route is not needed any more."""

    def give_up_route(self, route: AddRoute) -> None:
        """The answers of a route without a channel are overdue."""


class AddRoute:
    """One ledger's adds on one connection."""

    __slots__ = (
        "_answered_before", "_channel", "_later", "_marked", "_moved", "_owner", "_patient_since", "answered",
        "connection", "in_use", "ledger_id", "sent", "sink", "waits_since",
    )  # fmt: skip

    def __init__(self, connection: RoutedConnection, channel: AddChannel, ledger_id: int) -> None:
        self.connection = connection
        self._channel: AddChannel | None = channel
        self._owner = channel.owner
        self.sink: AddSink | None = channel.sink
        """The channel's. None: no one listens any more; answers still to come are dropped."""
        self.ledger_id = ledger_id
        self.sent = 0
        """Frames that it was told of; the owner may know of more (`ChannelOwner.account`)."""
        self.answered = 0
        """Answers; no more than what was sent, in all."""
        self.in_use = False
        """The connection looks at it with every tick."""
        self._answered_before = 0  # `answered` at the last look
        self._moved = False  # that look saw new answers
        self.waits_since: float = math.inf
        """The tick whose end saw the oldest add that was unanswered at the last look; infinite when there was none."""
        self._marked = 0  # frames sent by then
        self._later: list[tuple[int, int]] = []  # the same of later ticks, ascending, while the first is not reached
        self._patient_since = 0  # the tick at which that oldest add began to wait for the bookie

    def deliver(self, acked: list[int], failed: list[tuple[int, int]]) -> None:
        """The answers of one socket read."""
        self.answered += len(acked) + len(failed)
        if self.sink is not None:
            self.sink.on_add_responses(self.connection.bookie, acked, failed)
        else:
            self.dropped()

    def dropped(self) -> None:
        """Answers came that no one listens to."""
        if self.answered >= self.sent:
            self.connection.drop_route(self)

    def look(self, tick: int) -> float:
        """Tick `tick` is over: remember what was sent. Returns when the oldest of what was answered since the last
        look was sent."""
        answered = self.answered
        oldest = math.inf
        self._moved = answered != self._answered_before
        if self._moved:
            self._answered_before = answered
            oldest = min(self.waits_since, tick)
        if self._marked > answered or self._later:
            self._look_closer(tick)
        elif self.sent > answered and self.sink is not None:
            self.waits_since = tick
            self._marked = self.sent
            self._patient_since = tick + 1
        else:
            self.waits_since = math.inf
        return oldest

    def _look_closer(self, tick: int) -> None:
        """`look` where something waits, or did, for longer than a tick."""
        later = self._later
        if (
            self.sent > self.answered
            and self.sink is not None
            and (later[-1][1] if later else self._marked) < self.sent
        ):
            later.append((tick, self.sent))
        while self._marked <= self.answered and later:
            self.waits_since, self._marked = later.pop(0)
            self._patient_since = tick + 1
        if self._marked <= self.answered:
            self.waits_since = math.inf

    def overdue(self, tick: int, moving_since: float, timeout: float) -> bool:
        """Whether for `timeout` ticks nothing has moved that was sent before its oldest unanswered add.

        What was sent since `moving_since` has not waited for the bookie. To be asked with each look when something
        waits since before it.
        """
        if self.waits_since >= moving_since:
            self._patient_since = tick
        return self.waits_since < tick and tick >= self._patient_since + timeout

    def expire(self) -> None:
        """It is overdue: fail the channel. Without a channel it is only reported."""
        self.waits_since, self._marked = math.inf, self.answered
        self._later.clear()
        self.connection.count_failures(RequestTimeoutError.code, self.sent - self.answered)
        self.detach(RequestTimeoutError(ledger_id=self.ledger_id, bookie=self.connection.bookie))
        self.connection.give_up_route(self)

    def use(self) -> None:
        """Something will be sent on it."""
        if not self.in_use:
            self.in_use = True
            self.connection.uses_route(self)

    @property
    def at_rest(self) -> bool:
        """All was answered a tick ago, and nothing was sent since: until something is a tick changes nothing.

        Who appends now and then has nothing under way at many a tick: to let go and take up again costs more than a
        look."""
        if self._moved or self.waits_since < math.inf or not self.sent == self.answered == self._answered_before:
            return False
        if self._owner is not None:
            self._owner.account()
        return self.sent == self.answered

    def rest(self) -> None:
        """The connection looks at it no more, until it is used again. Only when `at_rest`."""
        self.in_use = False
        if self._owner is not None:
            self._owner.unprepared()

    def part(self) -> AddChannel | None:
        """Leave the channel, if there is one still."""
        if self._owner is not None:
            self._owner.account()
        channel, self._channel, self._owner, self.sink = self._channel, None, None, None
        return channel

    def detach(self, error: BKError | None) -> None:
        """Part from the channel; with an error and unanswered adds, tell its sink."""
        channel = self.part()
        if channel is None:
            return
        if self.answered >= self.sent:
            self.connection.drop_route(self)
            error = None
        channel.lose(error)


class AddChannel:
    """Sends adds of one writer to one bookie. Make one with `BookieClient.open_add_channel`.

    Frames are handed to `send`; or, by an owner, to the connection of what `use` gives, and counted there.
    """

    __slots__ = ("_bind", "_on_closed", "_route", "bookie", "ledger_id", "owner", "sink", "version")

    def __init__(
        self,
        bookie: BookieId,
        ledger_id: int,
        sink: AddSink,
        version: int,
        bind: Callable[[AddChannel], AddRoute | None],
        on_closed: Callable[[AddChannel], object] = lambda _: None,
        owner: ChannelOwner | None = None,
    ) -> None:
        self.bookie = bookie
        self.ledger_id = ledger_id
        self.sink = sink
        self.version = version
        self._bind = bind
        self.owner = owner
        self._route: AddRoute | None = None
        self._on_closed: Callable[[AddChannel], object] | None = on_closed  # None: it is closed

    def send(self, frames: bytes, count: int = 1) -> None:
        """Hand over complete add frames of this channel's protocol version, `count` of them in one piece."""
        route = self.use()
        if route is not None:
            route.connection.send(frames)
            route.sent += count

    def use(self) -> AddRoute | None:
        """The route whose connection to hand frames to, until the owner is `unprepared`; None when the client is
        closed. Who hands them over past this channel counts them in `AddRoute.sent`."""
        route = self._route
        if route is None:
            route = self._route = self._bind(self)
            if route is None:
                return None
        route.use()
        return route

    @property
    def writable(self) -> bool:
        """False while the connection's outgoing buffer is above its high water mark; `AddSink.on_writable` ends
        that."""
        route = self._route
        return route is None or route.connection.writable

    def lose(self, error: BKError | None) -> None:
        """The route is gone; with an error, so is everything unanswered."""
        self._route = None
        if self.owner is not None:
            self.owner.unprepared()
        if error is not None and self._on_closed is not None:
            self.sink.on_channel_lost(self.bookie, error)

    def end(self, error: BKError) -> None:
        """The client is closed: tell the sink, whatever is unanswered."""
        if self._route is not None:
            self._route.part()
        self.lose(error)

    def close(self) -> None:
        """Stop listening: the sink hears nothing more. Frames already sent stay sent. Idempotent."""
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is None:
            return
        on_closed(self)
        if self._route is not None:
            self._route.detach(None)


def are_of_many(acks: Acks) -> bool:
    """Whether the first of these, at least one, are of as many ledgers: to look for rows would take longer."""
    first = acks[:LOOKED_AT]
    return len({ledger_id for ledger_id, _ in first}) == len(first)


def rows(acks: Acks) -> Iterator[tuple[int, list[int]]]:
    """Stored entries, at least one, as a ledger and those that stand together of it: bookies answer by ledger."""
    ledgers, entries = zip(*acks, strict=True)
    current = ledgers[0]
    if ledgers.count(current) == len(ledgers):
        yield current, list(entries)
    else:
        yield from short_rows(iter(acks))


def short_rows(acks: Iterator[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """The same, of acks that are read while they are used: that thousands of them were there at a time would be seen
    by Python's collector."""
    current, entry_id = next(acks)
    acked = [entry_id]
    for ledger_id, entry_id in acks:
        if ledger_id != current:
            yield current, acked
            current, acked = ledger_id, [entry_id]
        else:
            acked.append(entry_id)
    yield current, acked


def by_ledger(acks: Acks) -> AddAnswers:
    """Sort stored entries by ledger, to add what was refused."""
    adds: AddAnswers = {}
    for ledger_id, acked in rows(acks) if acks else ():
        if (answers := adds.get(ledger_id)) is None:
            adds[ledger_id] = (acked, [])
        else:
            answers[0].extend(acked)
    return adds
