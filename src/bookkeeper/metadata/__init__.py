"""Ledger metadata, cookies and registration, and the stores that keep them."""

from .drivers import open_driver
from .ledger_metadata import LedgerMetadata
from .update import update_ledger
from .uri import configured_service_uri

__all__ = ["LedgerMetadata", "configured_service_uri", "open_driver", "update_ledger"]
