"""Where one writer's entries go: the channels to the bookies of its ensemble, and the bundles that it puts frames into.

A `Lane` is what entries of one write set have in common: the bundles (`wire.departures`) that their frames go into, and
how many did. Where every bookie gets every entry there is one lane with one bundle, whose frames are joined once and
sent to all alike, and who has a frame puts it there without a look at the lane (`Outbox.put`); else a lane for each
entry id modulo E. An index whose bookie is being replaced (`EnsembleKeeper.held`) is sent nothing.

Lanes are made for the routes that the channels have now. When one of these is lost or at rest, or another index is
held, the next entry has them made anew. What was put in before goes where it was put: if that connection is gone, the
window has been told that the entry failed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Protocol

from ...quorum.distribution import Distribution
from ...quorum.ensemble import EnsembleKeeper
from ...types import BookieId
from ..wire.add_channel import AddChannel, ChannelOwner, JointSink
from ..wire.departures import Bundle, Departures

NOBODY: frozenset[int] = frozenset()
"""One for all: each empty set of its own would take 200 bytes."""

_NO_TURN = -1


class OpenChannel(Protocol):
    """How a channel to a bookie is opened."""

    def __call__(self, bookie: BookieId, *, owner: ChannelOwner) -> AddChannel: ...


class Lane:
    """See the module."""

    __slots__ = ("count", "indexes", "puts")

    def __init__(self, puts: tuple[Callable[[bytes], None], ...], indexes: tuple[int, ...]) -> None:
        self.puts = puts
        """What takes a frame: once for each bundle."""
        self.indexes = indexes
        """Of the ensemble, where its frames go to."""
        self.count = 0
        """Frames put in that the channels have not been told of."""


class Outbox:
    """See the module. A `ChannelOwner`.

    Who puts a frame in has called `begin_turn` when `turn` was not that of the departures, and adds to `bytes`, and to
    `count` or that of the lane.
    """

    __slots__ = (
        "_bundles", "_channels", "_keeper", "_ledger_id", "_open", "_prepared", "_routed_without", "_sink",
        "answered", "bytes", "count", "departures", "lanes", "put", "schedule", "turn",
    )  # fmt: skip

    def __init__(
        self,
        keeper: EnsembleKeeper,
        schedule: Distribution,
        open_channel: OpenChannel,
        departures: Departures,
        ledger_id: int,
        sink: JointSink,
    ) -> None:
        """`open_channel` opens channels of this ledger with this sink."""
        self._keeper = keeper
        self.schedule = schedule
        """Which indexes get which entries."""
        self._open = open_channel
        self._ledger_id = ledger_id
        self._sink = sink
        self.departures = departures
        self._channels: list[AddChannel] = []  # by ensemble index
        self._bundles: tuple[Bundle, ...] = ()  # of all lanes
        self._routed_without = NOBODY  # indexes that were held when the lanes were made
        self._prepared = False  # the lanes lead to the routes that there are
        self.lanes: list[Lane] = []
        """By entry id modulo its length. For the caller's inner loop."""
        self.put: Callable[[bytes], None] | None = None
        """Takes a frame, where there is one lane with one bundle. None: the lanes do."""
        self.count = 0
        """Frames that it was given, and the lane does not know of."""
        self.answered = 0
        """Frames that all bookies alike have answered, and the channels were not told of."""
        self.turn = _NO_TURN
        """The turn of the departures in which frames were last put in."""
        self.bytes = 0
        """Of frames put in during that turn."""

    @property
    def in_turn(self) -> bool:
        """Frames were put in during this turn."""
        return self.turn == self.departures.turn

    def begin_turn(self) -> None:
        """A frame is about to be put in, the first one of this turn, or since something has changed."""
        departures = self.departures
        self.turn = departures.turn
        self.bytes = 0
        if not self._prepared:
            self._prepare()
        for bundle in self._bundles:
            if not bundle.due:
                departures.leaves(bundle)

    def _prepare(self) -> None:
        """Make the lanes."""
        self.account()
        without = self._routed_without
        ways = {
            index: way
            for index, channel in enumerate(self._channels)
            if index not in without and (way := channel.use()) is not None
        }
        bundle = self.departures.bundle
        if self.schedule.write_quorum == self.schedule.ensemble_size:
            together = bundle(tuple(sorted(ways.values(), key=attrgetter("bookie"))))  # one for all their orders
            self._bundles = (together,)
            self.lanes = [Lane((together.put,), tuple(ways))]
            self.put = together.put
            if len(ways) == len(self._channels):
                together.sinks[self._ledger_id] = self._sink
        else:
            bundles = {index: bundle((way,)) for index, way in ways.items()}
            self._bundles = tuple(bundles.values()) or (bundle(()),)  # one at least: it makes the turn end
            self.lanes = [
                Lane(tuple(bundles[index].put for index in here), here)
                for here in (tuple(filter(bundles.__contains__, members)) for members in self.schedule.write_sets)
            ]
        self._prepared = len(ways) + len(without) == len(self._channels)

    def take_back(self, latest: Iterable[tuple[int, bytes]]) -> None:
        """What was put in during this turn does not leave, but for what was put in before the lanes changed in it.

        `latest`: id and frame of entries, those put in last first.
        """
        if not self.in_turn:
            return
        for entry_id, frame in latest:
            if not self.bytes:
                return
            self.bytes -= len(frame)
            self.lanes[entry_id % len(self.lanes)].count -= 1  # below 0 while `count` has them
            for bundle in self._bundles:
                bundle.take_back(frame)

    def unprepared(self) -> None:
        """The lanes lead where no route is any more, or to one that must be told that it is in use again."""
        self._prepared = False
        self.turn = _NO_TURN
        self._leave_sinks()

    def _leave_sinks(self) -> None:
        """The bookies' answers are told one by one."""
        for bundle in self._bundles:
            if bundle.sinks.get(self._ledger_id) is self._sink:
                del bundle.sinks[self._ledger_id]

    def account(self) -> None:
        """Tell the channels how many frames went to each since they were told last."""
        if self.count:
            self.lanes[0].count += self.count
            self.count = 0
        for lane in self.lanes:
            count, lane.count = lane.count, 0
            if count:
                for index in lane.indexes:
                    self._channels[index].count(count)
        if self.answered:
            for channel in self._channels:
                channel.count_answers(self.answered)
            self.answered = 0

    def writable(self) -> bool:
        """No connection in use has its buffer above the high-water mark."""
        if not self.departures.blocked:
            return True
        held = self._keeper.held
        return all(channel.writable for index, channel in enumerate(self._channels) if index not in held)

    def send_again(self, index: int, frame: bytes) -> None:
        """Send one frame to one index now."""
        self._channels[index].send(frame)

    def open_channels(self) -> None:
        """Have a channel for each index to the bookie that is there now."""
        self.account()  # what was pushed so far is the old ensemble's
        self.lanes, self.put = [], None
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
        self.account()
        self._leave_sinks()
        self.lanes, self._bundles, self.put = [], (), None
        for channel in self._channels:
            channel.close()
