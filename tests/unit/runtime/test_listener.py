"""The listener of the real network."""

from __future__ import annotations

import asyncio
import contextlib
import errno
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


async def test_a_failure_to_accept_is_over_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(network, "ACCEPT_PAUSE_SECONDS", 0.01)
    listener = await RealNetwork().listen("127.0.0.1", 0, Greeter)
    assert isinstance(listener, network.Listener)
    accept = listener._sock.accept
    fails = [True]

    class Full:
        def accept(self) -> object:
            if fails:
                fails.pop()
                raise OSError(errno.EMFILE, "Too many open files")
            return accept()

        def __getattr__(self, name: str) -> object:
            return getattr(sock, name)

    sock = listener._sock
    monkeypatch.setattr(listener, "_sock", Full())
    with socket.create_connection(("127.0.0.1", listener.port)):
        await until(lambda: Greeter.made == 1)
    assert not fails
    assert "Too many open files" in caplog.text
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
