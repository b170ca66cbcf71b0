"""The one request kazoo does not know: take back a watch (ZooKeeper 3.5 and later, operation 18).

| part | encoding |
|---|---|
| path | length (4 bytes, big-endian), UTF-8 |
| kind | 4 bytes: 1 children, 2 data |

Without it every ledger ever watched would leave a watch in the server until the session ends.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from kazoo.protocol.serialization import int_struct, write_string


class WatchKind(IntEnum):
    """What is watched. `get` and `exists` arm data watches."""

    CHILDREN = 1
    DATA = 2


class RemoveWatches:
    """A request in kazoo's form. Its success, seen on kazoo's own thread and in the order of answers, also clears
    kazoo's list of watchers of the node, so that none that was armed later is lost."""

    type = 18

    def __init__(self, path: str, kind: WatchKind, client: Any) -> None:
        self.path = path
        self.kind = kind
        self._client = client

    def serialize(self) -> bytearray:
        data = bytearray(write_string(self.path))
        data.extend(int_struct.pack(self.kind))
        return data

    def deserialize(self, _data: bytes, _offset: int) -> bool:
        client = self._client
        watchers = client._child_watchers if self.kind is WatchKind.CHILDREN else client._data_watchers
        watchers.pop(self.path, None)
        return True
