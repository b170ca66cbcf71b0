"""What a position or an age means for the segments of a stream (spec streams §10.1, §15.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ConfigurationError
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.formats.segment import SegmentMetadata, Truncation, decode_segment, encode_segment
from bookkeeper.streams.retention.choice import (
    RetentionMode,
    RetentionPolicy,
    attainable,
    cut,
    deletable,
    expired,
    marks,
)


@st.composite
def streams(draw: st.DrawFn) -> list[SegmentMetadata]:
    """Completed segments, and perhaps open ones behind."""
    first = draw(st.integers(1, 4))
    completed = draw(st.integers(0, 5))
    found = []
    for n in range(completed + draw(st.integers(0, 2))):
        segment = SegmentMetadata(ledger_id=100 + n, first_txid=n, number=first + n)
        if n < completed:
            last = DLSN(first + n, draw(st.integers(0, 3)), draw(st.integers(0, 3)))
            segment = segment.complete(last_txid=n, records=1, last=last, completed_ms=1000 * n, start_sequence_id=n)
        found.append(segment)
    return found


POSITIONS = st.builds(DLSN, st.integers(0, 12), st.integers(0, 4), st.integers(0, 4))


def truncated(segments: list[SegmentMetadata], before: DLSN) -> list[SegmentMetadata]:
    changes = dict(marks(segments, before))
    return [changes.get(segment, segment) for segment in segments]


def readable(segments: list[SegmentMetadata], at: DLSN) -> bool:
    """Whether a reader that begins at the beginning meets this position."""
    for segment in segments:
        if segment.number == at.segment:
            return segment.truncation is not Truncation.TRUNCATED and at >= segment.first
    return False


@given(streams(), POSITIONS)
def test_exactly_what_is_before_the_position_is_not_read_any_more(
    segments: list[SegmentMetadata], before: DLSN
) -> None:
    end = attainable(segments, before)
    left = truncated(segments, end)
    for segment in segments:
        for entry in range(5):
            for slot in range(5):
                at = DLSN(segment.number, entry, slot)
                is_record = not segment.completed or (entry, slot) <= (segment.last_entry, segment.last_slot)
                if is_record:
                    assert readable(left, at) == (at >= end)


@given(streams(), POSITIONS, POSITIONS)
def test_truncation_never_goes_back(segments: list[SegmentMetadata], one: DLSN, other: DLSN) -> None:
    twice = truncated(truncated(segments, attainable(segments, one)), attainable(segments, other))
    once = truncated(segments, attainable(segments, max(one, other)))
    assert [begins(segment) for segment in twice] == [begins(segment) for segment in once]


def begins(segment: SegmentMetadata) -> DLSN | None:
    return None if segment.truncation is Truncation.TRUNCATED else segment.first


@given(streams(), POSITIONS)
def test_marking_twice_is_marking_once(segments: list[SegmentMetadata], before: DLSN) -> None:
    assert marks(truncated(segments, before), before) == []


@given(streams(), POSITIONS)
def test_open_segments_and_those_to_come_are_never_reached(segments: list[SegmentMetadata], before: DLSN) -> None:
    end = attainable(segments, before)
    open_or_new = DLSN(
        next((s.number for s in segments if not s.completed), segments[-1].number + 1 if segments else 1), 0, 0
    )
    assert end <= open_or_new
    assert all(old.completed for old, _ in marks(segments, DLSN(99, 0, 0)))


@given(streams(), POSITIONS)
def test_marks_can_be_stored(segments: list[SegmentMetadata], before: DLSN) -> None:
    for _, new in marks(segments, before):
        assert decode_segment(encode_segment(new)) == new


@pytest.mark.parametrize("version", [1, 2])
def test_old_segments_are_marked_as_far_as_their_format_goes(version: int) -> None:
    segment = SegmentMetadata(
        ledger_id=1, first_txid=1, number=version - 1, version=version, completed=True, last_entry=5, last_slot=0
    )
    assert marks([segment], DLSN(1, 3, 0)) == []
    assert [new.truncation for _, new in marks([segment], DLSN(2, 0, 0))] == [Truncation.TRUNCATED] * (version - 1)


@given(streams(), st.integers(0, 7000), st.integers(0, 4), st.integers(1, 4), st.none() | POSITIONS)
def test_nothing_young_unread_or_needed_expires(
    segments: list[SegmentMetadata], now: int, age: int, keep: int, unread: DLSN | None
) -> None:
    policy = RetentionPolicy(RetentionMode.AUTO, max_age=age, min_segments=keep)
    gone = expired(segments, policy, now, unread)
    completed = [segment for segment in segments if segment.completed]
    assert gone == segments[: len(gone)]
    assert all(now - segment.completed_ms > age * 1000 for segment in gone)
    assert unread is None or all(segment.number < unread.segment for segment in gone)
    assert not gone or len(completed) - len(gone) >= keep
    following = segments[len(gone)] if len(gone) < len(segments) else None
    if following is not None and following.completed and len(completed) - len(gone) > keep:
        assert now - following.completed_ms <= age * 1000 or (unread is not None and following.number >= unread.segment)


@given(streams(), st.integers(0, 7000))
def test_nothing_is_deleted_by_default(segments: list[SegmentMetadata], now: int) -> None:
    assert RetentionPolicy().mode is RetentionMode.NONE
    for policy in (RetentionPolicy(), RetentionPolicy(RetentionMode.EXPLICIT, max_age=0)):
        assert cut(policy, expired(segments, policy, now)) is None


@given(streams(), st.integers(0, 100), st.none() | st.integers(0, 4), st.data())
def test_the_oldest_go_while_there_are_too_many_bytes(
    segments: list[SegmentMetadata], most: int, age: int | None, data: st.DataObject
) -> None:
    sizes = {segment.ledger_id: data.draw(st.integers(0, 50)) for segment in segments}
    policy = RetentionPolicy(RetentionMode.AUTO, max_age=age, max_bytes=most)
    gone = expired(segments, policy, 5000, sizes=sizes)
    by_age = expired(segments, RetentionPolicy(RetentionMode.AUTO, max_age=age), 5000) if age is not None else []
    left = [segment for segment in segments if segment.completed][len(gone) :]

    def total(some: list[SegmentMetadata]) -> int:
        return sum(sizes[segment.ledger_id] for segment in some)

    assert gone == segments[: len(gone)]
    assert len(left) <= 1 or total(left) <= most
    assert len(gone) == len(by_age) or total([*gone[-1:], *left]) > most


@given(streams(), POSITIONS)
def test_the_newest_completed_segment_stays(segments: list[SegmentMetadata], before: DLSN) -> None:
    left = truncated(segments, DLSN(99, 0, 0))
    gone = deletable(left)
    completed = [segment for segment in left if segment.completed]
    assert gone == completed[:-1]
    assert deletable([replace(segment, status=0) for segment in left]) == []


@pytest.mark.parametrize(
    "wrong",
    [{"max_age": -1}, {"max_bytes": -1}, {"mode": RetentionMode.AUTO}, {"min_segments": 0}],
    ids=["negative", "negative size", "no rule", "none kept"],
)
def test_a_policy_without_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        RetentionPolicy(**wrong)  # type: ignore[arg-type]
