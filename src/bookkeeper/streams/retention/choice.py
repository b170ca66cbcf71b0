"""What a position or an age means for the segments of a stream (spec streams §10.1, §15.4). Pure.

Segments go from the old end, and whole. The newest completed one always stays: the number and the first sequence id of
the next segment come from it. One that is still written is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, takewhile

from ...errors import ConfigurationError
from ..dlsn import DLSN
from ..formats.segment import FIRST_NUMBERED, FIRST_WITH_TRUNCATION, SegmentMetadata, Truncation

MIN_KEPT = 1
"""Completed segments that every stream keeps."""


class RetentionMode(StrEnum):
    """Who decides what leaves a stream."""

    NONE = "none"
    """Nobody: nothing is ever deleted."""
    EXPLICIT = "explicit"
    """The application: what it truncated is deleted."""
    AUTO = "auto"
    """Its age, its size, and the application."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What is deleted of a stream. Raises `ConfigurationError` for what makes no sense."""

    mode: RetentionMode = RetentionMode.NONE
    """Who decides."""
    max_age: float | None = None
    """Seconds since a segment was completed: older ones may go. None: no such rule."""
    max_bytes: int | None = None
    """Of all completed segments together, as their ledgers have them: where it is more, the oldest may go. None: no
    such rule. With both rules, one of them is enough; with none of them, all that was truncated may go."""
    min_segments: int = MIN_KEPT
    """Completed segments that stay, however old they are."""
    protect_subscriptions: bool = True
    """What a subscriber has not read stays, however old it is."""

    def __post_init__(self) -> None:
        if self.max_age is not None and self.max_age < 0:
            raise ConfigurationError(f"max_age {self.max_age}: give seconds, 0 or more")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise ConfigurationError(f"max_bytes {self.max_bytes}: give 0 or more")
        if self.mode is RetentionMode.AUTO and self.max_age is None and self.max_bytes is None:
            raise ConfigurationError("retention that cuts by itself needs max_age or max_bytes")
        if self.min_segments < MIN_KEPT:
            raise ConfigurationError(f"min_segments {self.min_segments}: a stream keeps at least {MIN_KEPT}")


def attainable(segments: Sequence[SegmentMetadata], before: DLSN) -> DLSN:
    """How far a stream can be truncated, if it is to be truncated before this position: not into a segment that is
    still written, and not into those that are still to come.
    """
    completed = _completed(segments)
    end = DLSN(completed[-1].number + 1, 0, 0) if completed else DLSN(0, 0, 0)
    return min(before, end)


def marks(segments: Sequence[SegmentMetadata], before: DLSN) -> list[tuple[SegmentMetadata, SegmentMetadata]]:
    """The segments that truncating before this position changes, oldest first: as they are, and as they will be."""
    changes = []
    for segment in _completed(segments):
        marked = _marked(segment, before)
        if marked != segment:
            changes.append((segment, marked))
    return changes


def _marked(segment: SegmentMetadata, before: DLSN) -> SegmentMetadata:
    """What was marked before is never taken back."""
    if segment.truncation is Truncation.TRUNCATED or segment.version < FIRST_NUMBERED:
        return segment
    if DLSN(segment.number, segment.last_entry, segment.last_slot) < before:
        return segment.truncate(None)
    if segment.version >= FIRST_WITH_TRUNCATION and segment.first < before:
        return segment.truncate(before)
    return segment


def _completed(segments: Sequence[SegmentMetadata]) -> list[SegmentMetadata]:
    """Those before the first one that is still written."""
    return list(takewhile(lambda segment: segment.completed, segments))


def expired(
    segments: Sequence[SegmentMetadata],
    policy: RetentionPolicy,
    now_ms: int,
    unread: DLSN | None = None,
    sizes: Mapping[int, int] | None = None,
) -> list[SegmentMetadata]:
    """The segments that need not stay by their age, size and number, oldest first.

    - `unread`: the first position that a subscriber has still to read.
    - `sizes`: bytes by ledger id, if the policy asks for them.
    """
    completed = _completed(segments)
    oldest_kept = now_ms - (policy.max_age or 0) * 1000
    bytes_left = list(accumulate((sizes or {}).get(segment.ledger_id, 0) for segment in reversed(completed)))[::-1]
    by_rule = policy.max_age is not None or policy.max_bytes is not None
    gone = []
    for segment, size in zip(completed[: -policy.min_segments], bytes_left, strict=False):
        aged = policy.max_age is not None and segment.completed_ms < oldest_kept
        too_much = policy.max_bytes is not None and size > policy.max_bytes
        protected = unread is not None and policy.protect_subscriptions and segment.number >= unread.segment
        if protected or (by_rule and not aged and not too_much):
            break
        gone.append(segment)
    return gone


def cut(policy: RetentionPolicy, gone: Sequence[SegmentMetadata]) -> DLSN | None:
    """Before which position a policy truncates a stream, of which these are `expired`; None: it does not."""
    if policy.mode is not RetentionMode.AUTO or not gone:
        return None
    return DLSN(gone[-1].number + 1, 0, 0)


def deletable(segments: Sequence[SegmentMetadata]) -> list[SegmentMetadata]:
    """The segments that are truncated as a whole and can be deleted, oldest first."""
    completed = _completed(segments)
    return list(
        takewhile(
            lambda segment: segment.truncation is Truncation.TRUNCATED, completed[: max(len(completed) - MIN_KEPT, 0)]
        )
    )
