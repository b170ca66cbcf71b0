"""What may be large is an entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.entry import HEADER_SIZE
from bookkeeper.protocol.frames import LENGTH_SIZE
from bookkeeper.protocol.large_frames import ENOUGH_TO_JUDGE, LARGEST_BESIDE_ENTRY, fault_of

LARGE = bytes(LARGEST_BESIDE_ENTRY + 1)
KEY = bytes(20)
ENTRY = (5).to_bytes(8, "big") + (7).to_bytes(8, "big") + bytes(HEADER_SIZE - 16) + LARGE


def judged(frame: bytes) -> str:
    body = frame[LENGTH_SIZE:]
    return fault_of(body[:ENOUGH_TO_JUDGE], len(body))


@given(
    st.integers(0, 2**63 - 1), st.sampled_from([0, 1, 100, -1]), st.sampled_from([m.Flags.NONE, m.Flags.RECOVERY_ADD])
)
def test_an_add_may_be_large(number: int, priority: int, flags: m.Flags) -> None:
    add = m.AddRequest(number, number, ENTRY, KEY, flags, txn_id=number, priority=priority)
    assert judged(v3.encode_request(add)) == ""
    assert judged(v2.encode_add_request(KEY, ENTRY)) == ""


@pytest.mark.parametrize(
    "request_",
    [
        m.WriteLacRequest(5, 0, KEY, LARGE, txn_id=1),
        m.ReadRequest(5, 1, m.Flags.DO_FENCING, LARGE, txn_id=1),
        m.AddRequest(5, 7, ENTRY[:100], LARGE, txn_id=2),
        m.AddRequest(5, 7, ENTRY[:100], LARGE, m.Flags.RECOVERY_ADD, txn_id=2, priority=100),
    ],
    ids=lambda request: type(request).__name__,
)
def test_nothing_else_may_be(request_: m.Request) -> None:
    fault = judged(v3.encode_request(request_))
    assert "not an add" in fault or "master key" in fault


def test_a_large_v2_request_that_is_no_add_is_refused() -> None:
    assert "not an add" in fault_of(bytes((2, v2.OP_READ, 0, 0)) + bytes(200), LARGEST_BESIDE_ENTRY + 1)


def test_what_is_small_is_not_judged() -> None:
    assert judged(v3.encode_request(m.WriteLacRequest(5, 0, KEY, bytes(1000), txn_id=1))) == ""


@given(st.binary(min_size=ENOUGH_TO_JUDGE, max_size=ENOUGH_TO_JUDGE))
def test_any_bytes_are_judged(start: bytes) -> None:
    assert isinstance(fault_of(start, LARGEST_BESIDE_ENTRY + 1), str)


@given(st.binary(min_size=1, max_size=40))
def test_any_bytes_of_an_add_are_judged(rest: bytes) -> None:
    start = b"\x0a\x06" + bytes((8, 3, 16, 2, 24, 1)) + b"\xaa\x06" + rest
    assert isinstance(fault_of(start, LARGEST_BESIDE_ENTRY + 1), str)
