"""When a client's frames leave: once a turn of the loop, whoever pushed them."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from bookkeeper.client.wire.departures import Bundle, Departures
from bookkeeper.types import BookieId


class Wire:
    """A connection: gathers as `Connection.send` does."""

    bookie = BookieId("bookie:3181")

    def __init__(self, departures: Departures, log: list[str], name: str = "") -> None:
        self._departures = departures
        self._log = log
        self._name = name
        self._out: list[bytes] = []

    def send(self, frames: bytes) -> None:
        if not self._out:
            self._departures.connection(self._write)
        self._out.append(frames)

    def _write(self) -> None:
        self._log.append(self._name + "write " + b" ".join(self._out).decode())
        self._out.clear()


class BrokenWire(Wire):
    def send(self, frames: bytes) -> None:
        raise ValueError("this connection is broken")


def push(departures: Departures, bundle: Bundle, *frames: bytes) -> None:
    """As a writer does."""
    for frame in frames:
        if not bundle.due:
            departures.leaves(bundle)
        bundle.put(frame)


async def test_frames_of_all_writers_leave_in_one_write_of_each_connection() -> None:
    log: list[str] = []
    departures = Departures()
    wires = (Wire(departures, log, "1 "), Wire(departures, log, "2 "))
    for frame in (b"a", b"b", b"c"):
        push(departures, departures.bundle(wires), frame)
    assert departures.due
    assert log == []  # nothing before the loop turns
    await asyncio.sleep(0)
    assert log == ["1 write abc", "2 write abc"]
    assert not departures.due
    await asyncio.sleep(0)
    assert len(log) == 2  # once
    push(departures, departures.bundle(wires), b"d")
    await asyncio.sleep(0)
    assert log[2:] == ["1 write d", "2 write d"]


async def test_what_is_sent_beside_bundles_leaves_with_their_frames() -> None:
    log: list[str] = []
    departures = Departures()
    both, other = Wire(departures, log), Wire(departures, log, "other ")
    both.send(b"r")
    push(departures, departures.bundle((both,)), b"a")
    push(departures, departures.bundle((both, other)), b"b")
    await asyncio.sleep(0)
    assert log == ["write r a b", "other write b"]


async def test_writers_with_the_same_connections_have_one_bundle_as_long_as_any_has() -> None:
    departures = Departures()
    wires = [Wire(departures, []) for _ in range(3)]
    one, two = departures.bundle((wires[0], wires[1])), departures.bundle((wires[0], wires[2]))
    assert departures.bundle((wires[0], wires[1])) is one
    assert two is not one
    assert len(departures._bundles) == 2
    del one
    gc.collect()
    assert list(departures._bundles.values()) == [two]


async def test_a_bundle_that_is_let_go_of_leaves_nevertheless() -> None:
    log: list[str] = []
    departures = Departures()
    push(departures, departures.bundle((Wire(departures, log),)), b"a")
    gc.collect()
    await asyncio.sleep(0)
    assert log == ["write a"]


async def test_an_error_of_one_connection_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    departures = Departures()
    push(departures, departures.bundle((BrokenWire(departures, log),)), b"a")
    push(departures, departures.bundle((Wire(departures, log),)), b"b")
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(0)
    assert log == ["write b"]
    assert "this connection is broken" in caplog.text
