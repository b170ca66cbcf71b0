from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.storage.index import ledger_data
from bookkeeper.bookie.storage.index.ledger_data import LedgerData, decode, encode
from bookkeeper.errors import CorruptStorageError

KEY = bytes.fromhex("9596625852f7fafc2c9cf0f9f7f3e5995206452b")
LAC = bytes.fromhex("00000000000000070000000000000001777bd7f3")

VECTORS = [
    (LedgerData(master_key=KEY), "080110001a14" + KEY.hex()),
    (LedgerData(True, KEY, LAC), "080110011a14" + KEY.hex() + "2214" + LAC.hex()),
    (LedgerData(True, b"", None, True), "080110011a002801"),
    (LedgerData(True, KEY, None, True), "080110011a14" + KEY.hex() + "2801"),
    (LedgerData(True, KEY, LAC, True), "080110011a14" + KEY.hex() + "2214" + LAC.hex() + "2801"),
    (LedgerData(True, KEY, None, False), "080110011a14" + KEY.hex() + "2800"),
    (LedgerData(False, KEY, None, False), "080110001a14" + KEY.hex() + "2800"),
]


@pytest.mark.parametrize(("data", "value"), VECTORS)
def test_specified_values(data: LedgerData, value: str) -> None:
    assert encode(data).hex() == value
    assert decode(bytes.fromhex(value)) == data


records = st.builds(
    LedgerData,
    st.booleans(),
    st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
    st.none() | st.booleans(),
)


@given(records)
def test_round_trip(data: LedgerData) -> None:
    assert decode(encode(data)) == data


@given(records)
def test_unknown_fields_and_other_orders_are_understood(data: LedgerData) -> None:
    extra = b"\x30\x96\x01" + b"\x3a\x02hi" + b"\x41" + bytes(8) + b"\x4d" + bytes(4)
    assert decode(extra + encode(data)) == data


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_corrupt(value: bytes) -> None:
    with contextlib.suppress(CorruptStorageError):
        decode(value)


@pytest.mark.parametrize("value", ["", "0801", "08011001", "0801100f1a05aa", "10001a00", "0b"])
def test_missing_fields_and_cut_values_are_corrupt(value: str) -> None:
    with pytest.raises(CorruptStorageError):
        decode(bytes.fromhex(value))


def test_keys() -> None:
    assert ledger_data.ledger_key(7).hex() == "0000000000000007"
    assert ledger_data.ledger_of_key(bytes.fromhex("0000000000000007")) == 7
    assert ledger_data.ledger_of_key(bytes.fromhex("00000000000000070000000000000000")) == 7
    assert ledger_data.STATE_FLAGS_KEY.hex() == "ffffffffffff1103"
    with pytest.raises(CorruptStorageError):
        ledger_data.ledger_of_key(b"1234567")


def test_state_flags() -> None:
    assert ledger_data.encode_flags(1).hex() == "0000000000000001"
    assert ledger_data.decode_flags(bytes.fromhex("0000000000000001")) == 1
    assert ledger_data.decode_flags(None) == 0
    for bad in ("0000000000000002", "8000000000000000", "01"):
        with pytest.raises(CorruptStorageError):
            ledger_data.decode_flags(bytes.fromhex(bad))


def test_placeholder_keys() -> None:
    assert ledger_data.is_placeholder(b"")
    assert ledger_data.is_placeholder(bytes(20))
    assert not ledger_data.is_placeholder(KEY)
