"""Where copies of a stream's segments are, outside the cluster (spec streams §18).

    <namespace>/.offload/<stream>.<life>/<18 digits>
        {"bytes": 1048576, "entries": 64, "file_bytes": 262144, "rows": 5000, "segment": "<its record>",
         "sequence_id": 0, "sums": "<checksums of the rows>", "uri": "s3://archive/clicks/000000000000000001-7.parquet",
         "v": 1}

One record for each segment, which is written once the copy was read back and found equal, and never changed. It
outlives the segment: so it has all that a reader must know of it. A stream that was deleted and made anew has another
life, and none of these records; of one that was overwritten those count no more that are before what overwrote it, as
its mark says (`mark`). Apache DistributedLog does not look below names that begin with a dot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import NoSuchRecord, RecordExists, StreamConflictError, StreamMetadataError, StreamNotFoundError
from ...metadata.tree import Check, Create, Delete, RecordTree
from ..errors import SegmentFormatError
from ..formats.segment import SegmentMetadata, decode_segment, encode_segment
from ..names.paths import LogPaths
from .mark import read_mark

FORMAT = 1
DELETED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Offloaded:
    """A copy of a segment."""

    segment: SegmentMetadata
    """As it was when it was copied. Records before its first position are not in the copy."""
    sequence_id: int
    """Of the segment's first record."""
    entries: int
    """Of the segment's ledger."""
    bytes: int
    """Payload of these entries."""
    rows: int
    """Records in the copy."""
    uri: str
    """The file."""
    file_bytes: int
    sums: str
    """Checksums of the rows, as the file's footer has them."""


class OffloadIndex:
    """The copies of one stream's segments. Those that were read once are not read again."""

    def __init__(self, tree: RecordTree, paths: LogPaths) -> None:
        self._tree = tree
        self._paths = paths
        self._directory = ""
        self._known: dict[str, Offloaded] = {}

    async def life(self) -> int:
        """What no other stream of this name has or had. Raises `StreamNotFoundError`."""
        root = await self._tree.get(self._paths.root)
        if root is None:
            raise StreamNotFoundError(f"there is no stream {self._paths.name} in {self._paths.namespace}")
        return root.stamp

    async def load(self) -> Mapping[int, Offloaded]:
        """By the segments' numbers, ascending. Raises `StreamNotFoundError`, `StreamMetadataError`."""
        directory = self._paths.offload(await self.life())
        if directory != self._directory:
            self._directory, self._known = directory, {}
        listing = await self._tree.children(directory, fresh=True)
        names = sorted(listing.names) if listing is not None else []
        new = [name for name in names if name not in self._known]
        nodes = await self._tree.get_many([f"{directory}/{name}" for name in new])
        for name, node in zip(new, nodes, strict=True):
            if node is not None:
                self._known[name] = _parse(node.data, f"{directory}/{name}")
        found = [self._known[name] for name in names if name in self._known]
        mark = await read_mark(self._tree, self._paths) if found else None
        least = mark.superseded if mark is not None else 0
        return {copy.segment.number: copy for copy in found if copy.segment.number >= least}

    async def add(self, copy: Offloaded) -> None:
        """Say where a copy is. Who says the same again is right.

        Raises `StreamConflictError` if it is somewhere else already, `StreamNotFoundError`.
        """
        directory = self._paths.offload(await self.life())
        path, data = f"{directory}/{copy.segment.number:018d}", _text(copy)
        await self._tree.make(directory)
        try:
            await self._tree.commit((Check(self._paths.root), Create(path, data)))
        except RecordExists:
            node = await self._tree.get(path, fresh=True)
            if node is None or node.data != data:
                raise StreamConflictError(f"{path} names another copy of the segment already") from None

    async def clear(self) -> None:
        """Forget all copies, before the stream itself is deleted. The files stay."""
        directory = self._paths.offload(await self.life())
        listing = await self._tree.children(directory, fresh=True)
        if listing is None:
            return
        paths = [f"{directory}/{name}" for name in listing.names]
        try:
            for start in range(0, len(paths), DELETED_AT_ONCE):
                await self._tree.commit([Delete(path) for path in paths[start : start + DELETED_AT_ONCE]])
            await self._tree.delete(directory)
        except NoSuchRecord:
            return  # another client deletes the stream


def _text(copy: Offloaded) -> bytes:
    found = {
        "v": FORMAT,
        "segment": encode_segment(copy.segment).decode(),
        "sequence_id": copy.sequence_id,
        "entries": copy.entries,
        "bytes": copy.bytes,
        "rows": copy.rows,
        "uri": copy.uri,
        "file_bytes": copy.file_bytes,
        "sums": copy.sums,
    }
    return json.dumps(found, sort_keys=True, separators=(",", ":")).encode()


def _parse(data: bytes, path: str) -> Offloaded:
    try:
        found = json.loads(data)
        if found["v"] != FORMAT:
            raise ValueError("its format is not known here")
        return Offloaded(
            decode_segment(found["segment"].encode()),
            sequence_id=int(found["sequence_id"]),
            entries=int(found["entries"]),
            bytes=int(found["bytes"]),
            rows=int(found["rows"]),
            uri=str(found["uri"]),
            file_bytes=int(found["file_bytes"]),
            sums=str(found["sums"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, SegmentFormatError) as error:
        raise StreamMetadataError(f"{path} does not say where a copy of a segment is: {error}") from None
