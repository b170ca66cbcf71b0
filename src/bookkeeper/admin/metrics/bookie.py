"""What a bookie tells of itself, under the names that dashboards ask for (spec autorecovery-admin §10.6)."""

from __future__ import annotations

from ...bookie.bookie import Bookie
from ...bookie.node.disks import used_share
from ...bookie.storage.db_directory import DbDirectory
from ...bookie.storage.db_storage import DbLedgerStorage
from ...bookie.storage.garbage import GarbageCollector
from .exposition import Exposition

SERVER = "bookkeeper_server"


def bookie_metrics(bookie: Bookie, out: Exposition) -> None:
    """Of a bookie that serves."""
    parts = bookie.parts
    out.gauge("bookie_SERVER_STATUS", parts.state.server_status)
    _requests(bookie, out)
    _journals(bookie, out)
    _disks(bookie, out)
    storage = parts.storage
    if isinstance(storage, DbLedgerStorage):
        for directory in storage.directories:
            _directory(directory, out)
        if storage.garbage_collector is not None:
            _garbage(storage.garbage_collector, storage, out)
    scrubber = parts.stats.scrubber
    out.latency("scrubber_runTime", scrubber.runTime)
    out.counter("scrubber_detectedScrubErrors", scrubber.detectedScrubErrors)
    out.counter("scrubber_detectedFatalScrubErrors", scrubber.detectedFatalScrubErrors)
    out.counter("scrubber_entriesRepaired", scrubber.entriesRepaired)
    out.counter("scrubber_entriesNotRepaired", scrubber.entriesNotRepaired)


def _requests(bookie: Bookie, out: Exposition) -> None:
    stats = bookie.stats
    for name in (
        "ADD_ENTRY",
        "READ_ENTRY",
        "FORCE_LEDGER",
        "WRITE_LAC",
        "READ_LAC",
        "GET_BOOKIE_INFO",
        "GET_LIST_OF_ENTRIES_OF_LEDGER",
    ):
        found = getattr(stats, name)
        out.latency(f"{SERVER}_{name}", found)
        out.latency(f"{SERVER}_{name}_REQUEST", found)
    out.latency(f"{SERVER}_READ_ENTRY_FENCE_REQUEST", stats.READ_ENTRY_FENCE_REQUEST)
    out.latency(f"{SERVER}_READ_ENTRY_LONG_POLL_REQUEST", stats.READ_ENTRY_LONG_POLL_REQUEST)
    out.latency("bookie_BOOKIE_ADD_ENTRY", stats.ADD_ENTRY)
    out.latency("bookie_BOOKIE_READ_ENTRY", stats.READ_ENTRY)
    out.counter("bookie_BOOKIE_FORCE_LEDGER", stats.FORCE_LEDGER.succeeded)
    out.gauge(f"{SERVER}_ADD_ENTRY_BLOCKED", stats.ADD_ENTRY_BLOCKED)
    out.gauge(f"{SERVER}_READ_ENTRY_BLOCKED", stats.READ_ENTRY_BLOCKED)
    out.counter(f"{SERVER}_ADD_ENTRY_REJECTED", stats.ADD_ENTRY_REJECTED)
    out.counter(f"{SERVER}_READ_ENTRY_REJECTED", stats.READ_ENTRY_REJECTED)
    out.counter("bookie_rejected_write_requests", stats.ADD_ENTRY_REJECTED)
    out.counter("bookie_WRITE_BYTES", stats.WRITE_BYTES)
    out.counter("bookie_READ_BYTES", stats.READ_BYTES)
    out.gauge(f"{SERVER}_CONNECTIONS", len(bookie.connections()))
    out.counter(f"{SERVER}_CONNECTIONS_REFUSED", stats.connections_refused)
    out.counter(f"{SERVER}_CONNECTIONS_BROKEN", stats.connections_broken)
    out.counter(f"{SERVER}_RESPONSES_DROPPED", stats.responses_dropped)


