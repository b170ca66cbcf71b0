"""RocksDB behind the `KeyValueStore` seam, with the options that let a Java bookie open the same files.

Java's RocksDB (7.10 in 4.17) reads table format 5 at most, and opens only the default column family: so format
version 5 with xxHash checksums is enforced here, also on folders that were created with other options
(spec bookie-storage §6.6). `raw_mode` is mandatory: without it the binding prefixes keys and values with a type.

*The interpreter lock.* A call that waits for the disk with the lock in its hands stops the whole process: the event
loop, every connection, the journal's acknowledgements, the metadata session. The binding gives the lock away in `get`
of a list of keys, `flush`, `flush_wal`, `compact_range` and `close`, and nowhere else. So

- every lookup is that of a list, also of one key;
- a write goes to memory only: the write-ahead log is written by `flush_wal` (`manual_wal_flush`, which the binding
  only offers through an options file), and a memory table that is nearly full is handed over by `flush` before a
  write would have to do it. While RocksDB holds writes back (a stall) we wait before a write, not in it;
- what is left with the lock are iterators: opening a store at the start, when no client is served; `iterate` and
  `last_in`. An iterator reads a block of each table file that has its place, then one block after the other. They are
  not for reads and writes of entries: what asks for a range asks seldom, once for each ledger that was here before the
  start (its greatest entry), or for a list of entries or a check of the whole index.

*Damage.* What was synced must come back, or the start is refused: see `rocks_wal`.

*No space.* RocksDB takes nothing more after a write that found no space. The caller is told `ENOSPC`; what it wrote
since the last sync is visible, but not durable. The next write opens the database anew, which has what was synced.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from ..errors import CorruptStorageError
from .api import Files, KeyValueBatch, KeyValueStore
from .rocks_wal import SyncedLogs

log = logging.getLogger(__name__)

WAL_BYTES = 256 << 10
"""Written data is handed to the operating system in pieces of about this size."""

MEMORY_SHARE = 0.75
"""A memory table is handed over when it is so full."""

DEFAULT_WRITE_BUFFER = 64 << 20

SLOW_BEHIND, STOP_BEHIND = 16, 32
"""So many files more than are to be merged, and RocksDB holds writes back, as with its own defaults."""

STALL_SECONDS = 600.0
"""How long RocksDB may hold writes back before that counts as a failure."""

STALL_STEP_SECONDS = 0.01

_STALLS = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")

REOPEN_SECONDS = 30.0
"""How long opening anew waits for readers that still have the old database in hand."""

_OPTIONS_FILE = """\
[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
  manual_wal_flush=true
  writable_file_max_buffer_size=4194304
[CFOptions "default"]
[TableOptions/BlockBasedTable "default"]
"""
"""Options that the binding has no call for. The buffer is where a write-ahead log waits for `flush_wal`."""

_COMPRESSION = {
    "lz4": DBCompressionType.lz4(),
    "snappy": DBCompressionType.snappy(),
    "none": DBCompressionType.none(),
}
TABLE_FORMAT_VERSION = 5

_BINDINGS_FILE = "rocksdict-config.json"


def _base_options() -> Options:
    """From a folder that looks like a database's to the binding, which reads the options of its last opening.

    It lasts only for that: a process that is killed leaves none behind, and nobody can clean up one that is needed.
    """
    with tempfile.TemporaryDirectory(prefix="bookkeeper-options-") as folder:
        (Path(folder) / "OPTIONS-000001").write_text(_OPTIONS_FILE)
        (Path(folder) / _BINDINGS_FILE).write_text('{"raw_mode":true,"prefix_extractors":{}}')
        options, _ = Options.load_latest(folder)
    return options


def rocks_options(choices: Mapping[str, Any]) -> Options:
    """RocksDB options for the choices of `Runtime.open_key_value`."""
    table = BlockBasedOptions()
    table.set_format_version(TABLE_FORMAT_VERSION)
    table.set_checksum_type(ChecksumType.xxhash())
    if "block_size" in choices:
        table.set_block_size(choices["block_size"])
    if choices.get("bloom_bits"):
        table.set_bloom_filter(choices["bloom_bits"], False)
    if "block_cache" in choices:
        table.set_block_cache(Cache(choices["block_cache"]))
        table.set_cache_index_and_filter_blocks(True)
    options = _base_options()
    options.create_if_missing(not choices.get("read_only", False))
    options.set_block_based_table_factory(table)
    options.set_compression_type(_COMPRESSION[choices.get("compression", "snappy")])
    options.set_keep_log_file_num(30)
    if "write_buffer" in choices:
        options.set_write_buffer_size(choices["write_buffer"])
    if "max_write_buffers" in choices:
        options.set_max_write_buffer_number(choices["max_write_buffers"])
    if "target_file_size" in choices:
        options.set_target_file_size_base(choices["target_file_size"])
    if "level0_files" in choices:
        options.set_level_zero_file_num_compaction_trigger(choices["level0_files"])
        options.set_level_zero_slowdown_writes_trigger(choices["level0_files"] + SLOW_BEHIND)
        options.set_level_zero_stop_writes_trigger(choices["level0_files"] + STOP_BEHIND)
    if "max_level1" in choices:
        options.set_max_bytes_for_level_base(choices["max_level1"])
    return options


class _Batch(KeyValueBatch):
    def __init__(self) -> None:
        self.raw = WriteBatch(raw_mode=True)
        self.put = self.raw.put  # type: ignore[method-assign]  # the hot call, without a frame of ours
        self.delete = self.raw.delete  # type: ignore[method-assign]

    def put(self, key: bytes, value: bytes) -> None:  # pragma: no cover - replaced in __init__
        self.raw.put(key, value)

    def delete(self, key: bytes) -> None:  # pragma: no cover - replaced in __init__
        self.raw.delete(key)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        any(map(self.raw.put, keys, values))  # `put` returns None: this runs to the end, without a loop of ours

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.raw.delete_range(start, end)

    def __len__(self) -> int:
        return int(self.raw.len())


class RocksStore(KeyValueStore):
    """One RocksDB folder."""

    def __init__(self, path: str, choices: Mapping[str, Any], files: Files) -> None:
        """Raises `CorruptStorageError` if something is missing that was synced, `OSError`."""
        self._path = path
        self._choices = choices
        self._read_only = bool(choices.get("read_only"))
        self._synced = SyncedLogs(files, path)
        self._closed = False
        self._change = threading.Condition(threading.Lock())  # guards the next three
        self._users = 0
        self._opening = False
        self._db: Rdict | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # what a reader opened
        self._options = WriteOptions()
        self._table_limit = int(choices.get("write_buffer", DEFAULT_WRITE_BUFFER) * MEMORY_SHARE)
        self._unflushed = 0  # bytes in batches since the last `flush_wal`
        self._unsynced = False
        self._no_space = False  # RocksDB takes no more writes until it is opened anew
        try:
            self._open()
        except BaseException:
            self._remove_links()
            raise

    def _open(self) -> None:
        options = rocks_options(self._choices)
        if not self._read_only:
            options.set_wal_recovery_mode(self._recovery_mode())
        access = AccessType.read_only() if self._read_only else AccessType.read_write()
        # Without naming the column family too, options persisted by an earlier opener win.
        with _as_os_error(self._path, corrupt=True):
            columns = {"default": options}
            folder = self._links() if self._read_only else self._path
            self._db = Rdict(folder, options=options, column_families=columns, access_type=access)
            if not self._read_only:
                self._unflushed, self._unsynced, self._no_space = 0, True, False
                self._sync(self._db)  # what was recovered is in tables: so the note is about the new log

    def _links(self) -> str:
        """A folder of links to the database's files, for a reader: the binding writes a file of its own wherever it
        opens one, also read only."""
        self._folder = tempfile.TemporaryDirectory(prefix="bookkeeper-look-")
        for name in os.listdir(self._path):
            if name != _BINDINGS_FILE:
                os.symlink(os.path.abspath(f"{self._path}/{name}"), f"{self._folder.name}/{name}")
        return self._folder.name

    def _remove_links(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _recovery_mode(self) -> DBRecoveryMode:
        """What RocksDB may drop from its logs, after a look at what was synced."""
        noted, logs = self._synced.read(), self._synced.logs()
        known = [number for number in noted if number in logs]
        for number in known:
            wrong = self._synced.damage(number, noted[number])
            if wrong is not None:
                raise CorruptStorageError(
                    f"{self._path}/{number:06d}.log is damaged at byte {wrong}, and was synced up to byte "
                    f"{noted[number]}: acknowledged changes are lost in it"
                )
        if known:
            return DBRecoveryMode.point_in_time()
        return DBRecoveryMode.tolerate_corrupted_tail_records()  # logs of another writer, or none

    def _enter(self) -> Rdict:
        """The database, which stays open until `_leave`."""
        with self._change:
            while self._opening:
                self._change.wait()
            if self._db is None:
                raise OSError(errno.EIO, "the database is not open", self._path)
            self._users += 1
            return self._db

    def _leave(self) -> None:
        with self._change:
            self._users -= 1
            if self._opening:
                self._change.notify_all()

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with _Use(self) as db:
            values: Any = db.get(list(keys))
            return list(values)

    def batch(self) -> KeyValueBatch:
        return _Batch()

    def write(self, batch: KeyValueBatch, *, sync: bool) -> None:
        assert isinstance(batch, _Batch)
        if self._no_space:
            self._open_anew()
        try:
            with _Use(self) as db:
                if len(batch):
                    self._unsynced = True
                    self._apply(db, batch)
                if sync and self._unsynced:
                    self._sync(db)
        except OSError as error:
            self._no_space = self._no_space or error.errno == errno.ENOSPC
            raise

    def _apply(self, db: Rdict, batch: _Batch) -> None:
        self._wait_for_stall(db)
        self._unflushed += batch.raw.size_in_bytes()
        db.write(batch.raw, self._options)
        if self._unflushed >= WAL_BYTES:
            self._unflushed = 0
            db.flush_wal(False)
        if (db.property_int_value("rocksdb.cur-size-active-mem-table") or 0) >= self._table_limit:
            self._unflushed = 0
            db.flush(False)

    def _wait_for_stall(self, db: Rdict) -> None:
        """Return when RocksDB would neither refuse nor delay a write, which it does when compaction lags."""
        waited = 0.0
        while any(db.property_int_value(name) for name in _STALLS):
            if waited >= STALL_SECONDS:
                raise OSError(errno.EIO, f"RocksDB has held writes back for {STALL_SECONDS} s", self._path)
            if not waited:
                log.warning("%s: writes are held back until tables are compacted", self._path)
            time.sleep(STALL_STEP_SECONDS)
            waited += STALL_STEP_SECONDS

    def _sync(self, db: Rdict) -> None:
        self._unflushed = 0
        db.flush_wal(True)  # all logs with unsynced writes
        self._synced.note()
        self._unsynced = False

    def _open_anew(self) -> None:
        """After a write that found no space; what was not synced may be gone then. Raises `OSError`."""
        with self._change:
            self._opening = True
            free = self._change.wait_for(lambda: not self._users, REOPEN_SECONDS)
        try:
            if not free:
                raise OSError(errno.ENOSPC, "cannot be opened anew after a full disk: it is being read", self._path)
            if self._db is not None:
                with suppress(Exception):  # it says once more that there was no space
                    self._db.close()
                self._db = None
            self.generation += 1
            self._open()
        finally:
            with self._change:
                self._opening = False
                self._change.notify_all()
        log.info("%s: opened anew after a write that found no space", self._path)

    def iterate(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        with _Use(self) as db:
            cursor = db.iter(options)
            cursor.seek(start)
            while cursor.valid():
                key = cursor.key()
                if key >= end:
                    return
                yield key, cursor.value()
                cursor.next()
            cursor.status()  # a cursor ends also where it could not read on, which is not the end of the data

    def last_in(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        # Backwards from an empty range RocksDB would go through every key before it that was deleted lately, seconds
        # for millions, with the interpreter in its hands. Forwards it stops at the bound.
        if next(self.iterate(start, end), None) is None:
            return None
        found = self._last_below(end)
        return found if found is not None and found[0] >= start else None  # it may have been emptied meanwhile

    def _last_below(self, key: bytes) -> tuple[bytes, bytes] | None:
        with _Use(self) as db:
            cursor = db.iter()
            cursor.seek_for_prev(key)
            if cursor.valid() and cursor.key() == key:
                cursor.prev()
            if cursor.valid():
                return cursor.key(), cursor.value()
            cursor.status()
        return None

    def compact(self) -> None:
        with _Use(self) as db:
            db.compact_range(None, None)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        db, self._db = self._db, None
        if db is None:
            return
        with _as_os_error(self._path):
            try:
                if self._unsynced and not self._no_space:
                    self._sync(db)
            finally:
                db.close()
                self._remove_links()


class _Use:
    """The database of a store, which stays open meanwhile."""

    __slots__ = ("_store",)

    def __init__(self, store: RocksStore) -> None:
        self._store = store

    def __enter__(self) -> Rdict:
        return self._store._enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._store._leave()
        if error is not None:
            _raise_as_os_error(self._store._path, error)


class _as_os_error:  # noqa: N801 - used like a function
    """The binding raises bare `Exception`; callers of the seam expect `OSError`."""

    __slots__ = ("corrupt", "path")

    def __init__(self, path: str, corrupt: bool = False) -> None:
        """`corrupt`: damage is a `CorruptStorageError`."""
        self.path = path
        self.corrupt = corrupt

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            _raise_as_os_error(self.path, error, self.corrupt)


def _raise_as_os_error(path: str, error: BaseException, corrupt: bool = False) -> None:
    """Return if it is none of the binding's."""
    if type(error) is Exception or type(error) is DbClosedError:
        text = str(error)
        if corrupt and "Corruption" in text:
            raise CorruptStorageError(f"{path}: {text}") from error
        raise OSError(errno.ENOSPC if "No space left" in text else errno.EIO, text, path) from error
