"""Streams: unbounded logs of records, as chains of ledgers, in the formats of DistributedLog (spec streams).

A *stream* (DistributedLog says *log*) has a name in a *namespace*. It consists of *segments*: each is one ledger, and
one record in the metadata store that says where in the stream it stands. One client writes a stream at a time. What
keeps it so is not its lock, which is advisory, but compare-and-set on the stream's records, and the fencing of its
ledgers.

names/          what stands where in the metadata store: namespaces, streams, segments, locks, allocated ledgers
formats/        bytes from and to values
publishing/     ledgers written elsewhere become segments, exactly once
reading/        reads a stream, and says what is in it
retention/      what leaves a stream: truncation, deletion, policies
dlsn            where a record is
policy          when entries leave, when segments are rolled
packing         which record goes into which entry, and where it is then
segments        the contract with the store of segments, and what follows from their list
segment_writer  entries of one segment, out to its ledger
recovery        ends a segment whose writer is gone
ledgers         the ledgers of segments, made and opened
named_segments  the store of segments of a stream with a name
namespace       streams by name: what programs use
opening         a namespace by its address
writer          appends to a stream
pending         records that a writer was given without waiting for them
errors          what goes wrong with them

The records in the store are the same on every kind of store, at the same paths, with the same text; Java's
DistributedLog can share those in ZooKeeper.
"""
