"""Settings that are wrong only together."""

from __future__ import annotations

import pytest

from bookkeeper.bookie.node.validate import validate
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import ConfigurationError


def configured(journal: str, ledger: str, index: str = "") -> ServerConfiguration:
    roots = {"journalDirectories": journal, "ledgerDirectories": ledger, "indexDirectories": index or None}
    given = {key: value for key, value in roots.items() if value is not None}
    return ServerConfiguration.from_mapping({**given, "bookiePort": "3181"})


@pytest.mark.parametrize(
    ("roots", "inner", "outer"),
    [
        (("/bk/journal", "/bk"), "/bk/journal of journalDirectories", "/bk of ledgerDirectories"),
        (("/bk", "/bk/current"), "/bk/current of ledgerDirectories", "/bk of journalDirectories"),
        (("/j", "/l/1,/l"), "/l/1 of ledgerDirectories", "/l of ledgerDirectories"),
        (("/j,/j/2", "/l"), "/j/2 of journalDirectories", "/j of journalDirectories"),
        (("/j", "/l", "/l/index/"), "/l/index of indexDirectories", "/l of ledgerDirectories"),
        (("/j/../l/x", "/l/./"), "/l/x of journalDirectories", "/l of ledgerDirectories"),
        (("data/j", "data"), "data/j of journalDirectories", "data of ledgerDirectories"),
    ],
)
def test_directories_inside_each_other_are_refused(roots: tuple[str, ...], inner: str, outer: str) -> None:
    """SEC-52."""
    with pytest.raises(ConfigurationError) as failure:
        validate(configured(*roots))
    assert str(failure.value).startswith(f"{inner} lies inside {outer}: ")


@pytest.mark.parametrize(
    ("roots", "key"),
    [
        (("/j,/j", "/l"), "journalDirectories"),
        (("/j", "/l,/k,/l/"), "ledgerDirectories"),
        (("/j", "/l,/k", "/i,/x/../i"), "indexDirectories"),
    ],
)
def test_a_directory_that_is_named_twice_is_refused(roots: tuple[str, ...], key: str) -> None:
    """SEC-52."""
    with pytest.raises(ConfigurationError, match=f"^{key}=.* names a directory twice"):
        validate(configured(*roots))


@pytest.mark.parametrize(
    "roots", [("/bk/j", "/bk/l"), ("/bk", "/bk"), ("/j", "/l1,/l2,/l10", "/l1,/l2,/l10"), ("/bk1", "/bk"), ("j", "/j")]
)
def test_directories_side_by_side_or_shared_between_kinds_are_accepted(roots: tuple[str, ...]) -> None:
    validate(configured(*roots))
