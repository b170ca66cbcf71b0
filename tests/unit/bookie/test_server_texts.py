"""What clients send as text comes into no log as it is."""

from __future__ import annotations

import logging
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from tests.support.bookie import RawClient, add, read, running_bookie

FORGED = "\n2026-01-01 ERROR ledger 1 is lost\r\x1b[31m\x00\u202e"
"""Would begin a line of its own, colour it, end it, and turn the rest round."""

LONGEST_LINE = 1000


def with_context(request: m.Request) -> bytes:
    """A v3 request that carries a context, as Java's clients can: field 200 of the request, names and values."""
    text = FORGED.encode()
    pair = b"\x0a" + bytes([len(text)]) + text + b"\x12" + bytes([len(text)]) + text
    body = v3.encode_request(request)[4:] + b"\xc2\x0c" + bytes([len(pair)]) + pair
    return struct.pack(">I", len(body)) + body


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


SENT: dict[str, Callable[[], bytes]] = {
    "name of an authentication plug-in, v2": lambda: v2.encode_request(m.AuthRequest(FORGED, b"")),
    "name of an authentication plug-in, v3": lambda: v3.encode_request(m.AuthRequest(FORGED, b"")),
    "very long name": lambda: v3.encode_request(m.AuthRequest("x" * 50_000, b"")),
    "context of a request": lambda: with_context(read(1, 0, version=3)),
    "request line": lambda: b"GET /" + FORGED.encode() + b" HTTP/1.1\r\n\r\n",
    "frame of text": lambda: frame(FORGED.encode() * 40),
    "authentication that is no message": lambda: frame(struct.pack(">I", 2 << 24 | 3 << 16) + FORGED.encode()),
}


@pytest.mark.parametrize("data", SENT.values(), ids=SENT.keys())
async def test_no_text_of_a_client_can_forge_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: Callable[[], bytes]
) -> None:
    """SEC-46."""
    caplog.set_level(logging.DEBUG)
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as other:
        async with RawClient.to(bookie) as client:
            client.send(data())
            client.writer.write_eof()
            while await client.reader.read(1 << 16):  # until the bookie has dealt with it
                pass
        assert (await other.v2(add(1, 0))).status == m.Status.EOK
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("bookkeeper")]
    assert lines
    assert [line for line in lines if any(unicodedata.category(sign).startswith("C") for sign in line)] == []
    assert max(map(len, lines)) < LONGEST_LINE
