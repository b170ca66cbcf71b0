"""The journal: what makes a write durable before it is acknowledged (spec bookie-storage §3, §4).

format     the bytes of a journal file, and its name
file       one file while it is written
scan       one file read back: a torn tail is told from damage
last_mark  up to where the journal is not needed any more
journal    appending, acknowledging, rolling, failing
gathering  batches of what is appended
group_commit  when a batch leaves
departure  what makes it leave then
lanes      writing and syncing, on threads
telling    who is told of what was written and synced
room       for what waits to be written, and whose turn it is
retention  the persisted mark, and which files may go
replay     the files of one directory at start-up, in their order
apply      what a replayed record does to the storage
journals   the journals of a bookie, and which ledger belongs to which
"""
