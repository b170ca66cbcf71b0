"""The protocol as shipped keeps its invariants in every state of small ledgers; each planted bug is found."""

from __future__ import annotations

import pytest

from .table import Row, rows


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", list(rows(big=False)), ids=lambda row: f"{row.name} | {row.configuration}")
def test_row(row: Row) -> None:
    row.run()
