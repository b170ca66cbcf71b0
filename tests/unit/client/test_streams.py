"""However a stream of answers is cut into pieces, everybody hears the same."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.client.wire.add_channel import AddChannel, AddRoute
from bookkeeper.client.wire.calls import Answer, ReadCall, ReadSink
from bookkeeper.client.wire.connection import Connection
from bookkeeper.client.wire.connection_v2 import V2Connection
from bookkeeper.client.wire.connection_v3 import V3Connection
from bookkeeper.client.wire.dialer import Dialer
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BKError
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import AddResponse, ReadResponse, Response, Status
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId

BOOKIE = BookieId("b:1")
LEDGERS = 3
ENTRIES = 12


class Wire(asyncio.Transport):
    def write(self, data: Any) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        pass


class LocalDialer(Dialer):
    async def dial(self, bookie: BookieId, protocol: asyncio.Protocol) -> None:
        protocol.connection_made(Wire())


class Adds:
    def __init__(self) -> None:
        self.acked: list[int] = []
        self.failed: list[tuple[int, int]] = []

    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        self.acked += acked
        self.failed += failed

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        self.on_add_responses(bookie, [entry_id], [])

    def on_channel_lost(self, bookie: BookieId, error: BKError) -> None:
        raise error

    def on_writable(self, bookie: BookieId) -> None: ...


class Reads(ReadSink):
    def __init__(self) -> None:
        self.answers: dict[int, tuple[int, bytes | None]] = {}

    def on_answers(self, call: ReadCall, answers: list[Answer], /) -> None:
        assert answers
        for entry_id, code, entry, _ in answers:
            assert entry_id not in self.answers
            self.answers[entry_id] = (code, entry)


Script = list[tuple[bool, int, int, Status]]
statuses = st.sampled_from([Status.EOK, Status.EOK, Status.EOK, Status.ENOENTRY, Status.EIO])
mixed = st.lists(st.tuples(st.booleans(), st.integers(0, LEDGERS - 1), st.integers(0, ENTRIES - 1), statuses))
rows = st.lists(
    st.tuples(
        st.integers(0, LEDGERS - 1), st.integers(0, ENTRIES), st.integers(0, ENTRIES), st.sampled_from([1, 1, -1])
    )
).map(
    lambda parts: [
        (False, ledger, entry, Status.EOK)
        for ledger, first, last, step in parts
        for entry in range(first, last)[::step]
    ]
)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Answers to adds and reads: rows of good reads, and anything between them."""
    script = [answer for part in draw(st.lists(st.one_of(mixed, rows))) for answer in part]
    return list({answer[:3]: answer for answer in script}.values())


@pytest.mark.parametrize("version", [2, 3])
@given(
    scripts(),
    st.lists(st.one_of(st.integers(1, 60), st.integers(500, 4000)), min_size=1),
    st.lists(st.integers(1, ENTRIES - 1)),
)
@settings(max_examples=100)
def test_answers_are_the_same_however_they_arrive(
    version: int, script: Script, cuts: list[int], calls: list[int]
) -> None:
    asyncio.run(play(version, script, cuts, calls))


async def play(version: int, script: Script, cuts: list[int], calls: list[int]) -> None:
    """`cuts`: how long the pieces are in which the answers come; `calls`: with which entries a call begins."""
    config = ClientConfiguration.from_mapping({})
    dialer = LocalDialer(RealRuntime(), config, cast(Any, None))
    connection: Connection = (V2Connection if version == 2 else V3Connection)(dialer, BOOKIE, lambda _: None)
    await asyncio.sleep(0)
    adds = [Adds() for _ in range(LEDGERS)]
    reads = [Reads() for _ in range(LEDGERS)]
    txn_ids: dict[tuple[int, int], int] = {}
    for ledger_id in range(LEDGERS):
        channel = AddChannel(BOOKIE, ledger_id, adds[ledger_id], version, lambda _: None)
        connection.add_route(AddRoute(connection, channel, ledger_id))
        last = dialer._last_txn_id
        for first, end in pairwise(sorted({0, *calls, ENTRIES})):
            connection.read_entries(ledger_id, range(first, end), ReadCall(BOOKIE, 0, reads[ledger_id], 1e18))
        txn_ids |= {(ledger_id, entry_id): last + 1 + entry_id for entry_id in range(ENTRIES)}

    stream = b""
    for is_add, ledger_id, entry_id, status in script:
        response: Response
        if is_add:
            response = AddResponse(status, ledger_id, entry_id, txn_id=(1 << 62) + entry_id, version=version)
        else:
            entry = bytes([ledger_id, entry_id]) * 40 if status is Status.EOK else None
            txn_id = txn_ids[ledger_id, entry_id]
            response = ReadResponse(status, ledger_id, entry_id, entry, txn_id=txn_id, version=version)
        stream += (v2 if version == 2 else v3).encode_response(response)
    at = turn = 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        connection.data_received(stream[at : at + size])
        at += size
        turn += 1

    for ledger_id in range(LEDGERS):
        mine = [(is_add, entry_id, status) for is_add, owner, entry_id, status in script if owner == ledger_id]
        assert sorted(adds[ledger_id].acked) == sorted(e for is_add, e, s in mine if is_add and s is Status.EOK)
        assert sorted(e for e, _ in adds[ledger_id].failed) == sorted(
            e for is_add, e, s in mine if is_add and s is not Status.EOK
        )
        assert reads[ledger_id].answers == {
            e: (0, bytes([ledger_id, e]) * 40) if s is Status.EOK else (-13 if s is Status.ENOENTRY else -1, None)
            for is_add, e, s in mine
            if not is_add
        }
    unanswered = LEDGERS * ENTRIES - sum(not is_add for is_add, *_ in script)
    assert connection.outstanding == unanswered
    await dialer.tasks.close()
