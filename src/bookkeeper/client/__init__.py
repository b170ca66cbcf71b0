"""The client library.

client      create, open, delete and list ledgers
arguments   what callers hand in, checked
opening     a handle that is about to be opened
handle      what readers and writers of a ledger share
writer      the ways to append: ids given by the writer, or by the caller
writable    a ledger that this client writes: force, change the ensemble, close
reader      a ledger opened to be read
readable    all its reads, put together
entry       what reads give
recovery    carries out what `quorum.recovery` decides
adds/       what carries entries to their bookies
reads/      ways to read
wire/       connections to bookies
placement/  which bookies get a ledger
store       the metadata store as a client calls it
lac_rounds  when writers are looked at, to see whether they are quiet
context     what all of these share, and the contracts between them
stats       what a client counts, under BookKeeper's names
"""
