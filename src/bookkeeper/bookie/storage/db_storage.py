"""The storage engine with a RocksDB index: Java's DbLedgerStorage, the one that Pulsar uses (spec bookie-storage §6).

A ledger lives in directory `ledger id mod number of directories`; each directory is independent (`db_directory`): its
own caches, entry log ids, indexes and flushes. What is decided here is only which directory, and each one's share of
the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...config import ServerConfiguration
from ...errors import ConfigurationError
from ...metadata.api import MetadataDriver
from ...protocol.messages import AddRun
from ...runtime import Runtime
from ...types import BookieId
from ..file_names import current
from .api import RUN_READS, LedgerStorage
from .collection.ledgers import LedgerCollector
from .db_directory import DbDirectory
from .directory_jobs import DirectoryOptions
from .examine import Examined, Judge
from .garbage import GarbageCollector
from .index.ledger_data import NEEDS_INTEGRITY_CHECK

MIB = 1 << 20

MEMORY_SHARE = 4
"""Without `directMemoryBudgetMb`, the budget is physical memory divided by this, but not more than:"""
MAX_DEFAULT_BUDGET = 2048 * MIB

CACHE_SHARE = 4
"""Write cache and read cache each get the budget divided by this, unless set."""

LEDGERS_BLOCK_CACHE = 4 * MIB
"""All ledgers are in memory: the database is read at start only."""

RESERVE_PART = 8
"""One part in so many of the cache that takes entries is kept for peers that want little."""


def memory_budget(runtime: Runtime, configuration: ServerConfiguration) -> int:
    """Bytes that stand for Java's maximum direct memory, of which the defaults of caches are shares."""
    if configuration.directMemoryBudgetMb is not None:
        return configuration.directMemoryBudgetMb * MIB
    return min(runtime.physical_memory() // MEMORY_SHARE, MAX_DEFAULT_BUDGET)


def directory_options(configuration: ServerConfiguration, budget: int, directories: int) -> DirectoryOptions:
    """One directory's share of the settings. Raises `ConfigurationError` if the caches exceed a given budget."""
    write_cache = _cache_bytes(configuration.dbStorage_writeCacheMaxSizeMb, budget)
    read_cache = _cache_bytes(configuration.dbStorage_readAheadCacheMaxSizeMb, budget)
    if configuration.directMemoryBudgetMb is not None and write_cache + read_cache > budget:
        raise ConfigurationError(
            f"dbStorage_writeCacheMaxSizeMb ({write_cache // MIB}) and dbStorage_readAheadCacheMaxSizeMb "
            f"({read_cache // MIB}) are together more than directMemoryBudgetMb ({budget // MIB})"
        )
    block_cache = configuration.dbStorage_rocksDB_blockCacheSize
    read_ahead_bytes = configuration.dbStorage_readAheadCacheBatchBytesSize
    read_cache_share = read_cache // directories
    return DirectoryOptions(
        write_cache=write_cache // directories,
        read_cache=read_cache_share,
        read_ahead_entries=configuration.dbStorage_readAheadCacheBatchSize,
        read_ahead_bytes=min(read_cache_share // 4, read_ahead_bytes if read_ahead_bytes > 0 else read_cache_share),
        log_size_limit=configuration.logSizeLimit,
        past_cache=configuration.dbStorage_directIOEntryLogger,
        locations={
            "compression": "lz4" if configuration.dbStorage_rocksDB_lz4CompressionEnabled else "none",
            "block_size": configuration.dbStorage_rocksDB_blockSize,
            "bloom_bits": max(0, configuration.dbStorage_rocksDB_bloomFilterBitsPerKey),
            "block_cache": budget // directories // 10 if block_cache is None else block_cache,
            "write_buffer": configuration.dbStorage_rocksDB_writeBufferSizeMB * MIB,
            "max_write_buffers": 4,
            "target_file_size": configuration.dbStorage_rocksDB_sstSizeInMB * MIB,
            "level0_files": configuration.dbStorage_rocksDB_numFilesInLevel0,
            "max_level1": configuration.dbStorage_rocksDB_maxSizeInLevel1MB * MIB,
        },
        ledgers={"compression": "snappy", "block_cache": LEDGERS_BLOCK_CACHE},
        reserved_space=configuration.dbStorage_reservedSpaceMb * MIB,
    )


def _cache_bytes(setting: int | None, budget: int) -> int:
    return budget // CACHE_SHARE if setting is None else setting * MIB


class DbLedgerStorage(LedgerStorage):
    """Entries in entry logs, their locations and the ledgers' attributes in RocksDB."""

    def __init__(self, runtime: Runtime, configuration: ServerConfiguration) -> None:
        ledger_roots = configuration.ledgerDirectories
        index_roots = configuration.indexDirectories or ledger_roots
        if len(ledger_roots) != len(index_roots):
            raise ConfigurationError(
                f"{len(ledger_roots)} ledgerDirectories but {len(index_roots)} indexDirectories: with DbLedgerStorage "
                f"each ledger directory has one index directory"
            )
        options = directory_options(configuration, memory_budget(runtime, configuration), len(ledger_roots))
        self.reserve = options.write_cache // 2 // RESERVE_PART
        self._readers = runtime.workers("db-storage-read", configuration.numReadWorkerThreads)
        self._directories = [
            DbDirectory(
                runtime,
                options,
                current(ledgers),
                current(index),
                self._readers,
                str(number),
                self._has_failed,
            )
            for number, (ledgers, index) in enumerate(zip(ledger_roots, index_roots, strict=True))
        ]
        self._count = len(self._directories)
        self._runtime = runtime
        self._configuration = configuration
        self._ledger_collector: LedgerCollector | None = None
        self._collector: GarbageCollector | None = None
        self._closed = False
        if self._count == 1:  # the usual case, without a step between on the hot calls
            self.add_entry = self._directories[0].caches.add_entry  # type: ignore[method-assign]
            self.add_mixed = self._directories[0].caches.add_mixed  # type: ignore[method-assign]
            self.add_runs = self._directories[0].caches.add_runs  # type: ignore[method-assign]
            self.cached_entry = self._directories[0].caches.get  # type: ignore[method-assign]

    def _of(self, ledger_id: int) -> DbDirectory:
        return self._directories[ledger_id % self._count]

    # --- life ---

    async def open(self) -> None:
        try:
            for directory in self._directories:
                await directory.open()
                directory.reads.on_damage = self._is_damaged
        except (Exception, asyncio.CancelledError):
            await self.close()
            raise

    def use_metadata(self, metadata: MetadataDriver, bookie_id: BookieId) -> None:
        self._ledger_collector = LedgerCollector(
            self._runtime,
            self._configuration,
            metadata.ledgers,
            metadata.underreplication,
            bookie_id,
            self.ledgers,
            self.delete_ledger,
        )

    def start(self) -> None:
        for directory in self._directories:
            directory.index.complete = True
        self._collector = GarbageCollector(
            self._runtime, self._configuration, self._directories, self._ledger_collector
        )
        self._collector.start()

    @property
    def directories(self) -> Sequence[DbDirectory]:
        """The parts, in the order of the configuration."""
        return self._directories

    @property
    def garbage_collector(self) -> GarbageCollector | None:
        """To force a pass or suspend compaction; None before `start`."""
        return self._collector

    def suspend_compaction(self, *, minor: bool, major: bool) -> None:
        assert self._collector is not None, "not started"
        self._collector.suspend(minor=minor, major=major)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._collector is not None:
            await self._collector.close()
        results = await asyncio.gather(*(directory.close() for directory in self._directories), return_exceptions=True)
        await self._readers.close()
        _raise_first(results)

    # --- ledgers and their attributes ---

    def ledger_exists(self, ledger_id: int) -> bool:
        return ledger_id in self._of(ledger_id).index.ledgers

    def ledgers(self) -> list[int]:
        return sorted(ledger_id for directory in self._directories for ledger_id in directory.index.ledgers)

    def master_key(self, ledger_id: int) -> bytes | None:
        ledger = self._of(ledger_id).index.ledgers.get(ledger_id)
        return None if ledger is None else ledger.data.master_key

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        self._of(ledger_id).index.set_master_key(ledger_id, key)

    def is_fenced(self, ledger_id: int) -> bool:
        ledger = self._of(ledger_id).index.ledgers.get(ledger_id)
        return ledger is not None and ledger.data.fenced

    def set_fenced(self, ledger_id: int) -> bool:
        return self._of(ledger_id).index.set_fenced(ledger_id)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        ledger = self._of(ledger_id).index.ledgers.get(ledger_id)
        return None if ledger is None else ledger.data.explicit_lac

    def set_explicit_lac(self, ledger_id: int, body: bytes) -> None:
        self._of(ledger_id).index.set_explicit_lac(ledger_id, body)

    def is_limbo(self, ledger_id: int) -> bool:
        ledger = self._of(ledger_id).index.ledgers.get(ledger_id)
        return ledger is not None and bool(ledger.data.limbo)

    def set_limbo(self, ledger_id: int, limbo: bool) -> None:
        self._of(ledger_id).index.set_limbo(ledger_id, limbo)

    def delete_ledger(self, ledger_id: int) -> None:
        self._about_to_delete(ledger_id)
        self._of(ledger_id).delete_ledger(ledger_id)

    async def state_flags(self) -> int:
        """The storage's state flags (`ledger_data.NEEDS_INTEGRITY_CHECK`), kept where ledger 0 belongs."""
        return await self._of(0).state_flags()

    async def set_state_flags(self, flags: int) -> None:
        """Set the state flags; durable at return."""
        await self._of(0).set_state_flags(flags)

    async def needs_integrity_check(self) -> bool:
        return bool(await self.state_flags() & NEEDS_INTEGRITY_CHECK)

    async def set_needs_integrity_check(self, needed: bool) -> None:
        flags = await self.state_flags()
        await self.set_state_flags(flags | NEEDS_INTEGRITY_CHECK if needed else flags & ~NEEDS_INTEGRITY_CHECK)

    # --- adding ---

    def has_room(self, ledger_id: int, size: int, count: int) -> bool:
        return self._of(ledger_id).has_room(size, count)

    def has_room_everywhere(self, size: int, count: int) -> bool:
        return all(directory.has_room(size, count) for directory in self._directories)

    async def wait_for_room(self, ledger_id: int, size: int, count: int, timeout: float) -> bool:
        return await self._of(ledger_id).wait_for_room(size, count, timeout)

    def add_entry(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        self._of(ledger_id).caches.add_entry(ledger_id, entry_id, entry)

    def add_runs(self, runs: Sequence[AddRun]) -> None:
        for run in runs:
            self._of(run.ledger_id).caches.add_entries(run.ledger_id, run.entry_ids, run.entries)

    def add_entries(self, ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        self._of(ledger_id).caches.add_entries(ledger_id, entry_ids, entries)

    # --- reading ---

    def cached_entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        return self._of(ledger_id).caches.get(ledger_id, entry_id)

    async def read_entry(self, ledger_id: int, entry_id: int) -> bytes:
        return await self._of(ledger_id).reads.read_entry(ledger_id, entry_id)

    async def read_some(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Exception]:
        return await self._of(ledger_id).reads.read_some(ledger_id, entry_ids, max_bytes)

    async def read_run(
        self, ledger_id: int, first: int, max_count: int, max_bytes: int, max_reads: int = RUN_READS
    ) -> bytes:
        return await self._of(ledger_id).reads.read_run(ledger_id, first, max_count, max_bytes, max_reads)

    async def last_entry(self, ledger_id: int) -> bytes:
        return await self._of(ledger_id).reads.last_entry(ledger_id)

    async def list_entries(self, ledger_id: int) -> Sequence[int]:
        return await self._of(ledger_id).reads.list_entries(ledger_id)

    async def held_entries(self, ledger_id: int) -> Sequence[int]:
        return await self._of(ledger_id).reads.held_entries(ledger_id)

    async def entry_exists(self, ledger_id: int, entry_id: int) -> bool:
        return await self._of(ledger_id).reads.entry_exists(ledger_id, entry_id)

    # --- damage ---

    async def examine(self, ledger_id: int, first: int, max_count: int, judge: Judge) -> Examined:
        return await self._of(ledger_id).reads.examine(ledger_id, first, max_count, judge)

    # --- durability ---

    async def flush(self) -> None:
        """All directories are flushed even when one fails; the first failure is raised (BI-19)."""
        _raise_first(
            await asyncio.gather(*(directory.flush() for directory in self._directories), return_exceptions=True)
        )


def _raise_first(results: Sequence[BaseException | None]) -> None:
    for result in results:
        if result is not None:
            raise result
