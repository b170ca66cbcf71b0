"""RocksDB behind the `KeyValueStore` seam, with the options that let a Java bookie open the same files.

Java's RocksDB (7.10 in 4.17) reads table format 5 at most, and opens only the default column family: so format
version 5 with xxHash checksums is enforced here, also on folders that were created with other options
(spec bookie-storage §6.6). `raw_mode` is mandatory: without it the binding prefixes keys and values with a type.

The binding keeps the interpreter lock during its calls, so callers keep batches small (some hundred changes). The
exceptions are `flush_wal`, which is why it does the syncing, and compaction.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from .api import KeyValueBatch, KeyValueStore

_COMPRESSION = {
    "lz4": DBCompressionType.lz4(),
    "snappy": DBCompressionType.snappy(),
    "none": DBCompressionType.none(),
}
TABLE_FORMAT_VERSION = 5


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
    options = Options(raw_mode=True)
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

    def __init__(self, path: str, choices: Mapping[str, Any]) -> None:
        options = rocks_options(choices)
        access = AccessType.read_only() if choices.get("read_only") else AccessType.read_write()
        # Without naming the column family too, options persisted by an earlier opener win.
        with _as_os_error(path):
            self._db = Rdict(path, options=options, column_families={"default": options}, access_type=access)
        self._path = path
        self._closed = False
        self._no_sync = WriteOptions()

    def get(self, key: bytes) -> bytes | None:
        with _as_os_error(self._path):
            value: bytes | None = self._db.get(key)
            return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with _as_os_error(self._path):
            values: Any = self._db.get(list(keys))
            return list(values)

    def batch(self) -> KeyValueBatch:
        return _Batch()

    def write(self, batch: KeyValueBatch, *, sync: bool) -> None:
        assert isinstance(batch, _Batch)
        with _as_os_error(self._path):
            if len(batch):
                self._db.write(batch.raw, self._no_sync)
            if sync:
                # Syncs every log with unsynced writes. Unlike a write with `sync` set, it lets the interpreter go
                # meanwhile.
                self._db.flush_wal(True)

    def iterate(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        with _as_os_error(self._path):
            cursor = self._db.iter(options)
            cursor.seek(start)
        while cursor.valid():
            key = cursor.key()
            if key >= end:
                return
            yield key, cursor.value()
            cursor.next()
        self._check(cursor)

    def last_in(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        # Backwards from an empty range RocksDB would go through every key before it that was deleted lately, seconds
        # for millions, with the interpreter in its hands. Forwards it stops at the bound.
        if next(self.iterate(start, end), None) is None:
            return None
        found = self._last_below(end)
        return found if found is not None and found[0] >= start else None  # it may have been emptied meanwhile

    def _last_below(self, key: bytes) -> tuple[bytes, bytes] | None:
        with _as_os_error(self._path):
            cursor = self._db.iter()
            cursor.seek_for_prev(key)
            if cursor.valid() and cursor.key() == key:
                cursor.prev()
        if cursor.valid():
            return cursor.key(), cursor.value()
        self._check(cursor)
        return None

    def _check(self, cursor: Any) -> None:
        """A cursor ends also where it could not read on. That must not be taken for the end of the data."""
        with _as_os_error(self._path):
            cursor.status()

    def compact(self) -> None:
        with _as_os_error(self._path):
            self._db.compact_range(None, None)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._db.close()


class _as_os_error:  # noqa: N801 - used like a function
    """The binding raises bare `Exception`; callers of the seam expect `OSError`."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is Exception:
            raise OSError(errno.EIO, str(error), self.path) from error
