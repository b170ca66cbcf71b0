"""Entries that come side by side are handed over together, and whatever disturbs a row loses nothing."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import pytest

from bookkeeper.client.wire.calls import LONGEST_ROW, Answer, ReadCall, ReadSink, Row
from bookkeeper.client.wire.connection import Connection
from bookkeeper.client.wire.connection_v2 import V2Connection
from bookkeeper.client.wire.connection_v3 import V3Connection
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import UnauthorizedError
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.frames import frame
from bookkeeper.protocol.messages import HeaderOnlyResponse, Operation, ReadResponse, Status
from bookkeeper.runtime.real import RealRuntime

from .test_streams import BOOKIE, LocalDialer

LEDGER = 7
FOREVER = 1e18


class Reads(ReadSink):
    """What was heard: all of it, and how many answers came in each row."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, bytes | None]] = []
        self.rows: list[int] = []

    def on_answers(self, _call: ReadCall, answers: list[Answer], /) -> None:
        self.heard += [(entry_id, code, entry) for entry_id, code, entry, _ in answers]

    def on_row(self, call: ReadCall, row: Row, /) -> None:
        self.rows.append(len(row[0]))
        super().on_row(call, row)


class Peer:
    """A connection, and the bookie at its other end."""

    def __init__(self, version: int) -> None:
        self.version = version
        dialer = LocalDialer(RealRuntime(), ClientConfiguration.from_mapping({}), cast(Any, None))
        self.dialer = dialer
        self.connection: Connection = (V2Connection if version == 2 else V3Connection)(dialer, BOOKIE, lambda _: None)
        self._asked: dict[int, list[int]] = {}

    def ask(self, entry_ids: range, deadline: float = FOREVER) -> Reads:
        reads = Reads()
        first = self.dialer._last_txn_id + 1
        self.connection.read_entries(LEDGER, entry_ids, ReadCall(BOOKIE, 0, reads, deadline))
        for number, entry_id in enumerate(entry_ids):
            self._asked.setdefault(entry_id, []).append(first + number)
        return reads

    def answer(
        self, entry_ids: list[int], failed: int = -1, between: tuple[int, bytes] = (0, b""), behind: bytes = b""
    ) -> None:
        """All in one piece, with some bytes in front of one of the answers, and behind all."""
        stream = b""
        for number, entry_id in enumerate(entry_ids):
            if number == between[0]:
                stream += between[1]
            good = entry_id != failed
            status, entry = (Status.EOK, payload(entry_id)) if good else (Status.ENOENTRY, None)
            txn_id = self._asked[entry_id].pop(0)
            response = ReadResponse(status, LEDGER, entry_id, entry, txn_id=txn_id, version=self.version)
            stream += (v2 if self.version == 2 else v3).encode_response(response)
        self.connection.data_received(stream + behind)


def payload(entry_id: int) -> bytes:
    return b"%05d" % entry_id * 20


def good(*entry_ids: int) -> list[tuple[int, int, bytes | None]]:
    return [(entry_id, 0, payload(entry_id)) for entry_id in entry_ids]


@pytest.fixture(params=[2, 3])
async def peer(request: pytest.FixtureRequest) -> Any:
    peer = Peer(request.param)
    await asyncio.sleep(0)
    warm = peer.ask(range(1))  # v3 learns what an answer looks like from the first
    peer.answer([0])
    assert warm.heard == good(0)
    yield peer
    await peer.dialer.tasks.close()


async def test_what_comes_side_by_side_is_handed_over_together(peer: Peer) -> None:
    first, second = peer.ask(range(10, 30)), peer.ask(range(30, 50))
    peer.answer([*range(10, 50)])
    assert (first.heard, first.rows) == (good(*range(10, 30)), [20])
    assert (second.heard, second.rows) == (good(*range(30, 50)), [20])
    assert peer.connection.outstanding == 0


async def test_a_row_may_be_in_any_order(peer: Peer) -> None:
    reads = peer.ask(range(10, 30))
    peer.answer([*range(20, 30), *range(10, 20)])
    assert reads.rows == [20]
    assert reads.heard == good(*range(20, 30), *range(10, 20))


async def test_two_who_want_the_same_entry_are_both_told(peer: Peer) -> None:
    first, second = peer.ask(range(10, 30)), peer.ask(range(15, 18))
    peer.answer([*range(10, 30), 15, 16, 17])
    assert first.heard == good(*range(10, 30))
    assert second.heard == good(15, 16, 17)
    assert peer.connection.outstanding == 0


async def test_two_who_want_the_same_are_told_in_two_rows(peer: Peer) -> None:
    first, second = peer.ask(range(10, 30)), peer.ask(range(10, 30))
    peer.answer([*range(10, 30)])
    assert (first.heard, second.heard) == (good(*range(10, 30)), [])
    peer.answer([*range(10, 30)])
    assert second.heard == good(*range(10, 30))
    assert peer.connection.outstanding == 0


async def test_calls_by_turns_are_told_all_the_same(peer: Peer) -> None:
    first, second = peer.ask(range(10, 30)), peer.ask(range(30, 50))
    peer.answer([entry_id for pair in zip(range(10, 30), range(30, 50), strict=True) for entry_id in pair])
    assert first.heard == good(*range(10, 30))
    assert second.heard == good(*range(30, 50))
    assert peer.connection.outstanding == 0


async def test_one_that_fails_in_a_row_fails_alone(peer: Peer) -> None:
    reads = peer.ask(range(10, 30))
    peer.answer([*range(10, 30)], failed=17)
    assert [answer for answer in reads.heard if answer[0] != 17] == good(*range(10, 17), *range(18, 30))
    assert [code for entry_id, code, _ in reads.heard if entry_id == 17] == [-13]


async def test_the_late_in_a_row_are_passed_over(peer: Peer) -> None:
    late, reads = peer.ask(range(10, 20), deadline=1.0), peer.ask(range(20, 30))
    peer.connection._expire_requests(2, math.inf)
    assert {code for _, code, _ in late.heard} == {-23}
    before = len(late.heard)
    peer.answer([*range(10, 30)])
    assert len(late.heard) == before == 10
    assert reads.heard == good(*range(20, 30))
    assert peer.connection.outstanding == 0


async def test_nothing_is_heard_of_what_stands_behind_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """An add that is refused without its ids ends the connection; behind it is more than a row, and no message."""
    peer = Peer(3)
    await asyncio.sleep(0)
    reads = peer.ask(range(2 * LONGEST_ROW))
    refused = v3.encode_response(HeaderOnlyResponse(Status.EUA, Operation.ADD_ENTRY, txn_id=1 << 62))
    peer.answer([*range(2 * LONGEST_ROW)], between=(10, refused), behind=frame(b"\xff\xff"))
    assert reads.heard[:10] == good(*range(10))
    assert {code for _, code, _ in reads.heard[10:]} == {UnauthorizedError.code}
    assert len(reads.heard) == 2 * LONGEST_ROW
    assert "the connection is closed" not in caplog.text
    await peer.dialer.tasks.close()
