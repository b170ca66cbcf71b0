"""When acknowledgements reach the writers: those of all bookies together, at the end of a turn of the loop.

Theory of operation

A client that is busy with many ledgers gets, in one turn of the loop, the same acknowledgements from each bookie of an
ensemble: all were sent the same bundle of entries (`departures`), and answer in the order in which they were asked. To
take them bookie by bookie is to look for each ledger again for each bookie, in memory that no cache of the processor
has any more. So the acknowledgements of a turn are kept until it ends. What all connections of a bundle have in common
from the start on is then told to the writers once, as stored everywhere; the rest as it came.

Each connection's acknowledgements are told in the order in which they came, before anything else that comes from it or
becomes of it. Not kept are a few acknowledgements, and those of few ledgers, which cost next to nothing. Where there
are more bookies than an ensemble has, each connection has those of several bundles, and nothing is in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

from ...protocol.frames import Acks
from ...runtime import Runtime
from .add_channel import are_of_many
from .departures import Departures, Sending

KEPT_FROM = 16
"""Acknowledgements that came together, at least, for them to be kept until the end of the turn."""


class Hearing(Sending, Protocol):
    """A connection, as far as it hears."""

    def tell(self, acks: Acks) -> None:
        """Tell the writers of acknowledgements of this bookie."""

    def failed_on_answer(self, error: Exception) -> None:
        """A writer failed on what it was told."""


class Arrivals:
    """See the module. One per client."""

    __slots__ = ("_departures", "_heard", "_runtime", "_scheduled")

    def __init__(self, runtime: Runtime, departures: Departures) -> None:
        self._runtime = runtime
        self._departures = departures
        self._heard: dict[Hearing, Acks] = {}
        self._scheduled = False

    def worth_keeping(self, acks: Acks) -> bool:
        """Whether these, at least one, are to be told at the end of the turn."""
        if len(acks) >= KEPT_FROM:
            return are_of_many(acks)
        return self._runtime.buggify("acknowledgements are kept", 0.3)

    def keep(self, connection: Hearing, acks: Acks) -> None:
        """Tell of these at the end of the turn."""
        before = self._heard.get(connection)
        if before is None:
            self._heard[connection] = acks
        else:
            before += acks
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._scheduled = False
        self.tell()

    def tell(self) -> None:
        """Tell of all that were kept, now."""
        heard = self._heard
        if not heard:
            return
        self._heard = {}
        told = self._tell_together(heard) if len(heard) > 1 else 0
        for connection, acks in heard.items():
            if told < len(acks):
                connection.tell(acks[told:] if told else acks)

    def _tell_together(self, heard: dict[Hearing, Acks]) -> int:
        """Tell of what all have in common from the start on; returns how many that are."""
        connections = tuple(sorted(heard, key=attrgetter("bookie")))
        sink_of = self._departures.sinks(connections)
        if sink_of is None:
            return 0
        common = common_start(list(heard.values()))
        if not common:
            return 0
        try:
            for ledger_id, entry_id in common:
                sink = sink_of(ledger_id)
                if sink is not None:
                    sink.on_stored_everywhere(entry_id)
                else:
                    for connection in connections:
                        connection.tell([(ledger_id, entry_id)])
        except Exception as error:
            for connection in connections:
                connection.failed_on_answer(error)
        return len(common)


def common_start(lists: Sequence[Acks]) -> Acks:
    """What all these lists, two at least, have in common from the start on."""
    first, *others = lists
    end = min(map(len, lists))
    for other in others:
        if first[:end] != other[:end]:
            alike = 0  # up to here they are
            while alike < end:
                middle = (alike + end + 1) // 2
                if first[alike:middle] == other[alike:middle]:
                    alike = middle
                else:
                    end = middle - 1
    return first[:end]
