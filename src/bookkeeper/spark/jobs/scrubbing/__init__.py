"""Which part of the ledgers a scrub looks at, and where it keeps how far it is. `jobs.scrub` does it.

choice  a sample of ledgers or entries, and what is new since; pure
plan    the units of work that a choice makes of a selection
state   a directory with the plan of each scrub, what its finished units found, and what was found whole
"""
