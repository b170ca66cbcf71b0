"""What leaves a stream at its old end (spec streams §10, §15.4).

choice      what a position or an age means for the segments; pure
maintenance what a namespace needs now and then, done by one of many
mark        how far a stream is to be truncated, in a record of its own
offloaded   where copies of segments are, outside the cluster
policies    what the records of a namespace and of a stream say of ledgers and their end
truncation  marks segments, deletes those that are marked as a whole, and applies a policy

Nothing of this needs the stream's lock, and nothing gets into the way of the stream's writer.
"""
