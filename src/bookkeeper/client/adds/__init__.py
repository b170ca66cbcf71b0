"""What carries entries to their bookies (spec client §5).

gate          who may append now: the limits of what one writer has in flight
pipeline      entries out, answers in, decisions carried out
outbox        frames that wait for the loop to turn, and the channels that they leave on
deadlines     what takes too long although bookies answer, and pauses between changes
explicit_lac  tells the bookies how far a quiet writer has come
"""
