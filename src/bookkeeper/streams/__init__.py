"""Streams: unbounded logs of records, as chains of ledgers, in the formats of DistributedLog (spec streams).

formats/        bytes from and to values
dlsn            where a record is
policy          when entries leave, when segments are rolled
packing         which record goes into which entry, and where it is then
segments        the contract with the store of segments, and what follows from their list
segment_writer  entries of one segment, out to its ledger
recovery        ends a segment whose writer is gone
writer          appends to a stream
cursor          what a reader reads next
reader          reads a stream
errors          what goes wrong with them
"""
