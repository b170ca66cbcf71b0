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
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from ...protocol.frames import PackedAcks, ResponseStream
from ...runtime import Runtime
from .add_channel import rows, short_rows
from .departures import Departures, Sending

KEPT_FROM = 16
"""Acknowledgements that came together, at least, for them to be kept until the end of the turn."""


class Hearing(Sending, Protocol):
    """A connection, as far as it hears."""

    responses: ResponseStream

    def tell(self, acks: PackedAcks) -> None:
        """Tell the writers of acknowledgements of this bookie."""

    def failed_on_answer(self, error: Exception) -> None:
        """A writer failed on what it was told."""


class Arrivals:
    """See the module. One per client."""

    __slots__ = ("_departures", "_heard", "_runtime", "_scheduled")

    def __init__(self, runtime: Runtime, departures: Departures) -> None:
        self._runtime = runtime
        self._departures = departures
        self._heard: dict[Hearing, PackedAcks] = {}
        self._scheduled = False

    def worth_keeping(self, responses: ResponseStream, acks: PackedAcks) -> bool:
        """Whether these of a stream, at least one, are to be told at the end of the turn."""
        return len(acks) >= KEPT_FROM * responses.unit or self._runtime.buggify("acknowledgements are kept", 0.3)

    def keep(self, connection: Hearing, acks: PackedAcks) -> None:
        """Tell of these at the end of the turn."""
        before = self._heard.get(connection)
        self._heard[connection] = acks if before is None else before + acks
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

    def _tell_together(self, heard: dict[Hearing, PackedAcks]) -> int:
        """Tell of what all have in common from the start on; returns how much of each that is."""
        connections = tuple(sorted(heard, key=attrgetter("bookie")))
        sink_of = self._departures.sinks(connections)
        if sink_of is None:
            return 0
        responses = connections[0].responses
        common = common_start(list(heard.values()), responses.unit)
        if not common:
            return 0
        at = 0
        try:
            for ledger_id, entry_ids in _rows(responses, common):
                begin, at = at, at + len(entry_ids) * responses.unit
                sink = sink_of(ledger_id)
                if sink is not None:
                    sink.on_stored_everywhere(entry_ids)
                else:
                    for connection in connections:
                        connection.tell(common[begin:at])
        except Exception as error:
            for connection in connections:
                connection.failed_on_answer(error)
        return len(common)


def _rows(responses: ResponseStream, acks: PackedAcks) -> Iterator[tuple[int, list[int]]]:
    ((first, _),) = responses.unpack(acks[: responses.unit])
    ((last, _),) = responses.unpack(acks[-responses.unit :])
    return rows([*responses.unpack(acks)]) if first == last else short_rows(responses.unpack(acks))


def common_start(packed: Sequence[PackedAcks], unit: int) -> PackedAcks:
    """What all these, two at least, have in common from the start on."""
    first, *others = packed
    end = min(map(len, packed)) // unit
    for other in others:
        if first[: end * unit] != other[: end * unit]:
            alike = 0  # so many are
            while alike < end:
                middle = (alike + end + 1) // 2
                part = slice(alike * unit, middle * unit)
                if first[part] == other[part]:
                    alike = middle
                else:
                    end = middle - 1
    return first[: end * unit]
