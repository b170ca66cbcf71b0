"""What must hold of a sink's streams after every change of the metadata (spec streams §15.7, §17.6).

Sees each change as the store takes it. A segment becomes visible only if its ledger is of an attempt that the driver
counted, together with the marker that names its run, once; then neither segment nor ledger ever goes. When the marker
says that a batch is done, all of it is there. A sink changes its query only if that was allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from bookkeeper.metadata.memory import MemoryStore
from bookkeeper.metadata.records.store import Record, Topic
from bookkeeper.spark.writing.tasks import Written
from bookkeeper.streams.formats.segment import decode_segment

SEGMENT = re.compile(r"\d\d/namespace/([^/.]+)/<default>/ledgers/logrecs_\d+")
MARKER = re.compile(r"\d\d/namespace/\.sinks/([^/]+)")


class SinkWatch:
    """Listens to a store; what is wrong is collected in `wrong`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._before = store.on_change
        store.on_change = self._changed
        self.wrong: list[str] = []
        self.published: dict[int, str] = {}
        """Ledgers that are segments: the key of their record."""
        self.resets: set[str] = set()
        """Queries that may take a sink over."""
        self._offered: dict[str, set[int]] = {}
        """By run, the ledgers of the attempts that its driver counts."""
        self._uncounted: set[str] = set()
        self._queries: dict[str, str | None] = {}

    def offer(self, run: str, messages: Iterable[Written | None], *, counted: bool = True) -> None:
        """A driver is about to publish what these messages tell of."""
        ledgers = {draft["ledger_id"] for each in messages if each is not None for _, draft in each.drafts}
        self._offered[run] = ledgers
        if not counted:
            self._uncounted.add(run)

    def _changed(self, topic: Topic, key: str, record: Record | None) -> None:
        if self._before is not None:
            self._before(topic, key, record)
        if topic is Topic.LEDGERS and record is None and int(key) in self.published:
            self.wrong.append(f"ledger {int(key)} was deleted, and is published")
        elif topic is Topic.TREE and SEGMENT.fullmatch(key):
            self._segment(key, record)
        elif topic is Topic.TREE and (sink := MARKER.fullmatch(key)) and record is not None and record.data:
            self._marker(sink[1], json.loads(record.data))

    def _segment(self, key: str, record: Record | None) -> None:
        if record is None:
            self.wrong.append(f"segment {key} is gone")
            return
        ledger = decode_segment(record.data).ledger_id
        if self.published.setdefault(ledger, key) != key:
            self.wrong.append(f"ledger {ledger} is published twice")
        run = next((run for run, ledgers in self._offered.items() if ledger in ledgers), None)
        if run is None:
            self.wrong.append(f"ledger {ledger} is published, and its attempt does not count")
        elif run not in self._uncounted and run not in self._staged():
            self.wrong.append(f"ledger {ledger} is published, and no marker says so")
        if f"{ledger}" not in {str(int(each)) for each in self._store.records(Topic.LEDGERS)}:
            self.wrong.append(f"ledger {ledger} is published, and does not exist")

    def _staged(self) -> set[str]:
        """Runs that markers name."""
        records = self._store.records(Topic.TREE)
        return {json.loads(each.data)["staged"] for key, each in records.items() if MARKER.fullmatch(key) and each.data}

    def _marker(self, sink: str, marker: dict[str, str]) -> None:
        query = marker["query"]
        if self._queries.setdefault(sink, query) != query and query not in self.resets:
            self.wrong.append(f"sink {sink} was {self._queries[sink]}'s, and is {query}'s")
        self._queries[sink] = query
        if marker["state"] == "done":
            segments = [key for key in self._store.records(Topic.TREE) if SEGMENT.fullmatch(key)]
            there = {decode_segment(self._store.records(Topic.TREE)[key].data).ledger_id for key in segments}
            if missing := self._offered.get(marker["staged"], set()) - there:
                self.wrong.append(f"sink {sink} has published epoch {marker['epoch']}, but not the ledgers {missing}")
