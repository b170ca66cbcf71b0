"""What kazoo's thread waits for and reads, and what is known of the server by it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from bookkeeper.metadata.zookeeper.session import keepalive
from bookkeeper.metadata.zookeeper.session.keepalive import KeepAliveHandler, Line

PATIENCE = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_what_has_arrived_is_read_at_once_and_given_piece_by_piece(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    line = Line(ours)
    assert not line.pending()
    theirs.sendall(b"abcdefgh")
    assert line.recv(3) == b"abc"
    assert line.pending() == 5
    theirs.sendall(b"ij")
    assert line.recv(4) == b"defg"
    assert line.recv(4) == b"h"  # what was read ahead first
    assert line.recv(4) == b"ij"
    assert line.fileno() == ours.fileno()
    monkeypatch.setattr(keepalive, "READ_AT_ONCE", 4)
    theirs.sendall(b"abcdefgh")
    assert line.recv(6) == b"abcdef"  # more than is read at once
    theirs.close()
    assert line.recv(9) == b"gh"
    assert line.recv(9) == b""


def test_what_tls_has_decrypted_counts_too(ends: tuple[socket.socket, socket.socket]) -> None:
    class Decrypted:
        def pending(self) -> int:
            return 7

        def fileno(self) -> int:
            return ends[0].fileno()

    line = Line(Decrypted())
    assert line.pending() == 7
    assert KeepAliveHandler(Clock(), PATIENCE).select([line], [], [], 10) == ([line], [], [])


def test_select_tells_of_both_directions_and_of_time(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    handler = KeepAliveHandler(Clock(), PATIENCE)
    line = Line(ours)
    assert handler.select([line], [], [], 0.001) == ([], [], [])
    assert handler.select([], [line], [], 5.0) == ([], [line], [])
    assert handler.write_limit == 5.0
    theirs.sendall(b"x")
    assert handler.select([line, theirs], [], [], None) == ([line], [], [])
    with pytest.raises(ValueError, match="-1 seconds"):
        handler.select([line], [], [], -1)
    theirs.close()
    assert handler.select([line], [], [], None) == ([line], [], [])
    ours.close()
    with pytest.raises(ValueError, match="closed socket"):
        handler.select([line], [], [], None)


def test_a_request_is_waited_for_beside_what_was_read_ahead(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    handler = KeepAliveHandler(Clock(), PATIENCE)
    wakes, waker = handler.create_socket_pair()
    line = Line(ours)
    theirs.sendall(b"ab")
    line.recv(1)
    assert handler.select([line, wakes], [], [], 60) == ([line], [], [])
    waker.send(b"\0")
    assert handler.select([line, wakes], [], [], 60) == ([wakes, line], [], [])
    for each in (wakes, waker):
        each.close()


def test_the_server_has_heard_what_was_sent_before_its_answer_came_not_what_was_before_it_is_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    clock = Clock()
    handler = KeepAliveHandler(clock, PATIENCE)
    line = Line(ours)

    def send(at: float) -> None:
        clock.now = at
        assert handler.select([], [line], [], 5.0)[1]

    send(101)
    send(102)
    theirs.sendall(b"two answers")
    clock.now = 103
    assert handler.select([line], [], [], 1.0)[0] == [line]
    assert handler.heard == 101
    assert line.recv(3) == b"two"
    send(104)
    clock.now = 105
    assert handler.select([line], [], [], 1.0)[0] == [line]  # read ahead: it came before the request went
    assert handler.heard == 101
    assert line.recv(20) == b" answers"
    theirs.sendall(b"third")
    assert handler.select([line], [], [], 1.0)[0] == [line]
    assert handler.heard == 104


def test_a_new_connection_is_waited_for_no_longer_than_patience(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    limits: list[float] = []

    def connect(_: object, address: str, *, timeout: float) -> socket.socket:
        assert address == "there"
        limits.append(timeout)
        return ours

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", connect)
    handler = KeepAliveHandler(Clock(), 0.001)
    wakes, waker = handler.create_socket_pair()
    line = handler.create_connection("there", timeout=600.0)
    handler.create_connection("there", timeout=0.0005)
    handler.create_connection("there")
    assert limits == [0.001, 0.0005, 0.001]
    assert handler.select([line], [], [], 600.0) == ([], [], [])
    theirs.sendall(b"x")
    assert handler.select([line], [], [], 600.0)[0] == [line]
    assert line.recv(1) == b"x"
    assert handler.select([line], [], [], 600.0) == ([], [], [])  # half of an answer is none
    waker.send(b"\0")
    assert handler.select([line, wakes], [], [], 600.0)[0] == [wakes]  # in service: as long as kazoo likes
    later = threading.Timer(0.05, theirs.sendall, [b"y"])
    later.start()
    assert handler.select([line], [], [], 600.0)[0] == [line]
    later.join()
    for each in (wakes, waker):
        each.close()


def test_results_are_told_at_once_and_by_the_thread_that_has_them() -> None:
    handler = KeepAliveHandler(Clock(), PATIENCE)
    handler.start()
    try:
        heard: list[Any] = []
        result = handler.async_result()
        result.rawlink(lambda done: heard.append(done.get_nowait() / 0))  # logged, and keeps nothing from the others
        result.rawlink(lambda done: heard.append(done.get_nowait()))
        assert not heard
        result.set(5)
        assert heard == [5]
        result.rawlink(lambda done: heard.append(done.get_nowait() + 1))
        assert heard[-1] == 6
    finally:
        handler.stop()