def _journals(bookie: Bookie, out: Exposition) -> None:
    out.gauge("bookie_JOURNAL_DIRS", len(bookie.journals))
    for journal in bookie.journals:
        labels = {"journalIndex": str(journal.index)}
        stats, room = journal.stats, journal.room
        out.latency("bookie_journal_JOURNAL_ADD_ENTRY", bookie.stats.ADD_ENTRY, labels)
        out.latency("bookie_journal_JOURNAL_SYNC", stats.sync, labels)
        out.counter("bookie_journal_JOURNAL_WRITE_BYTES", stats.bytes, labels)
        out.counter("bookie_journal_JOURNAL_QUEUE_SIZE", room.records, labels)
        out.gauge("bookie_journal_JOURNAL_MEMORY_MAX", max(room.limit, 0), labels)
        out.gauge("bookie_journal_JOURNAL_MEMORY_USED", room.bytes, labels)
        out.counter("bookie_journal_JOURNAL_RECORDS", stats.records, labels)
        out.counter("bookie_journal_JOURNAL_BATCHES", stats.batches, labels)
        out.counter("bookie_journal_JOURNAL_NUM_FLUSH_MAX_OUTSTANDING_BYTES", stats.full_batches, labels)


def _disks(bookie: Bookie, out: Exposition) -> None:
    watch = bookie.parts.disks.ledgers
    out.gauge("bookie_ledger_num_dirs", len(watch.roots))
    out.gauge("bookie_ledger_writable_dirs", len(watch.writable))
    for root, usage in watch.usage.items():
        out.gauge(f"bookie_ledger_dir_{root.replace('/', '_')}_usage", round(used_share(usage) * 100, 3))


def _directory(directory: DbDirectory, out: Exposition) -> None:
    labels = {"indexDir": directory.index_path, "ledgerDir": directory.path}
    caches = directory.caches
    written = caches.write_caches()
    out.gauge("bookie_ledgers_count", len(directory.index.ledgers), labels)
    out.gauge("bookie_write_cache_size", sum(cache.used for cache in written), labels)
    out.gauge("bookie_write_cache_count", sum(cache.entries for cache in written), labels)
    out.gauge("bookie_read_cache_size", caches.read_cache.used, labels)
    out.gauge("bookie_read_cache_count", caches.read_cache.entries, labels)
    out.latency("bookie_flush", caches.flushes, labels)
    out.counter("bookie_write_cache_hits", caches.writes_hit, labels)
    out.counter("bookie_write_cache_misses", caches.hits + caches.misses, labels)
    out.counter("bookie_read_cache_hits", caches.hits, labels)
    out.counter("bookie_read_cache_misses", caches.misses, labels)


def _garbage(collector: GarbageCollector, storage: DbLedgerStorage, out: Exposition) -> None:
    out.counter("bookie_MAJOR_COMPACTION_TOTAL", collector.major.count)
    out.counter("bookie_MINOR_COMPACTION_TOTAL", collector.minor.count)
    out.counter("bookie_ENTRY_LOCATION_COMPACTION_TOTAL", collector.indexes.count)
    out.gauge("bookie_ACTIVE_LEDGER_TOTAL", len(storage.ledgers()))
    logs, total, living = collector.usage()
    out.gauge("bookie_ACTIVE_ENTRY_LOG_TOTAL", logs)
    out.gauge("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", living)
    out.gauge("bookie_ENTRY_LOG_SPACE_BYTES", total)
    out.counter("bookie_RECLAIMED_DELETION_SPACE_BYTES", collector.deleted_bytes)
    out.counter("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", collector.compacted_bytes)
    out.latency("bookie_THREAD_RUNTIME", collector.passes)
    if collector.ledgers is not None:
        out.counter("bookie_DELETED_LEDGER_TOTAL", collector.ledgers.deleted)
