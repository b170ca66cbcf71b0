"""How far a stream is to be truncated (spec streams §10.1).

    <namespace>/.retention/<stream>.<life>    {"before": "<position>", "v": 1}
                                              {"before": "<position>", "superseded": 17, "v": 1}

`superseded`: the stream was overwritten, and what is valid begins with this segment; of those before not even copies in
other places count (`offloaded`).

The position only grows. It is written before the first segment is marked, and every transaction that marks segments
names the version that it has seen: so a slow client cannot undo what another one has marked meanwhile, and what one
has begun anybody can finish. The record goes together with its stream, and never comes back (`names.logs`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...errors import NoSuchRecord, RecordExists, StreamMetadataError, StreamNotFoundError
from ...metadata.tree import Check, Create, Node, RecordTree, Write, parent_of
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
    superseded: int = 0
    """The first segment that is not overwritten."""

    @property
    def unchanged(self) -> Check:
        """Makes a transaction fail if the record was changed since."""
        return Check(self.path, self.version)

    def raised(self, before: DLSN) -> Write:
        """Lets the position grow; makes a transaction fail if the record was changed since."""
        return Write(self.path, _encode(max(before, self.before), self.superseded), self.version)

    def overwritten(self, first: int) -> Write:
        """As `raised`, to the beginning of segment `first`; what is before is not valid any more."""
        return Write(self.path, _encode(max(DLSN(first, 0, 0), self.before), first), self.version)


async def load_mark(tree: RecordTree, paths: LogPaths) -> Mark:
    """The record; made, if there is none. Raises `StreamNotFoundError`, `StreamMetadataError`."""
    while True:
        root = await tree.get(paths.root, fresh=True)
        if root is None:
            raise StreamNotFoundError(f"there is no stream {paths.name} in {paths.namespace}")
        path = paths.truncation(root.stamp)
        node = await tree.get(path, fresh=True)
        if node is not None:
            return _mark(path, node)
        await tree.make(parent_of(path))
        try:
            await tree.commit((Check(paths.root), Create(path)))
        except (RecordExists, NoSuchRecord):
            continue  # another client was faster


async def read_mark(tree: RecordTree, paths: LogPaths) -> Mark | None:
    """The record; None: there is none. Raises `StreamNotFoundError`, `StreamMetadataError`."""
    root = await tree.get(paths.root)
    if root is None:
        raise StreamNotFoundError(f"there is no stream {paths.name} in {paths.namespace}")
    path = paths.truncation(root.stamp)
    node = await tree.get(path, fresh=True)
    return None if node is None else _mark(path, node)


async def raise_mark(tree: RecordTree, mark: Mark, before: DLSN) -> None:
    """Let the position grow. Raises `RecordChanged`, `NoSuchRecord`: look again."""
    if before > mark.before:
        await tree.write(mark.path, _encode(before, mark.superseded), mark.version)


def _encode(before: DLSN, superseded: int) -> bytes:
    found: dict[str, object] = {"v": FORMAT, "before": str(before)}
    if superseded:
        found["superseded"] = superseded
    return json.dumps(found, sort_keys=True, separators=(",", ":")).encode()


def _mark(path: str, node: Node) -> Mark:
    if not node.data:
        return Mark(path, NOWHERE, node.version)
    try:
        found = json.loads(node.data)
        if found["v"] != FORMAT:
            raise ValueError("its format is not known here")
        return Mark(path, DLSN.parse(found["before"]), node.version, int(found.get("superseded", 0)))
    except (ValueError, KeyError, TypeError, AttributeError, SegmentFormatError) as error:
        raise StreamMetadataError(f"{path} does not say how far the stream is truncated: {error}") from None
