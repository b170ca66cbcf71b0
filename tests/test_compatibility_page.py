"""docs/compatibility.md says what the recorded results say, and nothing else."""

from __future__ import annotations

from tests.interop.support.report import PAGE, RESULTS, load, render


def test_the_page_is_what_was_recorded() -> None:
    assert PAGE.read_text() == render([load(path) for path in sorted(RESULTS.glob("*.json"))])
