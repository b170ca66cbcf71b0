"""The listener of the real network."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket

import pytest

from bookkeeper.runtime import network
from bookkeeper.runtime.network import RealNetwork
from tests.support.waiting import until


class Greeter(asyncio.Protocol):
    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Greeter.made += 1
        assert isinstance(transport, asyncio.Transport)
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"
        transport.write(b"hello")


@pytest.fixture(autouse=True)
def _from_zero() -> None:
    Greeter.made = 0


async def test_many_connections_at_once_are_accepted_in_more_than_one_turn() -> None:
    listener = await RealNetwork().listen("127.0.0.1", 0, Greeter)
    with contextlib.ExitStack() as open_:
        socks = [open_.enter_context(socket.create_connection(("127.0.0.1", listener.port))) for _ in range(40)]
        seen = set()
        while Greeter.made < len(socks):
            await asyncio.sleep(0)
            seen.add(Greeter.made)
        assert len(seen) > 5
        loop = asyncio.get_running_loop()
        for sock in socks:
            sock.setblocking(False)
            assert await loop.sock_recv(sock, 10) == b"hello"
    await listener.close()
    await listener.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", listener.port))


async def test_a_protocol_that_cannot_be_made_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    broken = [True]

    def factory() -> Greeter:
        if broken:
            broken.pop()
            raise RuntimeError("a bug")
        return Greeter()

    listener = await RealNetwork().listen("127.0.0.1", 0, factory)
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", listener.port)) as first:
        first.setblocking(False)
        assert await loop.sock_recv(first, 10) == b"", "it is closed"
    with socket.create_connection(("127.0.0.1", listener.port)) as second:
        second.setblocking(False)
        assert await loop.sock_recv(second, 10) == b"hello"
    assert "a bug" in caplog.text
    await listener.close()


class Failing:
    """A listening socket whose next calls of `accept` fail with these numbers."""

    def __init__(self, sock: socket.socket, *failures: int) -> None:
        self._sock = sock
        self.failures = list(failures)

    def accept(self) -> object:
        if self.failures:
            number = self.failures.pop(0)
            raise OSError(number, os.strerror(number))
        return self._sock.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


async def failing(monkeypatch: pytest.MonkeyPatch, *failures: int) -> tuple[network.Listener, Failing]:
    listener = await RealNetwork().listen("127.0.0.1", 0, Greeter)
    assert isinstance(listener, network.Listener)
    sock = Failing(listener._sock, *failures)
    monkeypatch.setattr(listener, "_sock", sock)
    return listener, sock


@pytest.mark.parametrize("number", network.EXHAUSTED)
async def test_what_the_machine_has_run_out_of_may_be_there_after_a_pause(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(network, "ACCEPT_PAUSE_SECONDS", 0.01)
    listener, sock = await failing(monkeypatch, number)
    with socket.create_connection(("127.0.0.1", listener.port)):
        await until(lambda: Greeter.made == 1)
    assert not sock.failures
    assert os.strerror(number) in caplog.text
    await listener.close()


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO, errno.ETIMEDOUT, errno.EPERM])
async def test_a_connection_that_ends_before_it_is_accepted_holds_up_no_other(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "ACCEPT_PAUSE_SECONDS", 3600.0)
    listener, sock = await failing(monkeypatch, number, number)
    with socket.create_connection(("127.0.0.1", listener.port)):
        await until(lambda: Greeter.made == 1)
    assert not sock.failures
    await listener.close()


async def test_after_a_connection_from_a_peer_that_rests_the_next_one_waits() -> None:
    asked: list[str] = []
    rest = [0.0, 3600.0]

    def pause_after(address: str) -> float:
        asked.append(address)
        return rest[len(asked) - 1]

    listener = await RealNetwork().listen("127.0.0.1", 0, Greeter, pause_after=pause_after)
    with contextlib.ExitStack() as open_:
        for _ in range(3):
            open_.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        await until(lambda: Greeter.made == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert asked == ["127.0.0.1"] * 2
        assert Greeter.made == 2, "it stays in the backlog"
        await listener.close()
