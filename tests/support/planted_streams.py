"""Planted bugs of streams: rules of publishing and truncation, each switched off for as long as a test lasts.

A story that finds nothing proves nothing. Production code knows no such switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest

from bookkeeper.metadata.tree import Write
from bookkeeper.streams.formats.segment import SegmentMetadata, Truncation
from bookkeeper.streams.named_segments import NamedSegments
from bookkeeper.streams.names.lock import LogLock
from bookkeeper.streams.publishing import publisher
from bookkeeper.streams.publishing.marker import encode_marker
from bookkeeper.streams.publishing.publisher import Publisher
from bookkeeper.streams.publishing.staging import sink_path
from bookkeeper.streams.reading import cursor, reader
from bookkeeper.streams.retention import truncation
from bookkeeper.streams.writer import StreamWriter


def _wrong_last_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is completed as if it had a record less."""
    place = publisher.place

    def placed(*arguments: Any, **keywords: Any) -> list[SegmentMetadata]:
        found, lost = [], 0
        for segment in place(*arguments, **keywords):
            fewer = 1 if segment.records > 1 else 0
            found.append(
                replace(
                    segment,
                    records=segment.records - fewer,
                    last_slot=segment.last_slot - fewer,
                    start_sequence_id=segment.start_sequence_id - lost,
                )
            )
            lost += fewer
        return found

    monkeypatch.setattr(publisher, "place", placed)


def _marker_in_a_transaction_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The segments are published first, then it is noted that they are."""
    closing, publish = Publisher._closing, Publisher._publish

    def without(self: Publisher, order: Any, marker: Any, run: Any) -> Any:
        vars(self)["noted"] = marker
        return [each for each in closing(self, order, marker, run) if not _is_marker(each)]

    async def then(self: Publisher, order: Any, locks: Any) -> Any:
        done = await publish(self, order, locks)
        if done is not None and done.streams and vars(self).pop("noted", None) is not None:
            marker, version = await self.load(order.key.sink)
            if marker is None or marker.epoch < order.key.epoch:
                note = self._marker(order.key, None, done.streams, 0)
                assert note is not None
                path = sink_path(self._namespace, order.key.sink)
                await self._tree.write(path, encode_marker(note), version if version is not None else -1)
        return done

    monkeypatch.setattr(Publisher, "_closing", without)
    monkeypatch.setattr(Publisher, "_publish", then)


def _is_marker(operation: Any) -> bool:
    return isinstance(operation, Write) and b'"fingerprint"' in operation.data


def _lock_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers do not wait for the writer."""

    class Unlocked(LogLock):
        async def acquire(self, timeout: float | None = 30.0) -> None:
            """Nothing."""

        def check(self) -> None:
            """Nothing."""

    locked = Publisher._locked

    def ignoring(self: Publisher, names: Any, timeout: Any) -> Any:
        class Streams:
            segments = staticmethod(self._streams.segments)

            @staticmethod
            async def lock(name: str, timeout: float | None) -> LogLock:
                tree, runtime = self._tree, self._runtime
                return Unlocked(tree, runtime, f"{self._namespace}/{name}/<default>/lock", "nobody")

        other = Publisher(self._tree, self._namespace, Streams(), self._ledgers, self._runtime)
        return locked(other, names, timeout)

    monkeypatch.setattr(Publisher, "_locked", ignoring)


def _deletes_what_is_truncated_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers go before all of their records are truncated."""

    def deletable(segments: Sequence[SegmentMetadata]) -> list[SegmentMetadata]:
        whole = [segment for segment in segments if segment.completed][:-1]
        return list(takewhile(lambda segment: segment.truncation is not Truncation.ACTIVE, whole))

    monkeypatch.setattr(truncation, "deletable", deletable)


def _counts_a_part_before_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """An intent goes on in the marker first, then its segments follow."""
    publish_part = Publisher._publish_part

    async def early(self: Publisher, intent: Any, drafts: Any, locks: Any) -> bool:
        tree = self._tree

        class Split:
            limits = tree.limits

            def __getattr__(self, name: str) -> Any:
                return getattr(tree, name)

            async def commit(self, operations: Sequence[Any]) -> Any:
                await tree.commit([each for each in operations if _is_marker(each)])
                return await tree.commit([each for each in operations if not _is_marker(each)])

        other = Publisher(Split(), self._namespace, self._streams, self._ledgers, self._runtime)  # type: ignore[arg-type]
        return await publish_part(other, intent, drafts, locks)

    monkeypatch.setattr(Publisher, "_publish_part", early)


def _recovers_without_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes a stream over reads what is confirmed, and leaves the former writer alone."""
    monkeypatch.setattr(NamedSegments, "recover", NamedSegments.open)


def _reader_skips_to_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a segment a reader goes on with the newest one."""

    def newest(segments: Sequence[SegmentMetadata], done: SegmentMetadata, **_: Any) -> SegmentMetadata | None:
        later = [segment for segment in segments if segment.number > done.number]
        return cursor.numbered(segments, later[-1]) if later else None

    monkeypatch.setattr(reader, "find_next", newest)


def _acknowledges_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were given without waiting count as stored as soon as they have a position."""

    async def at_once(*_: Any) -> None:
        """Nothing."""

    monkeypatch.setattr(StreamWriter, "_stored", at_once)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "wrong last id": _wrong_last_id,
    "marker in a transaction of its own": _marker_in_a_transaction_of_its_own,
    "lock ignored": _lock_ignored,
    "deletes what is truncated in part": _deletes_what_is_truncated_in_part,
    "counts a part before it is published": _counts_a_part_before_it_is_published,
    "recovers without fencing": _recovers_without_fencing,
    "reader skips to the newest": _reader_skips_to_the_newest,
    "acknowledges at once": _acknowledges_at_once,
}
"""What each does says its docstring."""
