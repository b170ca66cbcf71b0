"""Addresses, names, paths and members: what is pure in `streams.names` (spec streams §2.1, §2.3, §3, §4.1, §6)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ConfigurationError, InvalidStreamNameError, StreamMetadataError
from bookkeeper.metadata.tree import (
    Check,
    Create,
    Delete,
    Node,
    TransactionLimits,
    Write,
    check_path,
    leaves_a_record,
    recognised,
    would_leave,
)
from bookkeeper.streams.names.address import parse_namespace
from bookkeeper.streams.names.members import Identity, identity, in_order, member_prefix, place
from bookkeeper.streams.names.naming import stream_name
from bookkeeper.streams.names.paths import (
    NO_TXID,
    LogPaths,
    completed_name,
    inprogress_name,
    names_of_interest_to_a_writer,
    parse_allocation,
    parse_max_segment,
    parse_max_txid,
)

# --- addresses ---


@pytest.mark.parametrize(
    ("text", "backend", "store", "path"),
    [
        ("distributedlog://zk1:2181;zk2:2181/ns/a", "bk", "zk+null://zk1:2181;zk2:2181/ns/a", "/ns/a"),
        ("DistributedLog-BK://zk1,zk2/ns/", "bk", "zk+null://zk1;zk2/ns", "/ns"),
        ("distributedlog-sqlite:///a/m.db?namespace=/ns", "sqlite", "sqlite:///a/m.db", "/ns"),
        ("distributedlog-sqlite:///a/m.db?root=x&namespace=/ns/a", "sqlite", "sqlite:///a/m.db?root=x", "/ns/a"),
        ("distributedlog-memory://test/ns", "memory", "memory://test", "/ns"),
    ],
)  # fmt: skip
def test_an_address_names_a_store_and_a_path(text: str, backend: str, store: str, path: str) -> None:
    found = parse_namespace(text)
    assert (found.backend, found.store, found.path) == (backend, store, path)


@pytest.mark.parametrize(
    "text",
    [
        "", "zk://zk1/ns", "distributedlog:zk1/ns", "distributedlog-etcd://e/ns", "distributedlog://zk1", "distributedlog:///ns",
        "distributedlog://zk1:x/ns", "distributedlog://zk1/a//b", "distributedlog-sqlite:///a/m.db",
        "distributedlog-sqlite://host/m.db?namespace=/ns", "distributedlog-sqlite:///m.db?namespace=ns", "distributedlog-memory:///ns",
    ],
)  # fmt: skip
def test_a_bad_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="namespace address"):
        parse_namespace(text)


# --- names ---


@pytest.mark.parametrize("name", ["a", "a/b", "team.x/.hidden", "ä", "日本/b", "a-b_c:d", "%41"])
def test_good_names(name: str) -> None:
    assert stream_name(name) == stream_name("/" + name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", "/", ".a", "<a", "/.a", "a//b", "a/", "//a", "a/.", "../a", "a b", "a<b", "a>b",
        "a\0b", "a\x9f", "\ud800", "\uffff", "\U0001f600",
    ],
)  # fmt: skip
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidStreamNameError):
        stream_name(name)


@given(st.text(max_size=12))
def test_a_good_name_is_a_good_path(text: str) -> None:
    try:
        name = stream_name(text)
    except InvalidStreamNameError:
        return
    for path in LogPaths("/ns", name).records():
        assert check_path(path) == path


def test_the_records_of_a_stream_come_parents_first() -> None:
    seen = {"/ns"}
    for path in LogPaths("/ns", "team/eu/a").records():
        assert path.rpartition("/")[0] in seen
        seen.add(path)


# --- small records ---


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_decimal(number: int) -> None:
    text = b"%d" % number
    assert parse_max_txid(text) == parse_max_segment(text, "/p") == parse_allocation(text, "/p") == number


@pytest.mark.parametrize("data", [b"", b"x", b"1 ", b"0x1", "\u0661".encode(), b"1" * 30])
def test_what_is_no_number(data: bytes) -> None:
    assert parse_max_txid(data) == NO_TXID
    with pytest.raises(StreamMetadataError):
        parse_max_segment(data, "/p")
    if data:
        with pytest.raises(StreamMetadataError):
            parse_allocation(data, "/p")


def test_a_writer_needs_few_of_many_segments() -> None:
    names = [*(completed_name(n) for n in range(1, 100)), inprogress_name(100), inprogress_name(101)]
    shuffled = random.Random(1).sample(names, len(names))
    assert sorted(names_of_interest_to_a_writer(shuffled)) == sorted(names[-3:])
    old = ["logrecs_1_9_000000000000000007_5_0", "logrecs_000000000000000001_000000000000000009", "inprogress_3e8", "x"]
    assert names_of_interest_to_a_writer([*old, completed_name(6)]) == old[:3]
    assert names_of_interest_to_a_writer([*old, completed_name(8)]) == [*old[1:3], completed_name(8)]


# --- who wants a lock ---


@pytest.mark.parametrize(
    ("client", "session", "prefix"),
    [
        ("host-a/10.0.0.1:my app~*", 72057594037927936, "member_host-a%2F10.0.0.1%3Amy+app%7E*_s72057594037927936_"),
        ("golden client", 72057948014641327, "member_golden+client_s72057948014641327_"),
        ("a", 7, "member_a_s         7_"),
        ("a", -5, "member_a_s        -5_"),
    ],
)
def test_the_name_of_a_member_is_java_s(client: str, session: int, prefix: str) -> None:
    assert member_prefix(client, session) == prefix
    assert identity(f"{prefix}0000000004") == Identity(client, session)


@given(
    st.text(st.characters(exclude_characters="_", exclude_categories=["Cs"]), max_size=20),
    st.integers(-(2**63), 2**63 - 1),
)
def test_a_member_s_name_says_who_it_is(client: str, session: int) -> None:
    assert identity(member_prefix(client, session) + "0000000000") == Identity(client, session)


def test_members_are_ordered_by_their_numbers() -> None:
    names = [
        "member_b_s1_0000000002",
        "member_0000000001",
        "member_client_0000000003",
        "member_x",
        "member_a_s1_0000000010",
    ]
    assert in_order(reversed(names)) == [names[1], names[0], names[2], names[4], names[3]]
    assert [identity(name) for name in (names[1], names[2], names[3], "member_my_client_s5_0000000001")] == [None] * 4
    assert place("member_x") > place("member_a_s1_2147483647")


# --- transactions ---

PATHS = ("/a", "/b")

operations = st.lists(
    st.one_of(
        st.builds(Create, st.sampled_from(PATHS), st.binary(max_size=1)),
        st.builds(Write, st.sampled_from(PATHS), st.binary(max_size=1)),
        st.builds(Delete, st.sampled_from(PATHS)),
        st.builds(Check, st.sampled_from(PATHS)),
    ),
    max_size=5,
)


@given(operations, st.dictionaries(st.sampled_from(PATHS), st.binary(max_size=1)))
def test_a_transaction_is_recognised_by_all_that_it_leaves(
    changes: list[Create | Write | Delete | Check], stored: dict[str, bytes]
) -> None:
    found = {path: Node(stored[path], 5, 5) if path in stored else None for path in PATHS}
    left = would_leave(changes)
    same = all(stored.get(path) == data for path, data in left.items())
    written = recognised(changes, found)
    assert (written is not None) == (same and leaves_a_record(changes))
    if written is not None:
        assert written == {path: 5 for path, data in left.items() if data is not None}


@given(st.integers(0, 5), st.integers(0, 400), operations)
def test_limits_hold_what_is_not_above_them(
    count: int, size: int, changes: list[Create | Write | Delete | Check]
) -> None:
    limits = TransactionLimits(count, size, 50)
    cost = sum(50 + 2 + len(getattr(change, "data", b"")) for change in changes)
    assert limits.hold(changes) == (len(changes) <= count and cost <= size)
    assert TransactionLimits().hold(changes)
