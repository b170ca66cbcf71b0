"""When a client's frames leave: once a turn of the loop, whoever pushed them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bookkeeper.client.wire.departures import Departures


class Box:
    """A writer's outbox, which hands its frame to one connection."""

    def __init__(self, name: str, wire: Wire, log: list[str]) -> None:
        self._name = name
        self._wire = wire
        self._log = log
        self.broken = False

    def gather(self) -> None:
        if self.broken:
            raise ValueError("this writer is broken")
        self._wire.send(self._name)

    def left(self) -> None:
        self._log.append(f"{self._name} left")


class Wire:
    """A connection: gathers as `Connection.send` does."""

    def __init__(self, departures: Departures, log: list[str]) -> None:
        self._departures = departures
        self._log = log
        self._out: list[str] = []

    def send(self, frame: str) -> None:
        if not self._out:
            self._departures.connection(self._write)
        self._out.append(frame)

    def _write(self) -> None:
        self._log.append("write " + "".join(self._out))
        self._out.clear()


async def test_frames_of_all_writers_leave_in_one_write_before_the_writers_hear_of_it() -> None:
    log: list[str] = []
    departures = Departures()
    wire = Wire(departures, log)
    departures.blocked.add(wire)
    for name in "abc":
        departures.sender(Box(name, wire, log))
    assert log == []  # nothing before the loop turns
    await asyncio.sleep(0)
    assert log == ["write abc", "a left", "b left", "c left"]


async def test_writers_do_not_hear_of_it_while_all_connections_take_what_they_are_given() -> None:
    log: list[str] = []
    departures = Departures()
    wire = Wire(departures, log)
    departures.sender(Box("a", wire, log))
    await asyncio.sleep(0)
    assert log == ["write a"]


async def test_what_is_sent_beside_writers_leaves_with_their_frames() -> None:
    log: list[str] = []
    departures = Departures()
    wire = Wire(departures, log)
    departures.blocked.add(wire)
    wire.send("r")
    departures.sender(Box("a", wire, log))
    await asyncio.sleep(0)
    assert log == ["write ra", "a left"]


async def test_what_is_sent_when_writers_hear_that_frames_left_goes_in_the_next_turn() -> None:
    log: list[str] = []
    departures = Departures()
    wire = Wire(departures, log)
    departures.blocked.add(wire)

    class Again(Box):
        def left(self) -> None:
            super().left()
            wire.send("x")

    departures.sender(Again("a", wire, log))
    await asyncio.sleep(0)
    assert log == ["write a", "a left"]
    await asyncio.sleep(0)
    assert log == ["write a", "a left", "write x"]


async def test_an_error_of_one_writer_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    departures = Departures()
    wire = Wire(departures, log)
    departures.blocked.add(wire)
    broken = Box("a", wire, log)
    broken.broken = True
    departures.sender(broken)
    departures.sender(Box("b", wire, log))
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(0)
    assert log == ["write b", "a left", "b left"]
    assert "this writer is broken" in caplog.text
