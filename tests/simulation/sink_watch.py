"""What must hold of a sink's streams after every change of the metadata (spec streams §15.7, §17.6).

Sees each change as the store takes it. A segment becomes visible only if its ledger is of an attempt that the driver
counted, or was made by the driver in the same run, together with the marker that names its run, once; then neither
segment nor ledger ever goes. When the marker says that a batch is done, all of it is there, and no record more. A sink
changes its query only if that was allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from bookkeeper.metadata.memory import MemoryStore
from bookkeeper.metadata.records.store import Record, Topic
from bookkeeper.spark.writing.tasks import Written
from bookkeeper.streams.formats.segment import decode_segment

SEGMENT = re.compile(r"\d\d/namespace/([^/.]+)/<default>/ledgers/logrecs_\d+")
TOKEN = re.compile(r"\d\d/namespace/\.sinks/[^/]+/staging/\d+-([^/]+)/(\d{18})")
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
        self._records: dict[str, int] = {}
        """And how many records these have."""
        self._attempted: set[int] = set()
        """Ledgers of any attempt that was finished."""
        self._runs: dict[int, str] = {}
        """Of ledgers."""
        self._uncounted: set[str] = set()
        self._queries: dict[str, str | None] = {}

    def attempted(self, message: Written) -> None:
        """An attempt is finished; whether it counts is the driver's to say."""
        self._attempted |= {draft["ledger_id"] for _, draft in message.drafts}

    def offer(self, run: str, messages: Sequence[Written | None], *, counted: bool = True) -> None:
        """A driver is about to publish what these messages tell of."""
        ledgers = {draft["ledger_id"] for each in messages if each is not None for _, draft in each.drafts}
        self._offered[run] = ledgers
        self._records[run] = sum(draft["records"] for each in messages if each is not None for _, draft in each.drafts)
        if not counted:
            self._uncounted.add(run)

    def _changed(self, topic: Topic, key: str, record: Record | None) -> None:
        if self._before is not None:
            self._before(topic, key, record)
        if topic is Topic.LEDGERS and record is None and int(key) in self.published:
            self.wrong.append(f"ledger {int(key)} was deleted, and is published")
        elif topic is Topic.TREE and SEGMENT.fullmatch(key):
            self._segment(key, record)
        elif topic is Topic.TREE and record is not None and (token := TOKEN.fullmatch(key)):
            self._runs.setdefault(int(token[2]), token[1])
        elif topic is Topic.TREE and (sink := MARKER.fullmatch(key)) and record is not None and record.data:
            self._marker(sink[1], json.loads(record.data))

    def _segment(self, key: str, record: Record | None) -> None:
        if record is None:
            self.wrong.append(f"segment {key} is gone")
            return
        ledger = decode_segment(record.data).ledger_id
        if self.published.setdefault(ledger, key) != key:
            self.wrong.append(f"ledger {ledger} is published twice")
        run = self._runs.get(ledger)
        own = self._offered.get(run or "")
        if run is None or own is None or (ledger not in own and ledger in self._attempted):
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
            records = self._store.records(Topic.TREE)
            segments = [decode_segment(record.data) for key, record in records.items() if SEGMENT.fullmatch(key)]
            there = sum(each.records for each in segments if self._runs.get(each.ledger_id) == marker["staged"])
            wanted = self._records.get(marker["staged"], 0)
            if there != wanted:
                self.wrong.append(f"sink {sink} has published epoch {marker['epoch']}: {there} records, not {wanted}")
