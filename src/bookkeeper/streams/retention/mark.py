"""How far a stream is to be truncated (spec streams §10.1).

    <namespace>/.retention/<stream>.<life>    {"before": "<position>", "v": 1}

The position only grows. It is written before the first segment is marked, and every transaction that marks segments
names the version that it has seen: so a slow client cannot undo what another one has marked meanwhile, and what one
has begun anybody can finish. The record goes together with its stream, and never comes back (`names.logs`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...errors import NoSuchRecord, RecordExists, StreamMetadataError, StreamNotFoundError
from ...metadata.tree import Check, Create, RecordTree, parent_of
from ...metadata.versions import Version
from ..dlsn import DLSN
from ..errors import SegmentFormatError
from ..names.paths import LogPaths

FORMAT = 1
NOWHERE = DLSN(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Mark:
    """The record as it was read."""

    path: str
    before: DLSN
    version: Version

    @property
    def unchanged(self) -> Check:
        """Makes a transaction fail if the record was changed since."""
        return Check(self.path, self.version)


async def load_mark(tree: RecordTree, paths: LogPaths) -> Mark:
    """The record; made, if there is none. Raises `StreamNotFoundError`, `StreamMetadataError`."""
    while True:
        root = await tree.get(paths.root, fresh=True)
        if root is None:
            raise StreamNotFoundError(f"there is no stream {paths.name} in {paths.namespace}")
        path = paths.truncation(root.stamp)
        node = await tree.get(path, fresh=True)
        if node is not None:
            return Mark(path, _decode(node.data, path), node.version)
        await tree.make(parent_of(path))
        try:
            await tree.commit((Check(paths.root), Create(path)))
        except (RecordExists, NoSuchRecord):
            continue  # another client was faster


async def raise_mark(tree: RecordTree, mark: Mark, before: DLSN) -> None:
    """Let the position grow. Raises `RecordChanged`, `NoSuchRecord`: look again."""
    if before > mark.before:
        await tree.write(mark.path, _encode(before), mark.version)


def _encode(before: DLSN) -> bytes:
    return json.dumps({"v": FORMAT, "before": str(before)}, sort_keys=True, separators=(",", ":")).encode()


def _decode(data: bytes, path: str) -> DLSN:
    if not data:
        return NOWHERE
    try:
        found = json.loads(data)
        if found["v"] != FORMAT:
            raise ValueError("its format is not known here")
        return DLSN.parse(found["before"])
    except (ValueError, KeyError, TypeError, AttributeError, SegmentFormatError) as error:
        raise StreamMetadataError(f"{path} does not say how far the stream is truncated: {error}") from None
