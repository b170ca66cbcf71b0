"""Small drafts of a batch become one segment, before they are published (spec streams §17.6).

Theory of operation

What wears a stream out is the number of its segments, and each task of a batch makes one. So the driver copies drafts
that are smaller than a segment should be, and stand beside one another, into one that takes their place: a draft of the
same run, with a token of its own. Nothing else changes. What is published is published at once as before; the small
ones are then what a published run has left, and go as the ledgers of repeated attempts do. A driver that dies meanwhile
leaves a run like any other.

Merging saves, and nothing depends on it: what cannot be merged is published as it is. That decides, too, what it means
if the run is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...errors import BookKeeperError
from ...streams.formats.segment import MOST_RECORDS
from ...streams.namespace import Namespace
from ...streams.policy import WritePolicy
from ...streams.publishing.drafts import SegmentDraft
from .sink_options import MergePolicy
from .tasks import BEAT_SECONDS, ENTRY_BYTES

log = logging.getLogger(__name__)

MERGED_AT_ONCE = 4
"""Drafts that are made of others at the same time."""


class Merge(NamedTuple):
    """Drafts of a stream that become one."""

    stream: str
    first: int
    end: int
    """Behind the last."""
    size: int
    """Bytes to be copied."""


Drafts = Mapping[str, Sequence[SegmentDraft]]


def plan(drafts: Drafts, policy: MergePolicy) -> list[Merge]:
    """What is worth it, where the least has to be copied for each draft less first. Pure."""
    found = [merge for stream, some in drafts.items() for merge in _neighbours(stream, some, policy.target)]
    chosen, room = [], policy.most
    for merge in sorted(found, key=lambda each: each.size / (each.end - each.first - 1)):
        if merge.size <= room:
            chosen.append(merge)
            room -= merge.size
    return chosen


def _neighbours(stream: str, drafts: Sequence[SegmentDraft], target: int) -> list[Merge]:
    """Small ones beside one another, until they are large enough together."""
    found: list[Merge] = []
    first, size, records = 0, 0, 0
    for number, draft in enumerate(drafts):
        if not 0 < draft.size < target:
            first, size, records = number + 1, 0, 0
            continue
        if size >= target or records + draft.records > MOST_RECORDS:
            first, size, records = number, 0, 0
        size, records = size + draft.size, records + draft.records
        if found and found[-1].first == first:
            found.pop()
        if number > first:
            found.append(Merge(stream, first, number + 1, size))
    return found


async def merge_small(namespace: Namespace, run: str, drafts: Drafts, policy: MergePolicy) -> Drafts:
    """The drafts of a run, small ones merged; their order stays."""
    merges = plan(drafts, policy)
    made: list[SegmentDraft | None] = []
    for start in range(0, len(merges), MERGED_AT_ONCE):
        some = merges[start : start + MERGED_AT_ONCE]
        made += await asyncio.gather(*(_merged(namespace, run, drafts, merge, policy) for merge in some))
    result = {stream: list(some) for stream, some in drafts.items()}
    for merge, draft in sorted(zip(merges, made, strict=True), key=lambda each: each[0], reverse=True):
        if draft is not None:  # from the end on: what is before keeps its place
            result[merge.stream][merge.first : merge.end] = [draft]
    return result


async def _merged(
    namespace: Namespace, run: str, drafts: Drafts, merge: Merge, policy: MergePolicy
) -> SegmentDraft | None:
    """None: they stay as they are."""
    writing = WritePolicy(buffer_bytes=ENTRY_BYTES, compression=policy.compression)
    try:
        staging = await namespace.join_staging(run)
        await staging.beat(after=BEAT_SECONDS)
        return await staging.merge(merge.stream, drafts[merge.stream][merge.first : merge.end], writing)
    except BookKeeperError as error:
        log.warning("stream %s: %d small segments are not merged: %s", merge.stream, merge.end - merge.first, error)
        return None
