"""Adds by columns: they say what the runs of the same bytes say, whatever stands among them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.frames import LENGTH_SIZE, LOOKED_AT, MIXED_FROM
from bookkeeper.protocol.messages import V2, V3, AddRequest, AddRun, Flags, MixedAdds, ReadRequest, Status
from bookkeeper.types import DigestType

DIGEST = digest_for(DigestType.CRC32C, b"")
KEYS = [bytes([number]) * 20 for number in range(3)]
CODECS = [pytest.param(v2, V2, id="v2"), pytest.param(v3, V3, id="v3")]

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 1 << 40))


@st.composite
def adds(draw: st.DrawFn, version: int) -> AddRequest:
    ledger_id, entry_id = draw(st.integers(0, 500)), draw(NUMBERS)
    payload = bytes(draw(st.sampled_from([0, 1, 100, 100, 100, 300])))
    entry = DIGEST.package(ledger_id, entry_id, draw(st.integers(-1, 1 << 40)), 5, payload)
    txn_id = draw(NUMBERS) if version == V3 else 0
    return AddRequest(ledger_id, entry_id, entry, draw(st.sampled_from(KEYS)), txn_id=txn_id, version=version)


@st.composite
def others(draw: st.DrawFn, version: int) -> Any:
    """What ends a row: a read, an add with a flag, an add whose entry is of another ledger or too short, and junk."""
    entry = DIGEST.package(7, 1, 0, 5, b"x")
    choices: list[Any] = [
        ReadRequest(7, 1, version=version),
        AddRequest(7, 1, entry, KEYS[0], int(Flags.RECOVERY_ADD), version=version),
    ]
    if version == V3:
        choices += [
            AddRequest(8, 1, entry, KEYS[0], version=V3),
            AddRequest(7, 1, entry, KEYS[0][:5], version=V3),
            AddRequest(7, 1, entry, KEYS[0], write_flags=1, version=V3),
            AddRequest(7, 1, entry[:20], KEYS[0], version=V3),
        ]
    return draw(st.sampled_from(choices))


def bodies_of(codec: ModuleType, requests: list[Any]) -> list[bytes]:
    return [codec.encode_request(request)[LENGTH_SIZE:] for request in requests]


def plain(runs: list[AddRun]) -> list[tuple[Any, ...]]:
    return [(run.ledger_id, run.master_key, run.version, run.entry_ids, run.entries, run.txn_tokens) for run in runs]


@pytest.mark.parametrize(("codec", "version"), CODECS)
@given(data=st.data())
def test_columns_say_what_runs_say(codec: ModuleType, version: int, data: st.DataObject) -> None:
    requests: list[Any] = data.draw(st.lists(adds(version), min_size=2, max_size=40))
    if data.draw(st.booleans()):
        requests.insert(data.draw(st.integers(0, len(requests))), data.draw(others(version)))
    bodies = bodies_of(codec, requests)
    if data.draw(st.booleans()):
        bodies.insert(data.draw(st.integers(0, len(bodies))), data.draw(st.binary(max_size=80)))
    mixed = codec.decode_mixed_adds(bodies)
    if mixed is None:
        return
    count = len(mixed.entries)
    assert 0 < count <= codec.decode_add_runs(bodies)[1]
    assert plain(mixed.runs()) == plain(codec.decode_add_runs(bodies[:count])[0])
    assert list(mixed.lacs) == [int.from_bytes(entry[16:24], "big", signed=True) for entry in mixed.entries]
    answered = b"".join(codec.encode_add_responses(run) for run in one_by_one(mixed))
    assert (v2.encode_adds_stored if codec is v2 else v3.encode_adds_answered)([mixed]) == answered


def one_by_one(mixed: MixedAdds) -> list[AddRun]:
    return [run for place in range(len(mixed.entries)) for run in mixed.at([place]).runs()]


@pytest.mark.parametrize(("codec", "version"), CODECS)
def test_rows_of_many_ledgers_are_mixed_and_others_are_not(codec: ModuleType, version: int) -> None:
    def row(ledgers: int) -> list[bytes]:
        requests = []
        for number in range(40):
            ledger_id = number % ledgers
            entry = DIGEST.package(ledger_id, number, number - 1, 5, bytes(number % 2))
            requests.append(AddRequest(ledger_id, number, entry, KEYS[0], txn_id=100 + number, version=version))
        return bodies_of(codec, requests)

    mixed = codec.decode_mixed_adds(row(40))
    assert mixed is not None
    assert list(mixed.ledger_ids) == list(range(40))
    assert codec.decode_mixed_adds(row(1)) is None
    assert codec.decode_mixed_adds(row(10)) is None
    assert codec.decode_mixed_adds(row(40)[: MIXED_FROM - 1]) is None
    other = bodies_of(codec, [ReadRequest(7, 1, version=version)])
    assert codec.decode_mixed_adds(row(40)[:2] + other + row(40)) is None  # not looked through again and again
    assert len(codec.decode_mixed_adds(row(40)[:30] + other + row(40)[:9]).entries) == 30


@pytest.mark.parametrize(("codec", "version"), CODECS)
def test_nothing_behind_the_end_of_the_adds_is_looked_at(codec: ModuleType, version: int) -> None:
    """Else a peer that sends few adds and something else by turns has each of them decoded again and again."""
    adds = [
        AddRequest(number, 0, DIGEST.package(number, 0, -1, 5, b"x"), KEYS[0], txn_id=7, version=version)
        for number in range(LOOKED_AT)
    ]
    other = bodies_of(codec, [ReadRequest(7, 1, version=version)])
    behind: list[Any] = [None] * 10
    mixed = codec.decode_mixed_adds(bodies_of(codec, adds) + other + behind)
    assert list(mixed.ledger_ids) == list(range(LOOKED_AT))


def test_protobuf_reads_what_is_not_canonical() -> None:
    requests = [
        AddRequest(number, 1, DIGEST.package(number, 1, 0, 5, b"x"), KEYS[0], txn_id=7, version=V3)
        for number in range(20)
    ]
    bodies = bodies_of(v3, requests)
    bodies[5] += b"\xf8\x07\x01"  # a field that nobody knows
    mixed = v3.decode_mixed_adds(bodies)
    assert mixed is not None
    assert list(mixed.ledger_ids) == list(range(20))
    assert mixed.entries[5] == requests[5].entry


def test_parts_keep_what_belongs_together() -> None:
    whole = MixedAdds(V3, [1, 2, 3], KEYS, [10, 20, 30], [9, 19, 29], [b"a", b"b", b"c"], [b"1", b"2", b"3"])
    part = whole.at([0, 2])
    assert part == MixedAdds(V3, [1, 3], [KEYS[0], KEYS[2]], [10, 30], [9, 29], [b"a", b"c"], [b"1", b"3"])
    assert whole.at([1]).runs() == [AddRun(2, KEYS[1], 0, 0, V3, [20], [b"b"], [b"2"])]
    assert v3.encode_adds_answered([part]) == b"".join(
        v3.encode_add_response(txn_id, ledger_id, entry_id, Status.EOK)
        for txn_id, ledger_id, entry_id in ((0x31, 1, 10), (0x33, 3, 30))
    )
