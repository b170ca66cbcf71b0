"""What carries entries to their bookies (spec client §5).

gate          who may append now: the limits of what one writer has in flight
pipeline      entries out, answers in, decisions carried out
explicit_lac  tells the bookies how far a quiet writer has come
"""
