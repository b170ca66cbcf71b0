"""The metadata driver for ZooKeeper, with the node layout of the Java system (spec metadata §4, §5, §7 to §10, §12.4).

| module | holds |
|---|---|
| `client.py` | one session: kazoo's threads behind coroutines, retries, session events, one-shot watches |
| `removewatches.py` | the one request that kazoo lacks |
| `keepalive.py` | when the server last surely heard from us, seen at kazoo's socket |
| `paths.py` | node paths of ledgers and marks, both ways |
| `watching.py`, `listings.py` | level-triggered watching, made of reads and one-shot hints |
| `layout.py` | the LAYOUT node and the rule for opening a cluster |
| `ids.py` | ledger ids from sequential nodes |
| `ledgers.py` | ledger records, their watches and ranges |
| `registration.py`, `discovery.py` | the bookie's and the client's side of registration |
| `cookies.py` | cookies |
| `locks.py` | rights that end with the session |
| `underreplication.py`, `repair_switches.py`, `auditor.py` | repair: marks and locks, switches, election |
| `admin.py` | initialise, format, nuke; cluster flags |
| `settings.py` | the configuration keys it takes |
| `driver.py` | puts the parts together and tells them about the session |
| `local_server.py` | a ZooKeeper server of one's own, from the jars inside PySpark (command line and tests only) |
"""

from .driver import ZooKeeperDriver

__all__ = ["ZooKeeperDriver"]
