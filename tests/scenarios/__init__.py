"""Scenarios of the pure core as text: commands, and the state they lead to.

    script.py     runs a scenario file
    world.py      a ledger and its players; the commands
    tables.py     commands about sets of bookies, without players
    *.txt         one story each

`REWRITE_SCENARIOS=1 pytest tests/scenarios` writes what the commands print into the files: read the difference.
"""
