"""LAYOUT (spec metadata §4.3) and the values of under-replication (§9.1)."""

from __future__ import annotations

import pytest

from bookkeeper.errors import CorruptMetadata, UnderreplicationIncompatible
from bookkeeper.metadata.api import CheckKind, LedgerLayout, UnderreplicatedLedger
from bookkeeper.metadata.formats import underreplication as values
from bookkeeper.metadata.formats.layout import DEFAULT, encode_layout, parse_layout


def test_layout_vector_both_ways() -> None:
    data = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert len(data) == 63
    assert encode_layout(DEFAULT) == data
    assert parse_layout(data) == DEFAULT
    assert parse_layout(data + b"\nmore\n") == DEFAULT


def test_layout_of_release_4_1_is_read() -> None:
    assert parse_layout(b"1\nhierarchical:1") == LedgerLayout("hierarchical", 1, 1)


@pytest.mark.parametrize(
    "data", [b"", b"2", b"x\na:1", b"3\na:1", b"0\na:1", b"2\na", b"2\na:b:1", b"2\na:x", b"2\n\xff:1"]
)
def test_a_wrong_layout_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMetadata):
        parse_layout(data)


def test_mark_vector_both_ways() -> None:
    data = b'replica: "10.0.0.1:3181"\nreplica: "10.0.0.2:3181"\nctime: 1700000000123\n'
    assert len(data) == 71
    mark = UnderreplicatedLedger(5, ("10.0.0.1:3181", "10.0.0.2:3181"), 1700000000123)
    assert values.encode_mark(mark) == data
    assert values.parse_mark(data, 5) == mark


def test_mark_without_time() -> None:
    mark = UnderreplicatedLedger(5, ("a:1",))
    assert values.encode_mark(mark) == b'replica: "a:1"\n'
    assert values.parse_mark(b"", 5) == UnderreplicatedLedger(5, ())


def test_values_seen_in_a_java_cluster() -> None:
    mark = bytes.fromhex(
        "7265706c6963613a20223132372e302e302e313a3332383432220a6374696d653a20313739353236383331383333350a"
    )
    assert values.encode_mark(UnderreplicatedLedger(1, ("127.0.0.1:32842",), 1795268318335)) == mark
    assert values.encode_lock("localhost") == bytes.fromhex("626f6f6b696549643a20226c6f63616c686f7374220a")
    assert values.parse_delay(b"6") == 6
    assert values.parse_check_time(CheckKind.ALL_LEDGERS, bytes.fromhex("08baa5bcf29f34")) > 1795000000000


def test_lock_and_vote_vectors() -> None:
    assert values.encode_lock("bk1.example.com") == b'bookieId: "bk1.example.com"\n'
    assert values.encode_vote("10.0.0.1:3181") == b'bookieId: "10.0.0.1:3181"\n'
    assert values.parse_lock(values.encode_lock("h")) == "h"
    assert values.parse_vote(values.encode_vote("h:1")) == "h:1"
    assert values.parse_vote(b"") == ""


@pytest.mark.parametrize("kind", list(CheckKind))
def test_check_times_are_binary(kind: CheckKind) -> None:
    data = bytes.fromhex("08fbd095ffbc31")
    assert values.encode_check_time(kind, 1700000000123) == data
    assert values.parse_check_time(kind, data) == 1700000000123
    assert values.parse_check_time(kind, b"") == -1


@pytest.mark.parametrize("data", [b"", b"x", b"1.5", b" 1", b"1\n"])
def test_a_delay_is_a_number(data: bytes) -> None:
    with pytest.raises(CorruptMetadata):
        values.parse_delay(data)


def test_the_layout_of_under_replication() -> None:
    assert values.LAYOUT == b'type: "BASIC"\nversion: 1\n'
    assert len(values.LAYOUT) == 25
    values.check_layout(b"version: 1 type: 'BASIC'")
    for wrong in (b'type: "BASIC"\nversion: 2\n', b'type: "X"\nversion: 1\n', b"", b"\xff"):
        with pytest.raises(UnderreplicationIncompatible):
            values.check_layout(wrong)
