"""Checksums of a segment's rows, in order: what was read, and what is in the file, must have the same."""

from __future__ import annotations

from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc

NUMBERS = ("entry_id", "slot", "txid", "sequence_id")
BYTES = ("payload", "key")


class RowSums:
    """CRC-32C over each column."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        """Of payload."""
        self._crcs: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows, however they are cut into batches."""
        for name in NUMBERS:
            self._extend(name, _numbers(batch.column(name)))
        self._extend("event_time", _numbers(batch.column("event_time").cast(pa.int64())))
        for name in BYTES:
            column = batch.column(name)
            content = b"".join(value for value in column.to_pylist() if value)
            self._extend(f"{name}_sizes", _numbers(pc.fill_null(pc.binary_length(column), -1)))
            self._extend(name, content)
            self.bytes += len(content) if name == "payload" else 0
        headers = batch.column("headers")
        some = enumerate(headers.to_pylist(), self.rows) if headers.null_count < len(headers) else ()
        self._extend("headers", b"".join(repr(row).encode() for row in some if row[1] is not None))
        self.rows += batch.num_rows

    def _extend(self, name: str, data: bytes) -> None:
        self._crcs[name] = google_crc32c.extend(self._crcs.get(name, 0), data)

    def __str__(self) -> str:
        sums = "/".join(f"{name}:{crc:08x}" for name, crc in self._crcs.items())
        return f"{self.rows}/{self.bytes}/{sums}"


def _numbers(column: pa.Array) -> bytes:
    made: Any = pc.fill_null(column.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return bytes(made.astype("<i8").tobytes())
