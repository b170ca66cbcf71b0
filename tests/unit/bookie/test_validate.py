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
        (("/bk/current/journal", "/bk"), "/bk/current/journal of journalDirectories", "/bk of ledgerDirectories"),
        (("/bk", "/bk/current"), "/bk/current of ledgerDirectories", "/bk of journalDirectories"),
        (("/j", "/l/current/1,/l"), "/l/current/1 of ledgerDirectories", "/l of ledgerDirectories"),
        (("/j,/j/current/2", "/l"), "/j/current/2 of journalDirectories", "/j of journalDirectories"),
        (("/j", "/l", "/l/current/index/"), "/l/current/index of indexDirectories", "/l of ledgerDirectories"),
        (("/j/../l/current/x", "/l/./"), "/l/current/x of journalDirectories", "/l of ledgerDirectories"),
        (("data/current", "data"), "data/current of journalDirectories", "data of ledgerDirectories"),
    ],
)
def test_directories_among_the_files_of_another_are_refused(roots: tuple[str, ...], inner: str, outer: str) -> None:
    """SEC-52."""
    with pytest.raises(ConfigurationError) as failure:
        validate(configured(*roots))
    assert str(failure.value).startswith(f"{inner} lies among the files of {outer}: ")


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
    "roots",
    [
        *(("/bk/j", "/bk/l"), ("/bk", "/bk"), ("/j", "/l1,/l2,/l10", "/l1,/l2,/l10"), ("/bk1", "/bk"), ("j", "/j")),
        *(("/bk", "/bk/ledgers"), ("/bk/journal", "/bk"), ("/j", "/l,/l/2")),
    ],
)
def test_directories_whose_files_do_not_mix_are_accepted(roots: tuple[str, ...]) -> None:
    validate(configured(*roots))


@pytest.mark.parametrize(
    ("key", "value"), [("journalWriteData", "false"), ("dataIntegrityStampMissingCookies", "true")]
)
def test_what_may_lose_entries_is_refused_without_data_integrity(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}.*dataIntegrityChecking=true"):
        validate(ServerConfiguration.from_mapping({key: value}))
    validate(ServerConfiguration.from_mapping({key: value, "dataIntegrityChecking": "true"}))
