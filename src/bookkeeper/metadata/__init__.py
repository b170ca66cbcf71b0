"""Ledger metadata, cookies and registration, and the stores that keep them.

api              the contract of all stores
tree             the generic part of it: a tree of small records, and transactions
versions         what tells two states of one record apart
uri, drivers     from a metadata service address to its driver
ledger_metadata  the record that describes one ledger
update           changing it by compare-and-set until it sticks
walking          all of them, some at a time
formats/         everything stored, as bytes
zookeeper/       the driver for ZooKeeper, in the Java system's layout
records/         drivers over a store of small records:
memory           in memory
sqlite           in an SQLite file; sqlite_file is its blocking side
"""

from .drivers import open_driver
from .ledger_metadata import LedgerMetadata
from .update import update_ledger
from .uri import configured_service_uri

__all__ = ["LedgerMetadata", "configured_service_uri", "open_driver", "update_ledger"]
