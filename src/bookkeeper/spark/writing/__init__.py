"""Spark writes streams, each batch exactly once (spec streams §17.6).

sink_options  what there is to say, and what goes together
shapes        rows as records: values, keys, headers, times
bodies        payloads of a column as the records of entries
framing       which streams have keys, and what payloads are made of that
tasks         what a task does: ledgers of its own, which are nobody's yet
appending     what a task does that must be quick: it appends to the streams, at least once
merging       small ledgers of a batch become one, before that
committing    what the driver does: all of them become segments, in one transaction
fingerprint   what a batch was made from, out of the query's checkpoint
writers       what Spark calls
"""
