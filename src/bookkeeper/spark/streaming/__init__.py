"""Streams and single ledgers in Spark: `readStream`, and batch reads of streams (spec streams §17.3 to §17.5).

To a query, each stream and each raw ledger is a *log*: spans of entries in order, a span for each ledger.

spans      logs as they are at one moment, places in them, and what was lost; pure
offsets    places as Spark stores them between the batches of a query; pure
admission  how much a batch reads; pure

stream_options  what there is to say, and what goes together
starting        where a query begins, or a read ends
conditions      which records of a read are given
looking         what is in the cluster now
following       a query's offsets, and the work of each batch
records         types of the columns of records, and batches of them
record_arrays   records of an entry as arrays
record_columns  columns of those
archived_rows   the same of segments that were offloaded to files
queries         what Spark calls
lag             how far behind a query is
"""
