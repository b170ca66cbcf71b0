"""A bookie that looks for damage on its own disks, and mends it (spec bookie-server §5.5).

Theory of operation

Bits rot: a disk gives back other bytes than were written, or none. Other bookies have the same entries. So what is
found damaged is asked of them, looked at, and written here once more, while the bookie serves.

    found    by the scrubber, which goes through all entries now and then (`localScrubInterval`), once at the start if
             that is asked for (`localConsistencyCheckOnStartup`); and by each read that meets something else than the
             entry that it looks for
    waiting  in a queue that has each entry once, and no more than `localRepairQueueSize`. The scrubber waits for room;
             what a read found is left out of a full queue, for the scrubber or another read to find again
    mending  1. does the ledger's record still name this bookie for the entry? Else the entry is not needed here
             2. is it damaged where it lies, right now? It may have been written again, moved, or read badly once
             3. another bookie's copy is fetched and verified, by the digest that the record names
             4. if the ledger is still here, the copy is added like any entry; it supersedes the damaged one
             5. a flush makes it durable: only then is it said to be mended

Why that is safe. Nothing is written that was not verified, and nothing but what the index says this bookie has had: so
a bookie never comes to have an entry by this that it did not store before. Fences, master keys and limbo are not
touched. A ledger that was deleted here stays so: between the question whether it is here and the adding no other code
runs; and one that is deleted in the store has no record. A crash before the flush leaves the damaged copy, which is
found again.

Meanwhile a client that asks for the entry is told that this bookie has trouble with it (EIO), or is given bytes that do
not match their digest. Both make it ask another bookie. It is never told that there is no such entry.

What cannot be mended (no other bookie gives a good copy, or the index itself cannot be read) is tried `ATTEMPTS` times,
said, counted and left as it is.

judging   is an entry what was written, and must it be here?
queue     what waits to be mended
mender    mends it
scrubber  goes through all entries
"""
