"""The metadata driver for ZooKeeper, with the node layout of the Java system (spec metadata §4, §5, §7 to §10, §12.4).

driver        puts the parts together and tells them about the session
session/      one ZooKeeper session behind coroutines, watches and listings
settings      the configuration keys it takes
paths         node paths of ledgers and marks, both ways
layout        the LAYOUT node and the rule for opening a cluster
ids           ledger ids from sequential nodes
ledgers       ledger records, their watches and ranges
registration  the bookie's side of registration
discovery     the client's side
cookies       cookies
locks         rights that end with the session
tree          records of other kinds, and transactions
repair/       under-replication: marks and locks, switches, election
admin         initialise, format, nuke; cluster flags
local_server  a ZooKeeper server of one's own, from the jars inside PySpark (command line and tests only)
"""

from .driver import ZooKeeperDriver

__all__ = ["ZooKeeperDriver"]
