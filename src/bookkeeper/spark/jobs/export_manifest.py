"""What an export holds: one generation for each run that finished, newest last.

    OUTPUT/_manifest/00000000.ledgers.parquet    which ledgers, and which of their entries
    OUTPUT/_manifest/00000000.files.parquet      in which files, with their sums
    OUTPUT/_manifest/00000000.json               when, from where, how much

The JSON is written last, under a temporary name first: a generation without it does not exist. Spark reads nothing
below a name with an underscore.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ..errors import ExportError

FORMAT = 2
"""Version of the manifest. 1 was one JSON file, and a directory for each ledger."""

DIRECTORY = "_manifest"
OLD_MANIFEST = "_manifest.json"

LEDGERS = pa.schema(
    [
        pa.field("ledger_id", pa.int64()),
        pa.field("closed", pa.bool_()),
        pa.field("first_entry", pa.int64()),
        pa.field("last_entry", pa.int64()),
        pa.field("entries", pa.int64()),
        pa.field("payload_bytes", pa.int64()),
        pa.field("ctime", pa.int64()),
        pa.field("custom_metadata", pa.map_(pa.string(), pa.binary())),
    ]
)
FILES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("payload_bytes", pa.int64()),
        pa.field("file_bytes", pa.int64()),
        pa.field("sums", pa.string()),
        pa.field("damaged_copies", pa.int64()),
        pa.field("lost_entries", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Exported:
    """What finished generations hold of a ledger."""

    last_entry: int
    entries: int
    """Fewer than up to `last_entry` where some were not asked for, or lost."""
    payload_bytes: int
    closed: bool
    """Nothing can follow."""


NONE = Exported(-1, 0, 0, False)


class Manifest:
    """The finished generations of an output."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._files = files
        self._root = f"{root}/{DIRECTORY}"
        found = files.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        names = (info.path.rpartition("/")[2] for info in found)
        self.generations = sorted(int(name[:-5]) for name in names if re.fullmatch(r"\d{8}\.json", name))

    def summary(self) -> dict[str, Any]:
        """Of the newest generation."""
        with self._files.open_input_stream(self._path(self.generations[-1], "json")) as stream:
            summary: dict[str, Any] = json.loads(stream.read())
        if summary.get("format") != FORMAT:
            raise ExportError(f"{self._root} has format {summary.get('format')}; this program knows {FORMAT}")
        return summary

    def ledgers(self) -> dict[int, Exported]:
        """What is exported, by ledger."""
        exported: dict[int, Exported] = {}
        for generation in self.generations:
            with self._files.open_input_file(self._path(generation, "ledgers.parquet")) as stream:
                table = pq.read_table(stream, columns=["ledger_id", "last_entry", "entries", "payload_bytes", "closed"])
            columns = (column.to_pylist() for column in table.columns)
            for ledger_id, last, entries, size, closed in zip(*columns, strict=True):
                before = exported.get(ledger_id, NONE)
                exported[ledger_id] = Exported(last, entries + before.entries, size + before.payload_bytes, closed)
        return exported

    def paths(self) -> list[str]:
        """Names of all files."""
        names: list[str] = []
        for generation in self.generations:
            with self._files.open_input_file(self._path(generation, "files.parquet")) as stream:
                names += pq.read_table(stream, columns=["path"]).column(0).to_pylist()
        return names

    def add(
        self, summary: Mapping[str, Any], ledgers: Iterable[Mapping[str, Any]], files: Iterable[Mapping[str, Any]]
    ) -> str:
        """Write the next generation; returns the path of its JSON."""
        generation = self.generations[-1] + 1 if self.generations else 0
        if self._files.get_file_info(self._path(generation, "json")).type is not fs.FileType.NotFound:
            raise ExportError(f"{self._root}: another export to the same output finished meanwhile: run this one again")
        self._files.create_dir(self._root, recursive=True)
        for kind, schema, rows in (("ledgers.parquet", LEDGERS, ledgers), ("files.parquet", FILES, files)):
            with self._files.open_output_stream(self._path(generation, kind)) as stream:
                pq.write_table(pa.Table.from_pylist(list(rows), schema), stream)
        content = json.dumps({"format": FORMAT, "generation": generation, **summary}, indent=2).encode() + b"\n"
        temporary = f"{self._root}/.{uuid.uuid4()}.tmp"
        with self._files.open_output_stream(temporary) as stream:
            stream.write(content)
        path = self._path(generation, "json")
        self._files.move(temporary, path)
        self.generations.append(generation)
        return path

    def _path(self, generation: int, kind: str) -> str:
        return f"{self._root}/{generation:08d}.{kind}"
