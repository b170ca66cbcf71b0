"""Bytes that a bookie must refuse, and what it must not refuse, over real sockets."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import Status
from tests.support.bookie import KEY, RawClient, add, entry, read, running_bookie

LIMIT = 65536


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def v2_header(opcode: int, version: int = 2, flags: int = 0) -> bytes:
    return struct.pack(">I", version << 24 | opcode << 16 | flags)


BROKEN = {
    # SEC-2
    **{f"length {length}": frame(b"\0" * length) for length in range(4)},
    # SEC-1
    "length beyond the limit": struct.pack(">I", LIMIT - 3),
    "length 2**31 - 1": struct.pack(">I", 0x7FFFFFFF),
    "length 2**31": struct.pack(">I", 0x80000000),
    "length 2**32 - 1": struct.pack(">I", 0xFFFFFFFF),
    # SEC-4
    **{f"v2 opcode {code}": frame(v2_header(code) + bytes(40)) for code in (0, 4, 5, 6, 8, 200, 255)},
    # SEC-2, SEC-7
    "v2 add too short for key and ids": frame(v2_header(1) + bytes(35)),
    "v2 read cut short": frame(v2_header(2) + bytes(15)),
    "v2 fence without its key": frame(v2_header(2, flags=1) + bytes(16)),
    "v2 batch read cut short": frame(v2_header(7) + bytes(35)),
    # SEC-5
    "v2 auth that is no message": frame(v2_header(3) + b"\xff\xff"),
    # SEC-4
    "v3 operation 13": frame(bytes.fromhex("0a06 0803 100d 1801".replace(" ", ""))),
    "v3 version 4": frame(bytes.fromhex("0a06 0804 1001 1801".replace(" ", ""))),
    # SEC-5
    "v3 without header": frame(b"\xa2\x06\x04\x08\x01\x10\x01"),
    "v3 without txn id": frame(bytes.fromhex("0a0408031001")),
    "v3 read without entry id": frame(bytes.fromhex("0a060803100118 01 a206020801".replace(" ", ""))),
    "v3 cut short": frame(v3.encode_request(add(1, 0))[4:-9]),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("160301020001 0001fc0303".replace(" ", "")) + bytes(500),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
async def test_what_is_no_message_ends_its_connection_and_no_other(tmp_path: Path, data: bytes) -> None:
    """SEC-1, SEC-2, SEC-4, SEC-5, SEC-7, FX-63."""
    async with (
        running_bookie(tmp_path, nettyMaxFrameSizeBytes=LIMIT) as bookie,
        RawClient.to(bookie) as healthy,
        RawClient.to(bookie) as client,
    ):
        client.send(data)
        if data == BROKEN["tls"]:
            client.send(bytes(LIMIT))
        assert await client.closed()
        assert (await healthy.v2(add(1, 0))).status == Status.EOK
        assert bookie.stats.connections_broken == 1


async def test_a_frame_of_exactly_the_limit_is_served(tmp_path: Path) -> None:
    """SEC-1, SEC-28."""
    async with running_bookie(tmp_path, nettyMaxFrameSizeBytes=LIMIT) as bookie, RawClient.to(bookie) as client:
        payload = b"x" * (LIMIT - 28 - len(entry(1, 0, b"")))
        request = v2.encode_request(add(1, 0, payload))
        assert len(request) == LIMIT
        client.send(request)
        assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        client.send(v2.encode_request(add(1, 1, payload + b"x")))
        assert await client.closed()


async def test_a_frame_in_single_bytes_is_served(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for byte in v2.encode_request(add(1, 0)) + v3.encode_request(add(1, 1)):
            client.send(bytes((byte,)))
            await client.writer.drain()
        assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        assert v3.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]


async def test_trailing_bytes_and_unknown_flags_are_ignored(tmp_path: Path) -> None:
    """SEC-5: what is not known is ignored."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
        request = v2.encode_request(read(1, 0))
        client.send(struct.pack(">I", len(request) - 4 + 9) + v2_header(2, flags=0xF0F0) + request[8:] + bytes(9))
        answer: Any = v2.decode_response(await client.body())
        assert answer.entry == entry(1, 0)


async def test_equal_requests_in_flight_are_both_answered(tmp_path: Path) -> None:
    """SEC-24."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        client.send(v3.encode_request(add(1, 0, txn_id=5)) * 2 + v3.encode_request(m.ReadLacRequest(9, txn_id=5)) * 2)
        answers = [v3.decode_response(await client.body()) for _ in range(4)]
        assert all(answer.txn_id == 5 for answer in answers)  # type: ignore[union-attr]


async def test_a_frame_that_is_never_completed_ends_its_connection(tmp_path: Path) -> None:
    """SEC-3."""
    async with running_bookie(tmp_path, frameCompletionTimeoutMs=100) as bookie, RawClient.to(bookie) as client:
        client.send(struct.pack(">I", 1000) + b"x")
        assert await client.closed()


async def test_connections_beyond_the_limit_are_closed_at_once(tmp_path: Path) -> None:
    async with running_bookie(tmp_path, maxConnections=1) as bookie, RawClient.to(bookie) as one:
        assert (await one.v2(add(1, 0))).status == Status.EOK
        async with RawClient.to(bookie) as two:
            assert await two.closed()
        assert (await one.v2(add(1, 1))).status == Status.EOK


async def test_random_bytes_never_hurt_others(tmp_path: Path) -> None:
    """SEC-5, FX-63."""
    rng = random.Random(7)
    good = [v2.encode_request(add(1, 0)), v3.encode_request(add(1, 0)), v3.encode_request(read(1, 0, master_key=KEY))]
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as healthy:
        for _ in range(150):
            data = bytearray(rng.choice(good))
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(4, len(data))] = rng.randrange(256)
            async with RawClient.to(bookie) as client:
                client.send(bytes(data))
                await client.writer.drain()
        assert (await healthy.v2(add(2, 0))).status == Status.EOK
