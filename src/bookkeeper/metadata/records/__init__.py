"""Metadata drivers over a store of small records with transactions (in memory, or an SQLite file).

ZooKeeper and etcd have layouts of their own; a store that is ours needs none of that. It offers one thing, atomic
transactions over named records (`store.py`), and everything that BookKeeper means by ledgers, registration, cookies,
locks and election is written once, on top of it.

store     what a store must offer: transactions, sessions, news of changes
store_client  running transactions: retries, unknown outcomes, following a record
changes   who waits for which change
session   keeping the session alive, and saying so when it is not
driver    puts these components together:
ledgers, bookies, underreplication, cluster, tree
"""
