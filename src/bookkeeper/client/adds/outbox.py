"""Where one writer's entries go: the channels to the bookies of its ensemble, and the bundles that it puts frames into.

A `Lane` is what entries of one write set have in common: the bundles (`wire.departures`) that their frames go into, and
how many did. Where every bookie gets every entry there is one lane with one bundle, whose frames are joined once and
sent to all alike. The writer has it at hand (`LaneUser.lane`): of thousands of writers, each with an entry now and
then, no cache of the processor has anything any more, and the fewer objects an entry visits, the better. Else there is
a lane for each entry id modulo E. An index whose bookie is being replaced (`EnsembleKeeper.held`) is sent nothing.

Lanes are made for the routes that the channels have now. When one of these is lost or at rest, or another index is
held, the next entry has them made anew. What was put in before goes where it was put: if that connection is gone, the
window has been told that the entry failed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...quorum.distribution import Distribution
from ...quorum.ensemble import EnsembleKeeper
from ...types import BookieId
from ..wire.add_channel import AddChannel, AddRoute, ChannelOwner, JointSink
from ..wire.departures import Bundle, Departures

NOBODY: frozenset[int] = frozenset()
"""One for all: each empty set of its own would take 200 bytes."""


class OpenChannel(Protocol):
    """How a channel to a bookie is opened."""

    def __call__(self, bookie: BookieId, *, owner: ChannelOwner) -> AddChannel: ...


class Lane:
    """See the module. `bundles` are those that its frames go into, to the bookies at these indexes of the ensemble, by
    these routes, in the bundle's order if it is one.

    Who puts a frame in sees to it that each bundle is `due` and the lane `watched`, and counts the frame.
    """

    __slots__ = ("_told", "answered", "bundles", "count", "departures", "indexes", "routes", "watched")

    def __init__(
        self,
        departures: Departures,
        bundles: tuple[Bundle, ...],
        indexes: tuple[int, ...],
        routes: tuple[AddRoute, ...],
    ) -> None:
        self.departures = departures
        self.bundles = bundles
        self.indexes = indexes
        self.routes = routes
        self.count = 0
        """Frames put in so far."""
        self.answered = 0
        """Those that all bookies have answered, and the routes were not told of."""
        self.watched = False
        """It is looked at with every tick."""
        self._told = 0  # frames that the routes were told of

    def watch(self) -> None:
        """Have it looked at, until all is answered."""
        self.watched = True
        self.departures.watched[self] = None

    def put(self, frame: bytes) -> None:
        """The same in a call, for any lane."""
        if not self.watched:
            self.watch()
        for bundle in self.bundles:
            if not bundle.due:
                self.departures.leaves(bundle)
            bundle.put(frame)
        self.count += 1

    def take_back(self, frames: Sequence[bytes]) -> None:
        """Those of these frames that were put in during this turn do not leave."""
        here = 0
        for bundle in self.bundles:
            here = bundle.take_back(frames)
        self.count -= here

    def look(self) -> None:
        self.account()
        for route in self.routes:
            if route.sent != route.answered:
                return
        self.leave()

    def leave(self) -> None:
        """No frame is put in any more, or none is under way."""
        if self.watched:
            self.watched = False
            del self.departures.watched[self]

    def account(self) -> None:
        """Tell the routes what they have not been told of."""
        count = self.count
        sent = count - self._told
        answered = self.answered
        if sent or answered:
            self._told = count
            self.answered = 0
            for route in self.routes:
                route.sent += sent
                route.answered += answered

    def count_answers(self, places: Sequence[int], count: int) -> tuple[int, ...]:
        """So many frames were answered by the bookies at these places, and the routes were not told. Returns their
        indexes."""
        for place in places:
            self.routes[place].answered += count
        return tuple([self.indexes[place] for place in places])


class LaneUser(JointSink, Protocol):
    """Who puts the frames in."""

    lane: Lane | None
    """The one for all of its entries, with one bundle; set by the outbox. None: `Outbox.put` knows where an entry
    goes."""


class Outbox:
    """See the module. A `ChannelOwner`."""

    __slots__ = (
        "_bundles", "_channels", "_departures", "_keeper", "_lanes", "_ledger_id", "_open", "_prepared",
        "_routed_without", "_user", "schedule",
    )  # fmt: skip

    def __init__(
        self,
        keeper: EnsembleKeeper,
        schedule: Distribution,
        open_channel: OpenChannel,
        departures: Departures,
        ledger_id: int,
        user: LaneUser,
    ) -> None:
        """`open_channel` opens channels of this ledger with this user as sink."""
        self._keeper = keeper
        self.schedule = schedule
        """Which indexes get which entries."""
        self._open = open_channel
        self._ledger_id = ledger_id
        self._user = user
        self._departures = departures
        self._channels: list[AddChannel] = []  # by ensemble index
        self._bundles: tuple[Bundle, ...] = ()  # of all lanes
        self._routed_without = NOBODY  # indexes that were held when the lanes were made
        self._prepared = False  # the lanes lead to the routes that there are
        self._lanes: list[Lane] = []  # by entry id modulo its length

    def put(self, entry_id: int, frame: bytes) -> None:
        """Take an entry's frame, where there is no lane for all."""
        if not self._prepared:
            self._prepare()
        self._lanes[entry_id % len(self._lanes)].put(frame)

    def _prepare(self) -> None:
        """Make the lanes."""
        self._leave()
        without = self._routed_without
        ways = {
            index: way
            for index, channel in enumerate(self._channels)
            if index not in without and (way := channel.use()) is not None
        }
        bundle = self._departures.bundle
        self._prepared = len(ways) + len(without) == len(self._channels)
        if self.schedule.write_quorum == self.schedule.ensemble_size:
            # In the order of the bookies: one bundle for all ensembles of these.
            order = sorted(ways, key=lambda index: ways[index].connection.bookie)
            together = bundle(tuple(ways[index].connection for index in order))
            self._bundles = (together,)
            self._lanes = [self._lane((together,), order, ways)]
            if self._prepared:
                self._user.lane = self._lanes[0]
            if len(ways) == len(self._channels):
                together.sinks[self._ledger_id] = self._user
        else:
            bundles = {index: bundle((way.connection,)) for index, way in ways.items()}
            self._bundles = tuple(bundles.values())
            here = [[*filter(ways.__contains__, members)] for members in self.schedule.write_sets]
            self._lanes = [self._lane(tuple(bundles[index] for index in indexes), indexes, ways) for indexes in here]

    def _lane(self, bundles: tuple[Bundle, ...], indexes: Sequence[int], ways: Mapping[int, AddRoute]) -> Lane:
        return Lane(self._departures, bundles, tuple(indexes), tuple(ways[index] for index in indexes))

    def take_back(self, frames: Mapping[int, bytes]) -> None:
        """What was put in during this turn of these frames, by entry id, does not leave, but for what was put in before
        the lanes changed in it."""
        count = len(self._lanes)
        for number, lane in enumerate(self._lanes):
            lane.take_back([frame for entry_id, frame in frames.items() if entry_id % count == number])

    def unprepared(self) -> None:
        """The lanes lead where no route is any more, or to one that must be told that it is in use again."""
        self._prepared = False
        self._leave()

    def _leave(self) -> None:
        """The user has no lane at hand, and is told the bookies' answers one by one."""
        self.account()
        for lane in self._lanes:
            lane.leave()
        self._user.lane = None
        for bundle in self._bundles:
            if bundle.sinks.get(self._ledger_id) is self._user:
                del bundle.sinks[self._ledger_id]

    def account(self) -> None:
        """Tell the routes how many frames went to each since they were told last, and what all have answered."""
        for lane in self._lanes:
            lane.account()

    def writable(self) -> bool:
        """No connection in use has its buffer above the high-water mark."""
        if not self._departures.blocked:
            return True
        held = self._keeper.held
        return all(channel.writable for index, channel in enumerate(self._channels) if index not in held)

    def send_again(self, index: int, frame: bytes) -> None:
        """Send one frame to one index now."""
        self._channels[index].send(frame)

    def open_channels(self) -> None:
        """Have a channel for each index to the bookie that is there now."""
        self._leave()  # what was pushed so far is the old ensemble's
        self._lanes = []
        kept = {channel.bookie: channel for channel in self._channels}
        channels = []
        for bookie in self._keeper.ensemble:
            channel = kept.pop(bookie, None)
            channels.append(channel or self._open(bookie, owner=self))
        for channel in kept.values():
            channel.close()
        self._channels = channels
        self.unprepared()
        self.route()

    def route(self) -> None:
        """What is put in from here on goes to those indexes that are sent to now."""
        held = frozenset(self._keeper.held) if self._keeper.held else NOBODY
        if held != self._routed_without:
            self._routed_without = held
            self.unprepared()

    def close(self) -> None:
        """Nothing is put in any more. Idempotent."""
        self._leave()
        self._lanes, self._bundles = [], ()
        for channel in self._channels:
            channel.close()
