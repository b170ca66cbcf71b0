"""What the records of a namespace say of its streams (spec streams §15.4)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import StreamMetadataError
from bookkeeper.streams.formats.codec import Compression
from bookkeeper.streams.formats.keyed import Codec
from bookkeeper.streams.ledgers import Replication
from bookkeeper.streams.policy import LARGEST_BODY, Visibility, WritePolicy
from bookkeeper.streams.retention.choice import RetentionMode, RetentionPolicy
from bookkeeper.streams.retention.policies import StreamPolicy, decode_policy, encode_policy
from bookkeeper.types import DigestType

RETENTION = st.builds(
    RetentionPolicy,
    st.sampled_from(RetentionMode),
    st.floats(0, 1e9),
    st.none() | st.integers(0, 1 << 50),
    st.integers(1, 9),
    st.booleans(),
)
SIZES = st.lists(st.integers(1, 9), min_size=3, max_size=3).map(lambda sizes: sorted(sizes, reverse=True))
REPLICATION = st.builds(lambda sizes, digest: Replication(*sizes, digest=digest), SIZES, st.sampled_from(DigestType))
WRITING = st.builds(
    WritePolicy,
    st.integers(0, 1 << 20).filter(lambda size: size <= LARGEST_BODY),
    st.floats(0, 3599),
    st.sampled_from(Visibility),
    st.sampled_from(Compression),
    st.none() | st.integers(1, 1 << 40),
    st.none() | st.floats(0, 1e9),
    st.none() | st.integers(1, 1 << 40),
)
POLICIES = st.builds(
    StreamPolicy,
    st.none() | RETENTION,
    st.none() | REPLICATION,
    st.none() | WRITING,
    st.none() | st.sampled_from(Codec),
)


@given(POLICIES, st.dictionaries(st.text("xyz", min_size=1), st.integers()))
def test_a_policy_is_read_as_it_was_written_and_the_rest_is_kept(policy: StreamPolicy, other: dict[str, int]) -> None:
    stored = json.loads(json.dumps(encode_policy(policy, {**other, "retention": {"mode": "auto"}})))
    assert decode_policy(stored, "s") == policy
    assert other.items() <= stored.items()


def test_what_is_not_said_has_its_default() -> None:
    assert decode_policy({}, "s") == StreamPolicy()
    assert decode_policy({"retention": {}}, "s") == StreamPolicy(RetentionPolicy())
    assert decode_policy({"integrity": {"digest": "crc32c"}}, "s") == StreamPolicy(
        replication=Replication(digest=DigestType.CRC32C)
    )
    assert decode_policy({"segment": {"roll_age": 5}}, "s") == StreamPolicy(write=WritePolicy(roll_age=5.0))
    assert decode_policy({"segment": {"roll_bytes": None}}, "s") == StreamPolicy(write=WritePolicy(roll_bytes=None))
    default = Replication(2, 2, 2, password=b"p")
    assert StreamPolicy().applied_to(default) == default
    assert StreamPolicy(replication=Replication(5, 3, 2)).applied_to(default) == Replication(5, 3, 2, password=b"p")


@pytest.mark.parametrize(
    "wrong",
    [
        {"retention": 7},
        {"retention": {"mode": "often"}},
        {"retention": {"mode": "auto"}},
        {"retention": {"min_segments": 0}},
        {"retention": {"protect_subscriptions": "no"}},
        {"replication": {"ensemble": 1}},
        {"replication": {"ensemble": "x"}},
        {"replication": 7},
        {"integrity": {"digest": "md5"}},
        {"integrity": {"digest": 5}},
        {"segment": 7},
        {"segment": {"roll_bytes": "much"}},
        {"write": {"visibility": "soon"}},
        {"write": {"linger": -1}},
        {"codec": "kv2"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(StreamMetadataError):
        decode_policy(wrong, "s")
