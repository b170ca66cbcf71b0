"""Rows as records: what of a batch of rows goes to which stream (spec streams §17.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...streams.formats.keyed import Headers
from ..errors import OptionError
from .sink_options import Layout


class Column(Sequence[Any]):
    """Values as Spark gives them: objects are made of them only if somebody asks."""

    def __init__(self, array: pa.BinaryArray) -> None:
        self.array = array
        self._objects: list[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        if self._objects is None:
            self._objects = self.array.to_pylist()
        return self._objects[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of some records, all of one length. None: the rows have no such column."""

    column: str
    """What the column of the values is called."""
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None
    times: Sequence[int | None] | None = None
    """Milliseconds since 1970."""
    txids: Sequence[int] | None = None
    """Transaction ids. None: records get theirs when they are published."""

    @property
    def wants_keys(self) -> bool:
        """Whether the rows have more than values."""
        return self.keys is not None or self.headers is not None

    def take(self, rows: Sequence[int]) -> Fields:
        """Some of them."""

        def some(column: Sequence[Any] | None) -> Any:
            return None if column is None else [column[row] for row in rows]

        columns = (self.values, self.keys, self.headers, self.times, self.txids)
        return Fields(self.column, *map(some, columns))


def rows_of(batch: pa.RecordBatch, columns: Layout, stream: str | None) -> list[tuple[str, Fields]]:
    """Records by stream. Raises `OptionError` for rows that go nowhere."""
    fields = _fields(batch, columns)
    if columns.stream is None:
        return [(stream or "", fields)]
    found: dict[str, list[int]] = {}
    for row, name in enumerate(batch.column(columns.stream).to_pylist()):
        target = name or stream
        if not target:
            raise OptionError(f"a row has no {columns.stream}, and the option stream is not given")
        found.setdefault(target, []).append(row)
    return [(name, fields if len(rows) == batch.num_rows else fields.take(rows)) for name, rows in found.items()]


def _fields(batch: pa.RecordBatch, columns: Layout) -> Fields:
    def bytes_of(name: str) -> list[bytes | None]:
        return batch.column(name).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]

    times = None
    if columns.timestamp is not None:
        moments = batch.column(columns.timestamp).cast(pa.timestamp("ms", tz="UTC"), safe=False)
        times = moments.cast(pa.int64()).to_pylist()
    return Fields(
        columns.payload,
        Column(batch.column(columns.payload).cast(pa.binary())),
        bytes_of(columns.key) if columns.key is not None else None,
        list(map(_headers, batch.column(columns.headers).to_pylist())) if columns.headers is not None else None,
        times,
        batch.column(columns.txid).to_pylist() if columns.txid is not None else None,
    )


def _headers(given: Iterable[Mapping[str, Any]] | None) -> Headers:
    found = [(each["key"], each["value"]) for each in given or () if each is not None]
    if any(name is None for name, _ in found):
        raise OptionError("a header of a row has no key")
    return found
