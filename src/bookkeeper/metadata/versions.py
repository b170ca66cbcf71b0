"""What tells two states of one record apart, in all contracts of the stores."""

from __future__ import annotations

Version = int
"""Opaque; comparable only between two values of the same record."""

ANY: Version = -1
"""Matches any existing record; never returned."""
