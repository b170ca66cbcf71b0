"""One HTTP connection: bytes in, one request at a time, bytes out. `h11` knows the protocol.

While a request is served nothing more is read. A request that is too large, or is none, is answered and ends the
connection; so does silence (`AdminServer` looks for that).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, cast

import h11

from ...errors import BookKeeperError
from .messages import Handler, Reply, request_of, text

log = logging.getLogger(__name__)

MOST_HEADER_BYTES = 64 << 10
"""Of a request without its body."""
MOST_BODY_BYTES = 1 << 20

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class TooLargeError(BookKeeperError):
    """A request has more bytes than are taken."""


class AdminConnection(asyncio.Protocol):
    """The server's side."""

    def __init__(self, answer: Handler, spawn: Spawn, ended: Callable[[AdminConnection], None]) -> None:
        self._answer = answer
        self._spawn = spawn
        self._ended = ended
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self.serving: asyncio.Task[None] | None = None
        """The request that is served now."""
        self.quiet_ticks = 0
        """Looks of the server since anything was received."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._writable.set()
        if self.serving is not None:
            self.serving.cancel()
        self._ended(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self.quiet_ticks = 0
        self._go_on(data)

    def eof_received(self) -> bool:
        self._go_on(b"")
        return self.serving is not None

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.close()

    def _go_on(self, data: bytes | None = None) -> None:
        """Take what was received, up to the end of a request."""
        try:
            if data is not None:
                self._http.receive_data(data)
            while self.serving is None and self._transport is not None:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.ConnectionClosed):
                    self.close()
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._refuse(text(f"{error}", error.error_status_hint))
        except TooLargeError as error:
            self._refuse(text(f"{error}", 413))

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._request, self._body = event, bytearray()
            if self._http.they_are_waiting_for_100_continue:
                self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > MOST_BODY_BYTES:
                raise TooLargeError(f"a body has at most {MOST_BODY_BYTES:,} bytes")
        elif isinstance(event, h11.EndOfMessage):
            assert self._transport is not None
            self._transport.pause_reading()
            self.serving = self._spawn(self._serve())

    async def _serve(self) -> None:
        """Answer the request that is there."""
        got, body = self._request, bytes(self._body)
        assert got is not None
        content_type = dict(got.headers).get(b"content-type", b"").decode("latin-1")
        request = request_of(got.method.decode("ascii"), got.target.decode("latin-1"), content_type, body)
        reply = await self._answer(request)
        self._send(reply, with_body=request.method != "HEAD")
        await self._writable.wait()
        self.serving = None
        if self._transport is None:
            return
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is h11.MUST_CLOSE:
            self.close()
            return
        self._http.start_next_cycle()
        self._transport.resume_reading()
        self._go_on()

    def _refuse(self, reply: Reply) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(reply)
        self.close()

    def _send(self, reply: Reply, *, with_body: bool = True) -> None:
        headers = [("content-length", str(len(reply.body)))]
        if reply.content_type is not None:
            headers.append(("content-type", reply.content_type))
        if reply.allow is not None:
            headers.append(("allow", reply.allow))
        self._write(self._http.send(h11.Response(status_code=reply.status, headers=headers)))
        if with_body and reply.body:
            self._write(self._http.send(h11.Data(data=reply.body)))
        self._write(self._http.send(h11.EndOfMessage()))

    def _write(self, data: bytes | None) -> None:
        if data and self._transport is not None:
            self._transport.write(data)
