"""What a sink may publish, and which place its segments get (spec streams §15.7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import IncorrectParameterError, StreamMetadataError
from bookkeeper.streams.errors import EndOfStreamError, EpochConflictError, TxidOrderError
from bookkeeper.streams.formats.records import END_TXID
from bookkeeper.streams.formats.segment import decode_segment, encode_segment
from bookkeeper.streams.publishing.drafts import SegmentDraft, already_there, check_drafts, place
from bookkeeper.streams.publishing.marker import (
    Decision,
    Marker,
    PublishKey,
    State,
    decide,
    decode_marker,
    encode_marker,
)
from bookkeeper.streams.segments import StreamState

NAMES = st.none() | st.sampled_from(["x", "y"])
MARKERS = st.builds(
    Marker,
    st.integers(0, 3),
    st.just("run"),
    NAMES,
    NAMES,
    NAMES,
    st.sampled_from(State),
    st.dictionaries(st.sampled_from("ab"), st.tuples(st.integers(1, 9), st.integers(1, 9))),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 99),
)
KEYS = st.builds(PublishKey, st.just("s"), st.integers(0, 3), NAMES, NAMES)


@given(MARKERS)
def test_a_marker_is_read_as_it_was_written(marker: Marker) -> None:
    assert decode_marker(encode_marker(marker), "p") == marker


@pytest.mark.parametrize("wrong", [b"", b"{", b"[]", b"{}", b'{"v":2}', b'{"v":1,"streams":{},"state":"often"}'])
def test_a_marker_without_sense_is_an_error(wrong: bytes) -> None:
    with pytest.raises(StreamMetadataError):
        decode_marker(wrong, "p")


@given(st.none() | MARKERS, KEYS, st.booleans())
def test_an_epoch_is_published_once_and_nothing_is_dropped_silently(
    marker: Marker | None, key: PublishKey, reset: bool
) -> None:
    try:
        decision = decide(marker, key, reset=reset)
    except EpochConflictError:
        assert marker is not None
        other = None not in (marker.query, key.query) and marker.query != key.query
        assert (other and not reset) or marker.epoch > key.epoch or marker.fingerprint != key.fingerprint
        return
    if decision is Decision.DONE:
        assert marker is not None
        assert marker.epoch == key.epoch
        assert None in (marker.fingerprint, key.fingerprint) or marker.fingerprint == key.fingerprint
    elif decision is Decision.FINISH_FIRST:
        assert marker is not None
        assert marker.state is State.PUBLISHING
    else:
        assert marker is None or marker.epoch < key.epoch or reset


def test_each_way_to_publish_the_wrong_epoch_is_refused() -> None:
    marker = Marker(5, "run", None, "print", "query")
    assert decide(marker, PublishKey("s", 5, "print", "query")) is Decision.DONE
    assert decide(marker, PublishKey("s", 5)) is Decision.DONE
    assert decide(marker, PublishKey("s", 6, "other", "query")) is Decision.PUBLISH
    for key in (PublishKey("s", 4, "print", "query"), PublishKey("s", 5, "other"), PublishKey("s", 6, None, "other")):
        with pytest.raises(EpochConflictError):
            decide(marker, key)
    assert decide(marker, PublishKey("s", 0, None, "other"), reset=True) is Decision.PUBLISH


@st.composite
def drafts(draw: st.DrawFn) -> list[SegmentDraft]:
    found = []
    for n in range(draw(st.integers(1, 4))):
        txids = draw(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted))
        first, last = txids or (None, None)
        found.append(SegmentDraft(n, draw(st.integers(1, 5)), draw(st.integers(0, 3)), 0, first, last))
    return found


@given(drafts(), drafts(), st.integers(0, 9), st.integers(0, 9))
def test_placed_segments_go_on_where_the_stream_ends(
    one: list[SegmentDraft], other: list[SegmentDraft], max_txid: int, now: int
) -> None:
    """Whatever came first, transaction ids never fall, and numbers have no gap."""
    before = place(StreamState([], 0, max_txid), one, now, decided=True)
    behind = place(StreamState(before, before[-1].number, before[-1].last_txid), other, now, decided=True)
    found = [*before, *behind]
    assert [segment.number for segment in found] == list(range(1, len(found) + 1))
    assert [segment.sequence_id for segment in found] == [
        sum(segment.records for segment in found[:n]) for n in range(len(found))
    ]
    txids = [max_txid, *(txid for segment in found for txid in (segment.first_txid, segment.last_txid))]
    assert txids == sorted(txids)
    assert [decode_segment(encode_segment(segment)) for segment in found] == found
    assert [segment.ledger_id for segment in found] == [draft.ledger_id for draft in (*one, *other)]


@given(drafts(), st.integers(0, 9), st.integers(0, 9))
def test_given_ids_that_are_too_low_are_refused_unless_it_is_decided(
    some: list[SegmentDraft], max_txid: int, now: int
) -> None:
    state = StreamState([], 0, max_txid)
    decided = place(state, some, now, decided=True)
    try:
        assert place(state, some, now) == decided
        kept = True
    except TxidOrderError:
        kept = False
    as_given = [draft.first_txid in (None, segment.first_txid) for draft, segment in zip(some, decided, strict=True)]
    assert kept == all(as_given)


def test_what_cannot_be_published_is_refused() -> None:
    draft = SegmentDraft(7, 1, 0, 0)
    with pytest.raises(EndOfStreamError):
        place(StreamState([], 0, END_TXID), [draft], 0)
    for wrong in ({"a": ()}, {"a": (draft,), "b": (draft,)}):
        with pytest.raises(IncorrectParameterError):
            check_drafts(wrong)
    for values in ((1, 0, 0, 0), (1, 1, -1, 0), (1, 1, 0, 0, 5), (1, 1, 0, 0, 5, 4), (1, 1, 0, 0, 1, END_TXID)):
        with pytest.raises(IncorrectParameterError):
            SegmentDraft(*values)
    segments = place(StreamState([], 0, 0), [draft], 0)
    assert already_there(StreamState(segments, 1, 0), [draft]) == (1, 1)
    assert already_there(StreamState([], 0, 0), [draft]) is None
    with pytest.raises(IncorrectParameterError):
        already_there(StreamState(segments, 1, 0), [draft, SegmentDraft(8, 1, 0, 0)])
    with pytest.raises(StreamMetadataError):
        SegmentDraft.from_json({"ledger_id": 1})
    assert SegmentDraft.from_json(draft.to_json()) == draft
