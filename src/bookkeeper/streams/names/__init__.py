"""What stands where in the metadata store (spec streams §2, §3, §6, §7). Records are those of `metadata.tree`.

What a store reports of itself (`MetadataError`, such as `ServiceUnavailable`) passes through; deadlines are those of
the tree that is handed in (`client.store.StoreTree` has the client's).

address     where a namespace is
naming      which names streams can have
paths       the records of a stream: where they are, what the small ones hold
namespaces  bind, resolve and unbind a namespace; its settings
federation  namespaces of many parts
logs        create, load, list, delete and rename streams
segments    the list of a stream's segments, kept up to date
head        what the owner of a stream changes: start, complete, truncate and remove segments
members     names and order of those who want a lock
lock        the lock of a stream
allocation  the ledger for a stream's next segment
"""
