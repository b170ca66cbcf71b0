"""A ledger's players as plain state machines: writer, recoverers, bookies, store; messages are values.

The writer and the recoverer are the shipped pure core (`bookkeeper.quorum`) in a shell without I/O: where the client
sends to a connection, these put a message into `out`; where it waits for the metadata store, these wait for
`store_turn`. Whoever drives them decides what arrives, when, and what never does. The model checker tries everything
(`tests/model`), a scenario file one thing (`tests/scenarios`).
"""
