"""Publishers, a writer, truncation and a reader of one stream, in virtual time (spec streams §15.7, §10)."""

from __future__ import annotations

import pytest

from bookkeeper.errors import BookKeeperError
from tests.simulation.stream_story import tell
from tests.support.planted_streams import PLANTED


@pytest.mark.parametrize("seed", range(6))
def test_each_record_is_read_once_whoever_dies(seed: int) -> None:
    tell(seed)


@pytest.mark.parametrize("seed", range(3))
def test_who_does_not_die_is_not_disturbed(seed: int) -> None:
    tell(seed, calm=True)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of the same stories; the lock, which is only good manners, by one in which nobody dies."""
    PLANTED[bug](monkeypatch)
    found = 0
    for seed in range(30):
        try:
            tell(seed, calm=bug == "lock ignored")
        except (AssertionError, BookKeeperError):
            found += 1
            break
    assert found, f"{bug}: not found"
