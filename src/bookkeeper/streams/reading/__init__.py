"""Reads a stream, and says what is in it (spec streams §9, §11).

reader         reads a stream
cursor         what a reader reads next
search         finds records in a segment
waiting        records a few at a time, by calls that may end early
subscriptions  positions that readers keep with the stream
right          the right to read alone, or for a subscriber
verify         whether a stream is whole
queries        what a stream holds: its first and last record, how many
"""
