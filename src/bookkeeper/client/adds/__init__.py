"""What carries entries to their bookies (spec client §5).

life              the states that a writer goes through
appending         what a writer has while it appends, and gives up while it rests
gate              who may append now: the limits of what one writer has in flight
encoding          entries as frames
pipeline          entries out, answers in, decisions carried out
waiters           callers that wait for entries to be acknowledged
outbox            which bundles frames go into, and the channels that these lead to
deadlines         what takes too long although bookies answer, and pauses between changes
metadata_changes  another ensemble, and the end, put into the metadata
explicit_lac      tells the bookies how far a quiet writer has come
"""
