"""A replicated, durable, append-only ledger store: Apache BookKeeper's protocol and formats, in Python."""
