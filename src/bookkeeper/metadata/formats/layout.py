r"""The LAYOUT value: which factory lays out the ledgers of a cluster (spec metadata §4.3).

| layout version | text |
|---|---|
| 2 (current) | `2` LF `<factory class name>:<manager version>`, no LF at the end |
| 1 (release 4.1) | `1` LF `<type>:<manager version>`, type `flat` or `hierarchical` |

Further lines are ignored. Java's class names are written whatever program writes them; stores without a Java
counterpart use their own name in place of the class (`sqlite:1`).
"""

from __future__ import annotations

from ...errors import CorruptMetadata
from ..api import LedgerLayout

HIERARCHICAL = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
LONG_HIERARCHICAL = "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory"
LEGACY_HIERARCHICAL = "org.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory"
FLAT = "org.apache.bookkeeper.meta.FlatLedgerManagerFactory"
MS = "org.apache.bookkeeper.meta.MSLedgerManagerFactory"
ETCD = "org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory"

DEFAULT = LedgerLayout(HIERARCHICAL, 1)
"""What a new ZooKeeper cluster gets."""


def encode_layout(layout: LedgerLayout) -> bytes:
    """The stored bytes."""
    return f"{layout.layout_version}\n{layout.factory_class}:{layout.manager_version}".encode()


def parse_layout(data: bytes) -> LedgerLayout:
    """Raises `CorruptMetadata`; also for a layout version other than 1 and 2."""
    try:
        lines = data.decode().split("\n")
        version = int(lines[0])
        name, manager_version = lines[1].split(":")
        layout = LedgerLayout(name, int(manager_version), version)
    except (ValueError, IndexError):
        raise CorruptMetadata(f"LAYOUT is unreadable: {data[:100]!r}") from None
    if version not in (1, 2):
        raise CorruptMetadata(f"LAYOUT has version {version}; 1 and 2 are supported")
    return layout
