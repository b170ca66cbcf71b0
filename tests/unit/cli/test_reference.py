"""The reference pages are what the program says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.cli.reference import PAGES

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), f"docs/{name} is stale: `make docs` writes it"
