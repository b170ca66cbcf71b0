"""What a bookie does that may have lost entries which it had acknowledged.

Theory of operation (BP-46; spec bookie-server §5.6, bookie-storage §11.5)

A bookie may have lost what it acknowledged in two ways: it did not wait for its journal (`journalWriteData` or
`journalSyncData` is false) and its last run did not end orderly; or a disk of it was replaced by an empty one. What it
has forgotten harms others, not only itself. A forgotten fence lets a writer go on that was fenced off, and "no such
entry" about a forgotten entry lets a recovery close the ledger in front of it. So, with `dataIntegrityChecking`, it
starts like this:

    1. is there a marker of an unclean end (`node.dirty`), or is a cookie missing (`node.cookies`)?
    2. the journals are replayed: fences are journaled and synced also when entries are not
    3. the storage is flagged: it needs an integrity check (durable)
    4. every ledger that names this bookie in any of its fragments, closed or not, is fenced and put in limbo
       (and closed ledgers that do not name it are fenced, if fences may be lost: `protection` says why)
    5. the storage is flushed: fences and limbo are durable
    6. missing cookies are written; the marker for this run is made; requests are served
    7. ledgers in limbo that are not closed are recovered, by a client like any other
    8. the entries that this bookie must store and has not are copied from other bookies
    9. these copies are flushed; then the ledger leaves limbo
    10. when none is left, the storage is flushed once more, and the flag of step 3 is taken away

Before 6 nothing is answered. From 6 to 9 what is here is served, and what is not is *unknown*, which a recovery counts
neither as a denial nor as an answer. Closed ledgers are fenced too: their writers may still be about to send (spec
safety §2.2; Java leaves them out, and can lose an entry so).

A crash before 5 leaves marker and cookies as they were: the next start begins at 1. A crash later, too, if there was a
marker; else the flag of step 3 is found, and the check goes on at 7 with the ledgers that are still in limbo.

What one bookie lost, others must have: this protects as many losses at a time as a ledger's ack quorum less one. Where
more bookies lost their data together, recoveries fail for as long as none of them can be sure; nothing is closed in
front of an entry that was acknowledged.

duties      which entries must this bookie store?
protection  fence and limbo, before anything is served
full_check  recover, copy, leave limbo
repair      when the full check runs
peers       what it needs of other bookies: the contract
"""
