"""HTTP/1.1: what comes over a connection, and which endpoint it is for (spec autorecovery-admin §9.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.admin.http import connection, server
from bookkeeper.admin.http.messages import FORM, Reply, Request, as_json, request_of, text
from bookkeeper.admin.http.routes import Routes
from bookkeeper.admin.http.server import AdminServer
from bookkeeper.runtime.real import RealRuntime
from tests.support.http import ask


async def echo(request: Request) -> Reply:
    return as_json({"method": request.method, "parameters": dict(request.parameters), "body": request.body.decode()})


async def fails(_request: Request) -> Reply:
    raise KeyError("nobody expects this")


async def bodies(request: Request) -> Reply:
    return as_json(sorted(request.json_object()))


@pytest.fixture
async def serving() -> AsyncIterator[AdminServer]:
    found = AdminServer(RealRuntime(), Routes({"/a/echo": echo, "/fails": fails, "/bodies": bodies}))
    await found.start("127.0.0.1", 0)
    yield found
    await found.close()


async def test_what_java_answers_where_there_is_nothing(serving: AdminServer) -> None:
    found = await ask(serving.port, "/nothing")
    assert (found.status, found.text) == (404, "<html><body><h1>Resource not found</h1></body></html>")
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    for method in ("HEAD", "OPTIONS", "PATCH"):
        found = await ask(serving.port, "/a/echo", method)
        assert (found.status, found.text, found.headers["allow"]) == (405, "", "DELETE,POST,GET,PUT")
    found = await ask(serving.port, "/fails")
    assert (found.status, found.text) == (500, "Internal Server Error")
    assert (await ask(serving.port, "/bodies", "PUT", "[1]")).status == 400
    assert (await ask(serving.port, "/bodies", "PUT", "{")).status == 400


@pytest.mark.parametrize("path", ["/a/echo", "//a/echo/", "/a//echo", "/a/echo?x=1&y=&x=2"])
async def test_slashes_do_not_matter_and_the_last_parameter_counts(serving: AdminServer, path: str) -> None:
    found = (await ask(serving.port, path)).json
    assert found["parameters"] == ({"x": "2", "y": ""} if "?" in path else {})


async def test_a_form_gives_parameters_and_stays_the_body(serving: AdminServer) -> None:
    """As `curl -d` sends it, JSON too."""
    found = (await ask(serving.port, "/a/echo", "PUT", "enabled=true")).json
    assert found == {"method": "PUT", "parameters": {"enabled": "true"}, "body": "enabled=true"}
    assert (await ask(serving.port, "/bodies", "PUT", '{"b": 1, "a": "x=y"}')).json == ["a", "b"]
    assert (await ask(serving.port, "/a/echo", "PUT", "x=1", "application/json")).json["parameters"] == {}


async def talk(port: int, *pieces: bytes) -> bytes:
    """All that comes back for these bytes, until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


async def test_several_requests_on_one_connection_one_after_the_other(serving: AdminServer) -> None:
    first = b"PUT /a/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    last = b"GET /a/echo?n=2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for pieces in ((first, last), (first + last,), tuple(bytes([byte]) for byte in first + last)):
        answer = await talk(serving.port, *pieces)
        assert answer.count(b"HTTP/1.1 200") == 2
        assert answer.index(b'"abc"') < answer.index(b'"n" : "2"')


async def test_a_body_that_is_announced_is_asked_for(serving: AdminServer) -> None:
    head = b"PUT /a/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(head)
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20) == b"HTTP/1.1 100 \r\n\r\n"
    writer.write(b"abc")
    assert b'"abc"' in await asyncio.wait_for(reader.read(), 20)
    writer.close()


async def test_what_is_no_request_or_too_large_is_answered_and_ends_the_connection(
    serving: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await talk(serving.port, b"\x00\x01\x02 nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")
    monkeypatch.setattr(connection, "MOST_BODY_BYTES", 10)
    large = b"PUT /a/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n" + bytes(11)
    assert (await talk(serving.port, large)).startswith(b"HTTP/1.1 413")
    headers = b"GET /a/echo HTTP/1.1\r\nHost: x\r\nX: " + b"x" * connection.MOST_HEADER_BYTES
    assert (await talk(serving.port, headers)).startswith(b"HTTP/1.1 431")


async def test_connections_have_a_bound_and_silent_ones_are_closed(
    serving: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(b"GET /a/echo HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(reader.readuntil(b"}"), 20)
    assert await talk(serving.port) == b""
    for _ in range(server.QUIET_LOOKS + 1):
        serving.look()
    await asyncio.wait_for(reader.read(), 20)
    assert reader.at_eof()
    writer.close()


async def test_a_request_that_is_served_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(_request: Request) -> Reply:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return text("")

    found = AdminServer(RealRuntime(), Routes({"/slow": slow}))
    await found.start("127.0.0.1", 0)
    asking = asyncio.ensure_future(talk(found.port, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"))
    await begun.wait()
    await found.close()
    assert ended.is_set()
    await asyncio.wait([asking])


async def test_a_port_that_is_taken_says_what_to_do(serving: AdminServer) -> None:
    with pytest.raises(OSError, match="set another port, or httpServerEnabled=false"):
        await AdminServer(RealRuntime(), Routes({})).start("127.0.0.1", serving.port)


@given(st.text(), st.text(), st.binary())
def test_anything_is_some_request(target: str, kind: str, body: bytes) -> None:
    for content in (kind, FORM):
        request = request_of("GET", target, content, body)
        assert request.path.startswith("/")
        assert "//" not in request.path
