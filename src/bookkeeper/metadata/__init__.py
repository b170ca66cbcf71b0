"""Ledger metadata, cookies and registration, and the stores that keep them."""
