"""The protocol model-checked: small ledgers, every order of events (spec safety §2; docs/testing.md).

explorer.py         breadth-first search over all states
players.py          writer, recoverers, bookies as the explorer sees them: events, keys, wanted messages
invariants.py       what must hold in every state
configurations.py   the table of spec safety §2.2
__main__.py         `python -m tests.model`: run the table, print it
"""
