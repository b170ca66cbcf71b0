"""`/api/v1/bookie/gc...`: garbage collection and compaction by hand (spec autorecovery-admin §9.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...bookie.bookie import Bookie
from ...bookie.storage.db_storage import DbLedgerStorage
from ...bookie.storage.garbage import GarbageCollector
from ..http.messages import Handler, Reply, Request, as_json, text, truth

ONLY_GC = text("Not allowed method. Should be PUT to trigger GC, Or GET to get Force GC state.", 405)
ONLY_INDEX = text(
    "Not found method. Should be PUT to trigger entry location compact, Or GET to get entry location compact state.",
    405,
)


class CollectionEndpoints:
    """Those of one bookie's garbage collector."""

    def __init__(self, bookie: Bookie, when_ready: Callable[[Handler], Handler]) -> None:
        self._bookie = bookie
        self._when_ready = when_ready

    def handlers(self) -> Mapping[str, Handler]:
        """By path."""
        root = "/api/v1/bookie"
        found = {
            f"{root}/gc": self.collect,
            f"{root}/gc_details": self.details,
            f"{root}/gc/suspend_compaction": self.suspend,
            f"{root}/gc/resume_compaction": self.resume,
            f"{root}/entry_location_compact": self.compact_index,
        }
        return {path: self._when_ready(handler) for path, handler in found.items()}

    @property
    def _collector(self) -> GarbageCollector:
        storage = self._bookie.storage
        assert isinstance(storage, DbLedgerStorage)
        assert storage.garbage_collector is not None
        return storage.garbage_collector

    async def collect(self, request: Request) -> Reply:
        collector = self._collector
        if request.method == "GET":
            return as_json({"is_in_force_gc": _word(collector.forced)})
        if request.method != "PUT":
            return ONLY_GC
        asked = request.json_object() if request.body else {}
        collector.force(
            minor=truth(asked.get("forceMinor"), default=not collector.minor.held),
            major=truth(asked.get("forceMajor"), default=not collector.major.held),
        )
        return as_json(f"Triggered GC on BookieServer: {self._bookie.bookie_id}")

    async def details(self, request: Request) -> Reply:
        """One collector serves all directories: each has the same numbers, but for its index."""
        if request.method != "GET":
            return text("Only support GET method to retrieve GC details.", 404)
        collector = self._collector
        minor, major, indexes = collector.minor, collector.major, collector.indexes
        one: dict[str, Any] = {
            "forceCompacting": collector.forced,
            "majorCompacting": major.running,
            "minorCompacting": minor.running,
            "lastMajorCompactionTime": major.ended_ms,
            "lastMinorCompactionTime": minor.ended_ms,
            "lastEntryLocationCompactionTime": indexes.ended_ms,
            "majorCompactionCounter": major.count,
            "minorCompactionCounter": minor.count,
            "entryLocationCompactionCounter": indexes.count,
        }
        return as_json([one for _ in indexes.running])

    async def suspend(self, request: Request) -> Reply:
        return self._hold(request, "suspend", held=True)

    async def resume(self, request: Request) -> Reply:
        return self._hold(request, "resume", held=False)

    def _hold(self, request: Request, verb: str, *, held: bool) -> Reply:
        collector = self._collector
        if request.method == "GET" and held:
            return as_json(
                {"isMajorGcSuspended": _word(collector.major.held), "isMinorGcSuspended": _word(collector.minor.held)}
            )
        if request.method != "PUT":
            return text(f"Not found method. Should be PUT to {verb} major or minor compaction", 404)
        if not request.body:
            return text("Empty request body", 400)
        asked = request.json_object()
        done = []
        for name, kind in (("Major", collector.major), ("Minor", collector.minor)):
            if truth(asked.get(f"{verb}{name}"), default=False):
                kind.held = held
                done.append(f"{verb.capitalize()} {name.lower()}GC on BookieServer: {self._bookie.bookie_id}")
        if not done:
            return text(f"No {verb}Major or {verb}Minor params found", 400)
        return as_json(", ".join(done))

    async def compact_index(self, request: Request) -> Reply:
        collector, bookie = self._collector, self._bookie.bookie_id
        if request.method == "GET":
            return as_json(dict(collector.indexes.running))
        if request.method != "PUT":
            return ONLY_INDEX
        if not request.body:
            return text("Empty request body", 400)
        asked = request.json_object()
        if not truth(asked.get("entryLocationRocksDBCompact"), default=False):
            return text("Not trigger Entry Location RocksDB compact.")
        known = list(collector.indexes.running)
        places = asked.get("entryLocations")
        if places is None:
            collector.compact_indexes(known)
            return as_json(f"Triggered entry Location RocksDB compact on bookie:{bookie}")
        chosen = [place.strip() for place in str(places).split(",")]
        if not set(chosen) <= set(known):
            return as_json(
                f"Specified trigger compact entryLocations: {places} is invalid. Bookie entry location RocksDB path: "
                f"[{', '.join(known)}].",
                400,
            )
        collector.compact_indexes(chosen)
        return as_json(f"Triggered entry Location RocksDB: {places} compact on bookie:{bookie}.")


def _word(value: bool) -> str:
    return str(value).lower()
