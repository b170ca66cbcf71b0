"""Ledger metadata, cookies and registration, and the stores that keep them."""

from .drivers import open_driver
from .ledger_metadata import LedgerMetadata
from .update import update_ledger

__all__ = ["LedgerMetadata", "open_driver", "update_ledger"]
