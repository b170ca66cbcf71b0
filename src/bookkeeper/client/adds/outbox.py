"""What one writer's entries wait in until the loop turns, and the channels that they leave on.

Frames are gathered in boxes: one for each index of the ensemble, or, where every bookie gets every entry, one for all,
whose frames are joined once and sent to all alike. `targets` says which boxes an entry goes into. An index whose bookie
is being replaced (`EnsembleKeeper.held`) is sent nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ...quorum.distribution import Distribution
from ...quorum.ensemble import EnsembleKeeper
from ...types import BookieId
from ..wire.add_channel import AddChannel
from ..wire.departures import Departures

NOBODY: frozenset[int] = frozenset()
"""One for all: each empty set of its own would take 200 bytes."""


class Outbox:
    """See the module. A `Sender`. What puts a frame into the boxes adds to `bytes` and sees to it that they will
    be emptied."""

    __slots__ = (
        "_blocked", "_boxes", "_channels", "_departures", "_keeper", "_open", "_routed_without", "_schedule",
        "bytes", "flushing", "targets",
    )  # fmt: skip

    def __init__(
        self,
        keeper: EnsembleKeeper,
        schedule: Distribution,
        open_channel: Callable[[BookieId], AddChannel],
        departures: Departures,
        blocked: Callable[[], None],
    ) -> None:
        """`blocked()` is called when frames have left while a connection, of whatever writer, has its buffer above the
        high-water mark."""
        self._keeper = keeper
        self._schedule = schedule
        self._open = open_channel
        self._blocked = blocked
        self._departures = departures
        self._channels: list[AddChannel] = []  # by ensemble index
        self._boxes: list[list[bytes]] = []  # empty: closed, or not open yet
        self._routed_without = NOBODY  # indexes that were held when the boxes were made
        self.targets: list[tuple[Callable[[bytes], None], ...]] = []
        """By entry id modulo E: `append` of each box that it goes into. For the caller's inner loop."""
        self.bytes = 0
        """Of frames put in during this turn of the loop."""
        self.flushing = False
        """The frames leave at the end of this turn."""

    def flush_soon(self) -> None:
        """Send when the loop turns."""
        self.flushing = True
        self._departures.sender(self)

    def flush(self) -> None:
        """Send what was put in."""
        self.gather()
        self.left()

    def left(self) -> None:
        """What was put in was written, or will be soon."""
        if self._boxes and self._departures.blocked:
            self._blocked()

    def gather(self) -> None:
        """Hand what was put in to the connections."""
        self.flushing = False
        self.bytes = 0
        if not self._boxes:
            return
        shared = len(self._boxes) == 1
        data, count = _emptied(self._boxes[0]) if shared else (b"", 0)
        routed_without, held = self._routed_without, self._keeper.held
        for index, channel in enumerate(self._channels):
            if index in routed_without or index in held:
                continue
            if not shared:
                data, count = _emptied(self._boxes[index])
            if count:
                channel.send(data, count)

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
        self.flush()  # what was pushed so far is the old ensemble's
        kept = {channel.bookie: channel for channel in self._channels}
        channels = []
        for bookie in self._keeper.ensemble:
            channel = kept.pop(bookie, None)
            channels.append(channel or self._open(bookie))
        for channel in kept.values():
            channel.close()
        self._channels = channels
        self.route()

    def route(self) -> None:
        """What is put in from here on goes to those indexes that are sent to now."""
        schedule = self._schedule
        held = frozenset(self._keeper.held) if self._keeper.held else NOBODY
        if held == self._routed_without and self._boxes:
            return
        self.flush()
        self._routed_without = held
        if schedule.write_quorum == schedule.ensemble_size:
            self._boxes = [[]]
            self.targets = [(self._boxes[0].append,)] * schedule.ensemble_size
        else:
            self._boxes = [[] for _ in range(schedule.ensemble_size)]
            self.targets = [
                tuple(self._boxes[index].append for index in write_set if index not in held)
                for write_set in schedule.write_sets
            ]

    def close(self) -> None:
        """Nothing is sent any more, also nothing of this turn. Idempotent."""
        self._boxes = []
        for channel in self._channels:
            channel.close()


def _emptied(box: list[bytes]) -> tuple[bytes, int]:
    """The frames of a box in one piece, and how many they were; the box is empty afterwards."""
    count = len(box)
    frames = box[0] if count == 1 else b"".join(box)
    box.clear()
    return frames, count
