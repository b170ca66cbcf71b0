"""How commands print."""

from __future__ import annotations

import pytest

from bookkeeper.cli.ledger import date_text, quorums
from bookkeeper.cli.output import counted, entries_text, print_table
from bookkeeper.errors import LedgerClosedError, NoSuchLedgerOnMetadataError


def test_a_table_in_a_pipe_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(None, ["ledger", "entries", "bookies"], [("123456789012", 1234567, "b1, " * 40), ("7", 8, "[x]")])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["ledger", "entries", "bookies"]
    assert first.split("  ") == ["123456789012", "1,234,567", "b1, " * 39 + "b1,"]
    assert second.split() == ["7", "8", "[x]"]
    assert len({line.index(word) + len(word) for line, word in ((header, "entries"), (second, "8"))}) == 1


def test_numbers_agree_with_their_nouns() -> None:
    assert (entries_text(0), entries_text(1), entries_text(2000)) == ("0 entries", "1 entry", "2,000 entries")
    assert (counted(1, "bookie"), counted(2, "bookie")) == ("1 bookie", "2 bookies")


def test_a_time_of_creation_is_a_date() -> None:
    assert date_text(1_795_367_862_943) == "2026-11-22 17:17:42 UTC"
    assert date_text(-1) == "-"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((3, None, None), (3, 3, 2)),
        ((1, None, None), (1, 1, 1)),
        ((2, None, None), (2, 2, 2)),
        ((7, None, None), (7, 3, 2)),
        ((3, 2, None), (3, 2, 2)),
        ((3, 3, 3), (3, 3, 3)),
        ((2, 3, None), (2, 3, 2)),  # a contradiction is the user's, and refused by the client
    ],
)
def test_one_number_is_enough_for_a_ledger_of_any_size(
    given: tuple[int, int | None, int | None], expected: tuple[int, int, int]
) -> None:
    assert quorums(*given) == expected


def test_an_error_names_the_ledger_once() -> None:
    assert str(NoSuchLedgerOnMetadataError("there is no ledger 999", ledger_id=999)) == "there is no ledger 999"
    assert str(LedgerClosedError("no", ledger_id=99)) == "no (ledger 99)"
    assert str(LedgerClosedError("as ledger 999", ledger_id=99)) == "as ledger 999 (ledger 99)"
