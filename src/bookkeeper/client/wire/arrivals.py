"""When acknowledgements reach the writers: those of all bookies together, at the end of a turn of the loop.

Theory of operation

A client that is busy gets the same acknowledgements from each bookie of an ensemble: all were sent the same bundle of
entries (`departures`), and answer in the order in which they were asked. To take them bookie by bookie is to read each
of them several times, and to look for each ledger again for each bookie, in memory that no cache of the processor has
any more. So acknowledgements stay bytes (`frames.PackedAcks`) until the turn ends, and the connections of a bundle are
laid side by side, as what they are: one row, of which each has come so far. What is news is told once for all bookies
that have it.

    turn 1   a  1 2 3 4 5 6 7       1 to 5: by a, b and c       6: by a and b       7: by a
             b  1 2 3 4 5 6
             c  1 2 3 4 5
    turn 2   a                8     6: by c       7: by b and c       8: by a, b and c       9: by b
             b              7 8 9
             c            6 7 8

Connections that do not answer in one order, or that have entries of other bundles too, as where there are more bookies
than an ensemble has, cannot be laid side by side. Then each one's are told by themselves, and the next turn begins a
new row. Each connection's acknowledgements are told in the order in which they came, before anything else that comes
from it or becomes of it. A few that come alone are told at once, and end the row: so what one connection is ahead of
another is no more than the writers have under way; of a bookie that acknowledges what nobody sent, `MOST_AHEAD`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Protocol

from ...protocol.frames import PackedAcks, ResponseStream
from ...runtime import Runtime
from .add_channel import LOOKED_AT, are_of_many, rows, short_rows
from .departures import Bundle, Departures, Sending

KEPT_FROM = 16
"""Acknowledgements that came together, at least, for them to be kept until the end of the turn."""

MOST_AHEAD = 65_536
"""Acknowledgements by which one connection may be ahead of another; beyond, a new row begins."""


class Hearing(Sending, Protocol):
    """A connection, as far as it hears."""

    responses: ResponseStream

    def tell(self, acks: PackedAcks) -> None:
        """Tell the writers of acknowledgements of this bookie."""

    def failed_on_answer(self, error: Exception) -> None:
        """A writer failed on what it was told."""


class _Heard:
    """What one connection has said since the row began, from where all have come to on."""

    __slots__ = ("acks", "told")

    def __init__(self) -> None:
        self.acks: PackedAcks = ()
        self.told = 0
        """How much of it the writers know."""

    def all_have(self, size: int) -> None:
        """The writers know it all, and all connections have come so far."""
        self.acks = self.acks[size:]
        self.told = len(self.acks)


class Arrivals:
    """See the module. One per client."""

    __slots__ = ("_departures", "_heard", "_runtime", "_scheduled")

    def __init__(self, runtime: Runtime, departures: Departures) -> None:
        self._runtime = runtime
        self._departures = departures
        self._heard: dict[Hearing, _Heard] = {}
        self._scheduled = False

    def worth_keeping(self, responses: ResponseStream, acks: PackedAcks) -> bool:
        """Whether these of a stream, at least one, are to be told at the end of the turn."""
        return (
            len(acks) >= KEPT_FROM * responses.unit
            or self._scheduled
            or self._runtime.buggify("acknowledgements are kept", 0.3)
        )

    def keep(self, connection: Hearing, acks: PackedAcks) -> None:
        """Tell of these at the end of the turn."""
        heard = self._heard.get(connection)
        if heard is None:
            heard = self._heard[connection] = _Heard()
        heard.acks = heard.acks + acks if heard.acks else acks
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._scheduled = False
        if not self._heard:
            return
        connections = sorted(self._heard, key=attrgetter("bookie"))
        bundle = self._departures.found(tuple(connections))
        if bundle is None or not self._tell_together(bundle, connections):
            self.tell()

    def tell(self) -> None:
        """Tell of all that is kept, now. What comes next begins a new row."""
        if not self._heard:
            return
        before, self._heard = self._heard, {}
        for connection, heard in before.items():
            if heard.told < len(heard.acks):
                connection.tell(heard.acks[heard.told :])

    def _tell_together(self, bundle: Bundle, connections: Sequence[Hearing]) -> bool:
        """Tell of all that is kept; False if it is not one row."""
        all_heard = [self._heard[connection] for connection in connections]
        row = max((heard.acks for heard in all_heard), key=len)
        if any(row[: len(heard.acks)] != heard.acks for heard in all_heard):
            return False
        parts = list(_parts(all_heard))
        least = min(len(heard.acks) for heard in all_heard)
        for heard in all_heard:
            heard.all_have(least)
        if len(row) - least > MOST_AHEAD * connections[0].responses.unit:
            self._heard = {}
        for begin, end, places in parts:
            self._tell_some(bundle, connections, places, row[begin:end])
        return True

    def _tell_some(
        self, bundle: Bundle, connections: Sequence[Hearing], places: Sequence[int], acks: PackedAcks
    ) -> None:
        """Tell of what the connections at these places have."""
        responses = connections[0].responses
        try:
            if len(places) == len(connections) and are_of_many([*responses.unpack(acks[: LOOKED_AT * responses.unit])]):
                _tell_each(bundle, connections, acks)
            else:
                _tell_rows(bundle, connections, places, acks)
        except Exception as error:
            for place in places:
                connections[place].failed_on_answer(error)


def _tell_each(bundle: Bundle, connections: Sequence[Hearing], acks: PackedAcks) -> None:
    """What all have, one by one: each is of another ledger."""
    responses = connections[0].responses
    sink_of = bundle.sinks.get
    for number, (ledger_id, entry_id) in enumerate(responses.unpack(acks)):
        sink = sink_of(ledger_id)
        if sink is not None:
            sink.on_stored(entry_id)
        else:
            begin = number * responses.unit
            for connection in connections:
                connection.tell(acks[begin : begin + responses.unit])


def _tell_rows(bundle: Bundle, connections: Sequence[Hearing], places: Sequence[int], acks: PackedAcks) -> None:
    """What those at these places have, by what stands together of a ledger."""
    responses = connections[0].responses
    sink_of = bundle.sinks.get
    at = 0
    for ledger_id, entry_ids in _rows(responses, acks):
        begin, at = at, at + len(entry_ids) * responses.unit
        sink = sink_of(ledger_id)
        if sink is not None:
            sink.on_stored_at(places, entry_ids)
        else:
            for place in places:
                connections[place].tell(acks[begin:at])


def _parts(all_heard: Sequence[_Heard]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The parts of a row that are news: begin, end, and the places of those that have said it now."""
    cuts = sorted({size for heard in all_heard for size in (heard.told, len(heard.acks))})
    for begin, end in pairwise(cuts):
        places = tuple(place for place, heard in enumerate(all_heard) if heard.told <= begin and end <= len(heard.acks))
        if places:
            yield begin, end, places


def _rows(responses: ResponseStream, acks: PackedAcks) -> Iterator[tuple[int, list[int]]]:
    ((first, _),) = responses.unpack(acks[: responses.unit])
    ((last, _),) = responses.unpack(acks[-responses.unit :])
    return rows([*responses.unpack(acks)]) if first == last else short_rows(responses.unpack(acks))
